package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// ballot is one question to all servers of a Redlock. A ballot is decided as soon as missing answers cannot change
// the result. A later grant joins the lease while the lease is held. Each vote releases its own useless grant, so that
// Close of its client waits for the release.
type ballot struct {
	lock  *Redlock
	call  redlockCall
	owner string // on every server; "" if each client has its own
	ended func() // for the lease
	start time.Time

	mu    sync.Mutex    // guards the following, constant after the decision
	votes []vote        // by node
	whole *Lease        // the lease, if won
	err   error         // the reason, if lost
	done  chan struct{} // closed when decided
}

// vote is the answer of a server before the decision.
type vote struct {
	result voteResult
	lease  *Lease        // the grant, else nil
	err    error         // the failure, else nil
	took   time.Duration // until the answer
	ends   time.Time     // the end of the other owner's lease; zero if unknown
}

type voteResult int

const (
	voteMissing voteResult = iota
	voteFailed
	voteRefused
	voteGranted
)

// ask asks all servers once, and calls ended at the end of the returned lease. Without a lease ask returns the votes.
func (r *Redlock) ask(ctx context.Context, c redlockCall, ended func()) (lease *Lease, votes []vote, err error) {
	if ctx.Err() != nil {
		e := r.refusal()
		e.untried = true
		return nil, nil, new(waited).end(ctx, r.first, e)
	}
	if err := r.identify(ctx, c.timeout); err != nil {
		return nil, nil, err
	}
	c.traced.asked()
	b := &ballot{lock: r, call: c, ended: ended, start: time.Now(), done: make(chan struct{}), votes: make([]vote, len(r.members))}
	if r.key.kind == plainKind.Get() {
		b.owner = plainOwner(0)
	}
	for node, h := range r.members {
		if !h.client.background(func() { b.vote(ctx, node) }) {
			b.count(node, nil, 0, ErrClosed)
		}
	}
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
	return b.whole, b.votes, b.err
}

// vote asks one server. Its time is limited by the call's timeout and by Close of the node's client, not by the caller's context: an answer
// after the decision may still join the lease.
func (b *ballot) vote(ctx context.Context, node int) {
	h := b.lock.members[node]
	c := h.client
	ctx, cancel := context.WithTimeout(c.untilCloseOnly(ctx), b.call.timeout)
	defer cancel()
	r, err := h.request(b.call.opts, 0)
	if err != nil {
		b.count(node, nil, 0, err)
		return
	}
	if b.owner != "" {
		r.owner = b.owner
	}
	quarantine := b.lock.cfg.Quarantine
	var info resp.Value
	r.wrapDoer = func(d conn.Doer) conn.Doer { return d }
	if quarantine >= 0 || c.identity.ID() == "" {
		r.wrapDoer = func(d conn.Doer) conn.Doer { return infoFirst{d, &info} }
	}
	start := c.now()
	left, err := r.tryObtain(ctx)
	if e, ok := errors.AsType[*NotAcquiredError](err); ok && e.untried { // its time was over before: the server has refused nothing
		err = e.Err
	}
	switch {
	case err == nil && quarantine >= 0:
		err = c.identity.CheckVote(ctx, info, start, quarantine)
	case err == nil, errors.Is(err, ErrNotAcquired):
		c.identity.Note(info, start)
	}
	b.count(node, r.got, left, err)
	if err == nil && b.joinIfWon(node, r.got) {
		return
	}
	if r.got != nil {
		_ = r.got.unlock(ctx, true) // ignores the end of ctx; the rest is done in the background
	}
}

// joinIfWon waits for the decision and reports whether the lease, if won, has the part l. A vote whose client is closed
// before the decision does not count.
func (b *ballot) joinIfWon(node int, l *Lease) bool {
	select {
	case <-b.done:
	case <-b.lock.members[node].client.life.Done():
		b.count(node, nil, 0, ErrClosed)
	}
	b.mu.Lock()
	whole, counted := b.whole, b.votes[node].lease == l
	b.mu.Unlock()
	return whole != nil && (counted || whole.group.join(l))
}

// count records the answer of one server: the lease l, or err, for a refusal with the time until the next reason to ask. A decided ballot
// stays as it is.
func (b *ballot) count(node int, l *Lease, again time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decidedLocked() {
		return
	}
	v := vote{took: time.Since(b.start)}
	switch {
	case err == nil:
		v.result, v.lease = voteGranted, l
	case errors.Is(err, ErrNotAcquired):
		if v.result = voteRefused; again != noTTL {
			v.ends = b.start.Add(v.took + max(again, b.lock.members[node].client.pace.Floor))
		}
	default:
		v.result, v.err = voteFailed, err
	}
	b.votes[node] = v
	b.decideLocked()
}

// decideLocked decides the ballot if missing answers cannot change the result.
func (b *ballot) decideLocked() {
	var parts []*Lease
	var fatal error // would be the same at a repeat
	for _, v := range b.votes {
		if v.result == voteGranted {
			parts = append(parts, v.lease)
		}
		if errors.Is(v.err, ErrWrongType) || errors.Is(v.err, ErrInvalid) {
			fatal = v.err
		}
	}
	quorum, missing := b.lock.quorum, b.numberLocked(voteMissing)
	switch {
	case len(parts) >= quorum:
		if b.err = b.checkMajority(parts); b.err == nil {
			b.whole = newWhole(quorum, false, parts, b.end, b.lock.cfg.Quarantine)
		}
	case len(parts)+missing >= quorum:
		return
	case fatal != nil:
		b.err = fatal
	case b.takenLocked(0):
		b.err = b.lock.refusal()
	case !b.takenLocked(missing):
		b.err = b.noQuorumLocked(nil)
	default: // a refusal is still possible
		return
	}
	close(b.done)
}

func (b *ballot) decidedLocked() bool { return b.whole != nil || b.err != nil }

// end ends the lease. awaited: when the lock was released, other clients were waiting.
func (b *ballot) end(awaited bool) {
	if awaited {
		b.lock.first.streaks.Longer(b.lock.key, b.start, unit(b.votes, b.lock.quorum))
	} else {
		b.lock.first.streaks.End(b.lock.key)
	}
	b.ended()
}

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

// noQuorumLocked returns an error with the number of grants and refusals, and the failures of the other servers. Each is named by its number,
// and by its Target if known. ended is nil, or why the ballot has ended before all had answered.
func (b *ballot) noQuorumLocked(ended error) error {
	var errs []error
	for node, v := range b.votes {
		if v.err == nil {
			continue
		}
		name := fmt.Sprintf("node %d", node+1)
		if data := b.lock.members[node].client.nature.dataName(); data != "" {
			name += " (" + data + ")"
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, v.err))
	}
	return fmt.Errorf("%w: of %d servers, %d granted the lock and on %d another owner has it; %w",
		ErrNoQuorum, len(b.votes), b.numberLocked(voteGranted), b.numberLocked(voteRefused), errors.Join(append(errs, ended)...))
}

// giveUp ends the ballot because ctx has ended. A ballot already won stays won.
func (b *ballot) giveUp(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.decidedLocked() {
		b.err = b.noQuorumLocked(fmt.Errorf("%d have not answered: %w", b.numberLocked(voteMissing), netfail.Ended(ctx)))
		close(b.done)
	}
}

// infoFirst sends INFO server before each command and each batch, on the same connection, so that the process that runs the
// commands also answers INFO.
type infoFirst struct {
	conn.Doer
	info *resp.Value
}

// Trace returns the Trace of the Doer.
func (v infoFirst) Trace() *conn.Trace { return conn.TraceOf(v.Doer) }

func (v infoFirst) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	replies, err := v.SendBatch(ctx, []resp.Command{cmd})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], replies[0].Err()
}

func (v infoFirst) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	ask := resp.Cmd("INFO", "server")
	if key, ok := cmds[0].Key(); ok {
		ask = ask.On(key)
	}
	replies, err := v.Doer.SendBatch(ctx, append([]resp.Command{ask}, cmds...))
	if err != nil {
		return nil, err
	}
	*v.info = replies[0]
	return replies[1:], nil
}
