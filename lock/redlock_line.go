package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// The waiting processes of a Redlock stand in the line of one server, the anchor. Who has a grant of the anchor asks the other servers, and waits
// for them a short time. So no two processes have half of the servers each, as long as they choose the same anchor. A majority without the anchor
// is enough, too: the anchor may have failed, or somebody may keep it alone.

const (
	// redlockAlone is the number of attempts after messages at the anchor alone. Clients that stand in no line, such as Redisson's, may always be
	// faster there, so all further ones ask the other servers at the same time.
	redlockAlone = 3
	// redlockWaitMin and redlockWaitMax bound the wait for the other servers, of redlockTrips round trips to the anchor.
	redlockWaitMin, redlockWaitMax = 50 * time.Millisecond, 500 * time.Millisecond
	redlockTrips                   = 8
	// redlockSoon is how often a server is asked in that wait before it goes on in line, and redlockUnit the least pause before.
	redlockSoon, redlockUnit = 3, 250 * time.Microsecond
	// redlockLook is the mean time to the first look of a process in line. It doubles up to redlockLookMax.
	redlockLook, redlockLookMax = 2 * time.Second, 10 * time.Second
)

// errLeftLine says that the anchor is of no use: a ballot has to decide.
var errLeftLine = errors.New("lock: the server with the line of a Redlock does not answer, or keeps a lock that is free elsewhere")

// anchor returns the first node whose server is of use, as Redisson's clients ask the servers in the order of the nodes. If other processes have them
// in another order, it returns the node of the smallest identity instead. A server where somebody keeps the lock beside the Redlock comes last. If no
// server is of use, anchor returns the first node.
func (r *Redlock) anchor() int {
	best, unlike := -1, r.first.unlike.Has(r.key)
	for _, kept := range []bool{false, true} {
		for i, h := range r.members {
			self := h.client.identity
			if !self.Useful() || h.client.kept.Has(h.target.awaitedAs()) != kept {
				continue
			}
			if best < 0 || unlike && self.ID() < r.members[best].client.identity.ID() {
				best = i
			}
		}
		if best >= 0 {
			return best
		}
	}
	return 0
}

// anchorWait is the wait of a process in the line of the anchor.
type anchorWait struct {
	lock   *Redlock
	call   *redlockCall
	ended  func(awaited bool) // for the lease
	anchor int
	leave  context.CancelFunc // ends the wait
	waited bool               // the anchor has refused the lock
	took   time.Duration      // of the first question to the anchor
	tries  int                // attempts at the anchor since then, after messages
	ballot *ballot            // of the last attempt; nil if it has asked the anchor alone
	won    *Lease             // without the anchor; ends the wait
}

// askInLine asks the anchor, waits in its line, and asks the other servers. It calls ended at the end of the returned lease.
func (r *Redlock) askInLine(ctx context.Context, c *redlockCall, ended func(bool)) (*Lease, error) {
	if err := r.identify(ctx, c.timeout); err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		a := &anchorWait{lock: r, call: c, anchor: r.anchor()}
		a.ended = func(awaited bool) { ended(awaited || a.waited) }
		lease, err := a.acquire(ctx)
		if next := r.anchor(); err != errLeftLine || next == a.anchor || !r.members[next].client.identity.Useful() {
			return lease, err
		}
	}
	return r.ask(ctx, c, ended)
}

// acquire waits for the anchor, and then for the other servers.
func (a *anchorWait) acquire(ctx context.Context) (*Lease, error) {
	first := a.lock.first
	waiting, leave := context.WithCancel(ctx) // untilClose of a context without an end has nothing to cancel
	defer leave()
	waiting, stop := first.untilClose(waiting)
	defer stop()
	a.leave = leave
	granted, err := a.wait(waiting)
	b := a.ballot
	if err != nil && b != nil {
		a.won = b.withoutAnchor(ctx, a.anchor, err)
	}
	switch {
	case a.won != nil:
		if granted != nil {
			b.settleBehind(ctx, a.anchor, granted)
		}
		return a.won, nil
	case err != nil && (first.isClosed() || ctx.Err() != nil):
		return nil, err
	case err != nil:
		return nil, errLeftLine
	case b == nil:
		b = a.beginBallot(ctx)
	}
	b.answer(true)
	b.settleBehind(ctx, a.anchor, granted)
	lease, err := b.await(ctx)
	if isTaken(err) && ctx.Err() == nil { // further processes have the remaining servers, and wait for the anchor
		first.unlike.Set(a.lock.key, true)
	}
	return lease, err
}

// wait returns the grant of the anchor.
func (a *anchorWait) wait(ctx context.Context) (*Lease, error) {
	q, err := a.lock.question(a.call, a.anchor, "")
	if err != nil {
		return nil, err
	}
	a.call.traced.asked()
	q.deadline, _ = ctx.Deadline()
	limited, cancel := a.limit(ctx)
	defer cancel()
	began := time.Now()
	granted, w, err := q.ask(limited, true)
	a.took = time.Since(began)
	if w != nil {
		a.lock.first.gates.Note(a.lock.key, nil)
		a.waited = true
		w.beside = func(ctx context.Context) (context.Context, func(bool, error)) {
			return a.attempt(ctx, w.entry.head.Woken())
		}
		granted, err = a.waitInLine(ctx, w)
		err = q.verify(ctx, err)
	}
	if err == nil {
		return granted, nil
	}
	if ctx.Err() == nil {
		a.identity().Vouch(err)
	}
	if granted != nil {
		a.releaseUseless(ctx, granted)
	}
	return nil, err
}

// releaseUseless releases a grant of the anchor, and returns at the end of ctx even if the release is still under way: the anchor may hang.
func (a *anchorWait) releaseUseless(ctx context.Context, granted *Lease) {
	released := make(chan struct{})
	release := func() {
		defer close(released)
		a.call.release(ctx, granted)
	}
	if !granted.client.background(release) { // the client is closed
		release()
	}
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// attempt is called at an attempt of the waiter at the anchor, and asks the other servers at a late one. It returns the context for the attempt, and
// what the attempt calls at its end. woken: somebody has given the anchor's lock back.
func (a *anchorWait) attempt(ctx context.Context, woken bool) (limited context.Context, answered func(granted bool, err error)) {
	if woken {
		a.tries++
	}
	switch {
	case ctx.Err() != nil: // the wait is about to end
	case woken && a.tries > redlockAlone && !a.lock.key.kind.silent:
		a.beginBallot(ctx)
	default:
		a.ballot = nil
	}
	limited, cancel := a.limit(ctx)
	return limited, func(granted bool, err error) {
		cancel()
		if err == nil {
			a.lock.first.gates.Note(a.lock.key, nil)
		}
		switch {
		case granted: // wait returns the grant
		case err != nil && ctx.Err() == nil:
			a.identity().Vouch(err)
			a.leave()
		case a.ballot != nil:
			if a.won = a.ballot.withoutAnchor(ctx, a.anchor, ErrNotAcquired); a.won != nil {
				a.leave()
			}
		}
	}
}

// limit limits an attempt at the anchor, and a look. It is more patient than NodeTimeout may be, since processes at different anchors are in each other's way.
func (a *anchorWait) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(a.call.timeout, nodeTimeoutMax))
}

func (a *anchorWait) identity() *remote.Identity { return a.lock.members[a.anchor].client.identity }

// beginBallot asks the other servers.
func (a *anchorWait) beginBallot(ctx context.Context) *ballot {
	a.ballot = a.lock.newBallot(ctx, a.call, a.ended)
	a.ballot.answered = make(chan struct{})
	a.ballot.waits = min(max(redlockTrips*a.took, redlockWaitMin), redlockWaitMax, time.Duration((1-max(0, a.lock.cfg.MinValidity))/2*float64(a.call.term)))
	a.ballot.begin(ctx, a.anchor)
	return a.ballot
}

// waitInLine is the wait of w, which ends also if a look says that the anchor is of no use.
func (a *anchorWait) waitInLine(ctx context.Context, w *waiter) (*Lease, error) {
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		var last []string
		for every := redlockLook; a.lock.first.sleep(ctx, every/2+rand.N(every)) == nil; every = min(2*every, redlockLookMax) {
			var useless bool
			if last, useless = a.look(ctx, last); useless {
				a.leave()
			}
		}
	}()
	granted, err := w.wait(ctx)
	a.leave()
	<-looking
	return granted, err
}

// look asks all servers who has the lock, and returns the owner on each, "" for none. useless: another anchor is better, or too few servers answer
// at all, or the anchor has the same owner as at the last look, and a majority of the servers has none or another one: that owner does not have the
// Redlock, and its lock may last.
func (a *anchorWait) look(ctx context.Context, last []string) (owners []string, useless bool) {
	r, anchor := a.lock, a.anchor
	limited, cancel := a.limit(ctx)
	defer cancel()
	infos, errs := make([]Info, len(r.members)), make([]error, len(r.members))
	atOnce(r.members, func(i int, h *Handle) { infos[i], errs[i] = h.Info(limited) })
	if ctx.Err() != nil {
		return last, false
	}
	owners = make([]string, len(r.members))
	copy(owners, last)
	others, answers := 0, 0
	for i, err := range errs {
		self := r.members[i].client.identity
		if _, replied := errors.AsType[resp.Error](err); err != nil && !replied { // the user may have no right to the question
			self.Vouch(err)
			continue
		}
		self.Answered()
		if answers++; err != nil {
			continue
		}
		owners[i] = ""
		if holders := infos[i].Holders; len(holders) > 0 {
			owners[i] = holders[0].Owner
		}
		if owners[i] == "" || last != nil && owners[i] != last[i] {
			others++
		}
	}
	a.call.answers = a.call.answers || answers >= r.quorum
	if last != nil && owners[anchor] != "" && owners[anchor] == last[anchor] && others >= r.quorum {
		for i, h := range r.members { // the others would be the next anchors
			if owners[i] != "" && owners[i] == last[i] {
				h.client.kept.Set(h.target.awaitedAs(), true)
			}
		}
	}
	return owners, r.anchor() != anchor || answers < r.quorum
}
