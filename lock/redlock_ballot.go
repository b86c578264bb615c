package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	mu      sync.Mutex // guards the following
	decided bool
	votes   []vote        // by node; constant after the decision
	done    chan struct{} // closed when decided
	whole   *Lease        // the lease, if won
	granted []*Lease
	errs    []error
	fatal   error // an error in errs that would be the same at a repeat
	err     error // the reason, if lost
}

// vote is the answer of a server before the decision.
type vote struct {
	result voteResult
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
		return nil, nil, new(waited).end(ctx, r.nodes[0].client, e)
	}
	if err := r.identify(ctx, c.timeout); err != nil {
		return nil, nil, err
	}
	c.traced.asked()
	b := &ballot{lock: r, call: c, ended: ended, start: time.Now(), done: make(chan struct{}), votes: make([]vote, len(r.nodes))}
	if r.nodes[0].target.kind == plainKind.Get() {
		b.owner = plainOwner(0)
	}
	for _, h := range r.nodes {
		if !h.client.background(func() { b.vote(ctx, h) }) {
			b.count(h, nil, 0, ErrClosed)
		}
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		b.giveUp(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r.noteAnswer(ctx, b.err)
	return b.whole, b.votes, b.err
}

// noteAnswer records for the callers behind whether a ballot with the outcome err has had an answer. An end of ctx says nothing about the servers.
func (r *Redlock) noteAnswer(ctx context.Context, err error) {
	switch {
	case err == nil, errors.Is(err, ErrNotAcquired):
		r.gate().Note(r.key(), nil)
	case ctx.Err() == nil:
		r.gate().Note(r.key(), err)
	}
}

// vote asks one server. Its time is limited by the call's timeout and by Close of the node's client, not by the caller's context: an answer
// after the decision may still join the lease.
func (b *ballot) vote(ctx context.Context, h *Handle) {
	c := h.client
	ctx, cancel := context.WithTimeout(c.untilCloseOnly(ctx), b.call.timeout)
	defer cancel()
	r, err := h.request(b.call.opts)
	if err != nil {
		b.count(h, nil, 0, err)
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
	switch {
	case err == nil && quarantine >= 0:
		err = c.identity.CheckVote(ctx, info, start, quarantine)
	case err == nil, errors.Is(err, ErrNotAcquired):
		c.identity.Note(info, start)
	}
	b.count(h, r.got, left, err)
	if err == nil && b.joinIfWon(h, r.got) {
		return
	}
	if r.got != nil {
		_ = r.got.unlock(ctx, true) // ignores the end of ctx; the rest is done in the background
	}
}

// joinIfWon waits for the decision and reports whether the lease, if won, has the part l. A vote whose client is closed
// before the decision does not count.
func (b *ballot) joinIfWon(h *Handle, l *Lease) bool {
	select {
	case <-b.done:
	case <-h.client.life.Done():
	}
	b.mu.Lock()
	if !b.decided {
		b.granted = slices.DeleteFunc(b.granted, func(other *Lease) bool { return other == l })
		b.votes[slices.Index(b.lock.nodes, h)].result = voteFailed
		b.failedLocked(h, ErrClosed)
		b.decideLocked()
		b.mu.Unlock()
		return false
	}
	whole, counted := b.whole, slices.Contains(b.granted, l)
	b.mu.Unlock()
	return whole != nil && (counted || whole.group.join(l))
}

// count records the answer of one server: the lease l, or err, for a refusal with the time until the next reason to ask.
func (b *ballot) count(h *Handle, l *Lease, again time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decided {
		return
	}
	v := &b.votes[slices.Index(b.lock.nodes, h)]
	v.took = time.Since(b.start)
	switch {
	case err == nil:
		v.result = voteGranted
		b.granted = append(b.granted, l)
	case errors.Is(err, ErrNotAcquired):
		if v.result = voteRefused; again != noTTL {
			v.ends = b.start.Add(v.took + max(again, h.client.pace.Floor))
		}
	default:
		v.result = voteFailed
		b.failedLocked(h, err)
		if errors.Is(err, ErrWrongType) || errors.Is(err, ErrInvalid) {
			b.fatal = err
		}
	}
	b.decideLocked()
}

// failedLocked records the error of a node, named by its number, and by its server's Target if known.
func (b *ballot) failedLocked(h *Handle, err error) {
	name := fmt.Sprintf("node %d", slices.Index(b.lock.nodes, h)+1)
	if data := h.client.nature.dataName(); data != "" {
		name += " (" + data + ")"
	}
	b.errs = append(b.errs, fmt.Errorf("%s: %w", name, err))
}

// decideLocked decides the ballot if missing answers cannot change the result.
func (b *ballot) decideLocked() {
	quorum, missing := b.lock.quorum, b.numberLocked(voteMissing)
	switch {
	case len(b.granted) >= quorum:
		if err := b.checkMajorityLocked(); err != nil {
			b.loseLocked(err)
			return
		}
		b.whole = newWhole(quorum, false, b.granted, b.end, b.lock.cfg.Quarantine)
		b.decided = true
		close(b.done)
	case len(b.granted)+missing < quorum && (b.fatal != nil || b.takenLocked(0) || !b.takenLocked(missing)):
		b.loseLocked(b.whyLostLocked())
	}
}

// end ends the lease. awaited: when the lock was released, other clients were waiting.
func (b *ballot) end(awaited bool) {
	if awaited {
		b.lock.streaks().Longer(b.lock.key(), b.start, unit(b.votes, b.lock.quorum))
	} else {
		b.lock.streaks().End(b.lock.key())
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
	return b.numberLocked(voteRefused)+more > len(b.lock.nodes)-b.lock.quorum
}

// checkMajorityLocked returns an error if two servers of the majority are one, or if too little of the lease is left.
func (b *ballot) checkMajorityLocked() error {
	if err := b.lock.distinct(); err != nil {
		return err
	}
	term := b.call.term
	if most := b.granted[0].limits.atMost; most > 0 {
		term = min(term, most)
	}
	atLeast := time.Duration(max(0, b.lock.cfg.MinValidity) * float64(term))
	if time.Until(validUntil(b.granted, b.lock.quorum)) > atLeast {
		return nil
	}
	first := b.lock.nodes[0]
	return first.target.expiredGrant(first.client)
}

// whyLostLocked returns the reason for the lack of a majority.
func (b *ballot) whyLostLocked() error {
	switch {
	case b.fatal != nil:
		return b.fatal
	case b.takenLocked(0):
		return b.lock.refusal()
	}
	return b.noQuorumLocked()
}

// noQuorumLocked returns an error with the number of grants and refusals, and the errors of the other servers.
func (b *ballot) noQuorumLocked() error {
	return fmt.Errorf("%w: of %d servers, %d granted the lock and on %d another owner has it; %w",
		ErrNoQuorum, len(b.lock.nodes), len(b.granted), b.numberLocked(voteRefused), errors.Join(b.errs...))
}

func (b *ballot) loseLocked(err error) {
	b.decided, b.err = true, err
	close(b.done)
}

// giveUp ends the ballot because ctx has ended. A ballot already won stays won.
func (b *ballot) giveUp(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.decided {
		b.errs = append(b.errs, fmt.Errorf("%d have not answered: %w", b.numberLocked(voteMissing), netfail.Ended(ctx)))
		b.loseLocked(b.noQuorumLocked())
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
	if err == nil {
		err = replies[0].Err()
	}
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], nil
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
