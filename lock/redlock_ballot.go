package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

// ballot is one question to all servers of a Redlock. A ballot is decided as soon as missing answers cannot change
// the result. A later grant joins the lease while the lease is held. Each vote releases its own useless grant, so that
// Close of its client waits for the release.
type ballot struct {
	lock  *Redlock
	call  *redlockCall
	owner string             // on every server that it asks; "" if each client has its own
	ended func(awaited bool) // for the lease; awaited: other processes waited at its release

	// Of a process in line: see anchorWait.
	waits    time.Duration // how long the others wait for the lock after a grant of the anchor
	answered chan struct{} // closed when the anchor has answered; nil for a ballot without a line
	anchored bool          // the anchor has granted the lock; constant after answered

	wanted context.Context    // until the ballot is lost, or the lease ends
	stop   context.CancelFunc // ends wanted

	mu    sync.Mutex    // guards the following, constant after the decision
	votes []vote        // by node
	whole *Lease        // the lease, if won
	err   error         // the reason, if lost
	done  chan struct{} // closed when decided
}

// vote is the answer of a server before the decision.
type vote struct {
	result voteResult
	lease  *Lease // the grant, else nil
	err    error  // the failure, else nil
	again  bool   // missing: the server has refused the lock, and is asked again
}

type voteResult int

const (
	voteMissing voteResult = iota
	voteFailed
	voteRefused
	voteGranted
)

// newBallot returns a ballot without votes.
func (r *Redlock) newBallot(ctx context.Context, c *redlockCall, ended func(bool)) *ballot {
	b := &ballot{lock: r, call: c, votes: make([]vote, len(r.members)), done: make(chan struct{})}
	b.wanted, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.ended = func(awaited bool) {
		b.stop()
		ended(awaited)
	}
	if r.key.kind == plainKind.Get() {
		b.owner = plainOwner(0)
	}
	return b
}

// begin asks the servers of all nodes but one; -1 for all.
func (b *ballot) begin(ctx context.Context, except int) {
	b.call.traced.asked()
	for node, h := range b.lock.members {
		if node != except && !h.client.background(func() { b.vote(ctx, node) }) {
			b.count(node, nil, ErrClosed)
		}
	}
}

// await returns the lease after the decision.
func (b *ballot) await(ctx context.Context) (*Lease, error) {
	r := b.lock
	select {
	case <-b.done:
	case <-ctx.Done():
		b.giveUp(ctx)
	}
	if b.err == nil || errors.Is(b.err, ErrNotAcquired) { // for the callers behind
		r.first.gates.Note(r.key, nil)
	} else if ctx.Err() == nil { // its end says nothing about the servers
		r.first.gates.Note(r.key, b.err)
	}
	return b.whole, b.err
}

// withoutAnchor returns the lease, if the ballot is won although the anchor has failed with err. It may be called again.
func (b *ballot) withoutAnchor(ctx context.Context, anchor int, err error) *Lease {
	b.count(anchor, nil, err)
	b.answer(false)
	won, _ := b.await(ctx)
	return won
}

// answer tells the votes of the other servers whether the anchor has granted the lock. Only the first call has an effect.
func (b *ballot) answer(anchored bool) {
	select {
	case <-b.answered:
	default:
		b.anchored = anchored
		close(b.answered)
	}
}

// vote asks one server.
func (b *ballot) vote(ctx context.Context, node int) {
	began := time.Now()
	lease, err := b.ask(ctx, node)
	took := time.Since(began)
	if b.answered != nil && errors.Is(err, ErrNotAcquired) {
		select {
		case <-b.answered:
			if b.anchored {
				lease, err = b.askAgain(ctx, node, err, took)
			}
		case <-b.done:
		}
	}
	b.settle(ctx, node, lease, err)
}

// ask asks a server once.
func (b *ballot) ask(ctx context.Context, node int) (*Lease, error) {
	q, err := b.lock.question(b.call, node, b.owner)
	if err != nil {
		return nil, err
	}
	limited, cancel := b.call.limit(ctx, q.client)
	defer cancel()
	lease, _, err := q.ask(limited, false)
	return lease, err
}

// askAgain asks a server that has refused the lock, which may be on its way to be released there: some times soon after a first answer that took so
// long, and then in the line of the server.
func (b *ballot) askAgain(ctx context.Context, node int, refused error, took time.Duration) (lease *Lease, err error) {
	limited, cancel := context.WithTimeout(b.wanted, b.waits)
	defer cancel()
	b.mu.Lock()
	b.votes[node].again = true // has no effect after the decision
	b.mu.Unlock()
	pause := max(took, redlockUnit)
	for range redlockSoon {
		if b.lock.members[node].client.sleep(limited, pause) != nil {
			return nil, refused
		}
		if lease, err = b.ask(ctx, node); !errors.Is(err, ErrNotAcquired) {
			return lease, err
		}
		pause *= 2
	}
	q, err := b.lock.question(b.call, node, b.owner)
	if err != nil {
		return nil, err
	}
	asking, done := b.call.limit(ctx, q.client)
	defer done()
	lease, w, err := q.ask(asking, true)
	if w != nil {
		lease, err = w.wait(limited)
		err = q.verify(ctx, err)
	}
	return lease, err
}

// settle counts a vote, and waits for the decision. A grant of no use is released.
func (b *ballot) settle(ctx context.Context, node int, lease *Lease, err error) {
	b.count(node, lease, err)
	if err == nil && b.joinIfWon(ctx, node, lease) {
		h := b.lock.members[node]
		h.client.kept.Set(h.target.awaitedAs(), false)
		return
	}
	if lease != nil {
		b.call.release(ctx, lease)
	}
}

// stillKept notes that somebody else has the lock of a node beside the winner of the Redlock, if a look has said so lately.
func (b *ballot) stillKept(node int) {
	h := b.lock.members[node]
	if key := h.target.awaitedAs(); h.client.kept.Has(key) {
		h.client.kept.Set(key, true)
	}
}

// settleBehind settles a grant in the background.
func (b *ballot) settleBehind(ctx context.Context, node int, granted *Lease) {
	if !granted.client.background(func() { b.settle(ctx, node, granted, nil) }) {
		b.settle(ctx, node, granted, nil)
	}
}

// joinIfWon waits for the decision and reports whether the lease, if won, has the part l. A vote whose client is closed
// before the decision does not count.
func (b *ballot) joinIfWon(ctx context.Context, node int, l *Lease) bool {
	select {
	case <-b.done:
	case <-b.lock.members[node].client.life.Done():
		b.count(node, nil, ErrClosed)
	}
	b.mu.Lock()
	whole, counted := b.whole, b.votes[node].lease == l
	b.mu.Unlock()
	return whole != nil && (counted || whole.group.join(ctx, l))
}

// count records the answer of one server: the lease l, or err. A decided ballot stays as it is.
func (b *ballot) count(node int, l *Lease, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decidedLocked() {
		if b.whole != nil && errors.Is(err, ErrNotAcquired) {
			b.stillKept(node)
		}
		return
	}
	switch {
	case err == nil:
		b.votes[node] = vote{result: voteGranted, lease: l}
	case errors.Is(err, ErrNotAcquired):
		b.votes[node] = vote{result: voteRefused}
	default:
		b.votes[node] = vote{result: voteFailed, err: failureOfNode(err)}
	}
	b.decideLocked()
}

// failureOfNode returns the reason why an attempt at one server has failed with err. The end of NodeTimeout does not match the end of the caller's context.
func failureOfNode(err error) error {
	if e, ok := errors.AsType[*NotAcquiredError](err); ok && e.Err != nil {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %v", err)
	}
	return err
}

// decideLocked decides the ballot if missing answers cannot change the result.
func (b *ballot) decideLocked() {
	var parts []*Lease
	var fatal error // the same at a repeat, as each of fatals
	fatals := 0
	for _, v := range b.votes {
		if v.result == voteGranted {
			parts = append(parts, v.lease)
		}
		if errors.Is(v.err, ErrWrongType) || errors.Is(v.err, ErrInvalid) {
			fatal = v.err
			fatals++
		}
	}
	quorum, missing := b.lock.quorum, b.numberLocked(voteMissing)
	switch {
	case len(parts) >= quorum:
		if b.err = b.checkMajority(parts); b.err == nil {
			b.whole = newWhole(quorum, false, parts, b.ended, b.lock.cfg.Quarantine)
			for node, v := range b.votes {
				if v.result == voteRefused {
					b.stillKept(node)
				}
			}
		}
	case len(parts)+missing >= quorum:
		return
	case fatals > len(b.votes)-quorum:
		b.err = fatal
	case b.takenLocked(0):
		b.err = b.lock.refusal()
	case !b.takenLocked(missing):
		b.err = b.noQuorumLocked(nil)
	default: // a refusal is still possible
		return
	}
	b.endLocked()
}

// endLocked ends the ballot, with the decision in whole or err.
func (b *ballot) endLocked() {
	if b.err != nil {
		b.stop()
	}
	close(b.done)
}

func (b *ballot) decidedLocked() bool { return b.whole != nil || b.err != nil }

// numberLocked returns the number of servers with the given result.
func (b *ballot) numberLocked(of voteResult) (n int) {
	for _, v := range b.votes {
		if v.result == of {
			n++
		}
	}
	return n
}

// takenLocked reports whether the lock is refused: other owners have it on so many servers, plus more, that the rest is
// no majority, whatever the unreachable servers would answer.
func (b *ballot) takenLocked(more int) bool {
	return b.numberLocked(voteRefused)+more > len(b.lock.members)-b.lock.quorum
}

// checkMajority returns an error if two servers of the majority are one, or if too little of the lease is left.
func (b *ballot) checkMajority(parts []*Lease) error {
	if err := b.lock.distinct(); err != nil {
		return err
	}
	term := b.call.term
	if most := parts[0].limits[atMost]; most > 0 {
		term = min(term, most)
	}
	atLeast := time.Duration(max(0, b.lock.cfg.MinValidity) * float64(term))
	if time.Until(validUntil(parts, b.lock.quorum)) > atLeast {
		return nil
	}
	return b.lock.members[0].target.expiredGrant(b.lock.first)
}

// noQuorumError is an error that matches ErrNoQuorum.
type noQuorumError struct {
	error
	heard bool // a majority of the servers has answered: some of them have the lock of another owner
}

func (e *noQuorumError) Unwrap() error { return e.error }

// isTaken reports whether an attempt has failed with err because of other owners: a majority of the servers has answered.
func isTaken(err error) bool {
	e, ok := errors.AsType[*noQuorumError](err)
	return errors.Is(err, ErrNotAcquired) || ok && e.heard
}

// noQuorumLocked returns an error with the number of grants and refusals, and the failures of the other servers. Each is named by its number,
// and by its Target if known. ended is nil, or why the ballot has ended before all had answered.
func (b *ballot) noQuorumLocked(ended error) error {
	var errs []error
	for node, v := range b.votes {
		if v.err == nil {
			continue
		}
		name := fmt.Sprintf("node %d", node+1)
		if data := b.lock.members[node].client.nature.data; data != "" {
			name += " (" + data + ")"
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, v.err))
	}
	granted, refused := b.numberLocked(voteGranted), b.numberLocked(voteRefused)
	err := fmt.Errorf("%w: of %d servers, %d granted the lock and on %d another owner has it; %w",
		ErrNoQuorum, len(b.votes), granted, refused, errors.Join(append(errs, ended)...))
	return &noQuorumError{err, granted+refused >= b.lock.quorum}
}

// giveUp ends the ballot because ctx has ended. A ballot already won stays won.
func (b *ballot) giveUp(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decidedLocked() {
		return
	}
	for node := range b.votes {
		if v := &b.votes[node]; v.again && v.result == voteMissing {
			v.result = voteRefused
		}
	}
	if b.err = b.lock.refusal(); !b.takenLocked(0) {
		b.err = b.noQuorumLocked(fmt.Errorf("%d have not answered: %w", b.numberLocked(voteMissing), netfail.Ended(ctx)))
	}
	b.endLocked()
}
