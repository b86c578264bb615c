package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// ballot is one question to all servers of a Redlock. A ballot is decided as soon as missing answers cannot change
// the result. A later grant joins the lease while the lease is held, and is otherwise released.
type ballot struct {
	lock  *Redlock
	ask   candidacy
	owner string // on every server; "" if each client has its own
	ended func() // for the lease

	mu      sync.Mutex // guards the following
	decided bool
	done    chan struct{} // closed when decided
	whole   *Lease        // the lease, if won
	granted []*Lease
	missing int // number of missing answers
	refused int // number of servers with another owner of the lock
	errs    []error
	fatal   error // an error in errs that would be the same at a repeat
	err     error // the reason, if lost
}

// ask asks all servers once, and calls ended at the end of the returned lease. split reports that other candidates
// got some of the votes.
func (r *Redlock) ask(ctx context.Context, c candidacy, ended func()) (lease *Lease, split bool, err error) {
	if ctx.Err() != nil {
		return nil, false, fmt.Errorf("lock: the servers were not asked: %w", ctx.Err())
	}
	if err := r.identify(ctx, c.timeout); err != nil {
		return nil, false, err
	}
	b := &ballot{lock: r, ask: c, ended: ended, done: make(chan struct{}), missing: len(r.nodes)}
	if r.nodes[0].target.kind == plainKind.get() {
		b.owner = plainOwner(nil, request{})
	}
	for _, h := range r.nodes {
		if !h.client.background(func() { b.vote(h) }) {
			b.count(h, nil, ErrClosed)
		}
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		b.giveUp(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole, b.whole == nil && len(b.granted) > 0, b.err
}

// vote asks one server, within the limits of the client and the candidacy, independent of the caller's context.
func (b *ballot) vote(h *Handle) {
	c := h.client
	ctx, cancel := context.WithTimeout(c.life, b.ask.timeout)
	defer cancel()
	r, err := c.newRequest(h.target, b.ask.opts)
	if err != nil {
		b.count(h, nil, err)
		return
	}
	if b.owner != "" {
		r.owner = b.owner
	}
	quarantine := b.lock.cfg.Quarantine
	var info resp.Value
	if quarantine >= 0 || !c.identity.known() {
		r.via = func(d conn.Doer) conn.Doer { return vouching{d, &info} }
	}
	start := c.now()
	err = c.tryObtain(ctx, &r)
	switch {
	case err == nil && quarantine >= 0:
		err = c.vouch(ctx, info, start, quarantine)
	case err == nil, errors.Is(err, ErrNotAcquired):
		c.identity.note(info, start)
	}
	if err == nil {
		b.count(h, r.got, nil)
		return
	}
	b.count(h, nil, err)
	if r.got != nil {
		_ = r.got.Unlock(ctx) // the rest is done in the background
	}
}

// count records the answer of one server.
func (b *ballot) count(h *Handle, l *Lease, err error) {
	b.mu.Lock()
	if b.decided {
		whole := b.whole
		b.mu.Unlock()
		if l != nil && (whole == nil || !whole.group.join(l)) {
			_ = l.Unlock(context.Background()) // the rest is done in the background
		}
		return
	}
	b.missing--
	switch {
	case err == nil:
		b.granted = append(b.granted, l)
	case errors.Is(err, ErrNotAcquired):
		b.refused++
	default:
		b.errs = append(b.errs, fmt.Errorf("%s: %w", b.lock.nameOf(h), err))
		if errors.Is(err, ErrWrongType) || errors.Is(err, ErrInvalid) {
			b.fatal = err
		}
	}
	back := b.decideLocked()
	b.mu.Unlock()
	b.giveBack(back)
}

// decideLocked decides the ballot if missing answers cannot change the result, and returns the leases to release.
func (b *ballot) decideLocked() []*Lease {
	quorum := b.lock.quorum
	switch {
	case len(b.granted) >= quorum:
		if err := b.worthLocked(); err != nil {
			return b.loseLocked(err)
		}
		b.whole = newWhole(quorum, false, b.granted, b.ended)
		b.decided = true
		close(b.done)
	case len(b.granted)+b.missing < quorum && (b.fatal != nil || b.takenLocked(0) || !b.takenLocked(b.missing)):
		return b.loseLocked(b.verdictLocked())
	}
	return nil
}

// takenLocked reports whether other owners have the lock on so many servers, plus more, that the remaining servers
// are no majority. Only then is the lock refused, whatever the unreachable servers would have answered.
func (b *ballot) takenLocked(more int) bool {
	return b.refused+more > len(b.lock.nodes)-b.lock.quorum
}

// worthLocked returns an error if the majority is not one of distinct servers, or if too little of the lease is left.
func (b *ballot) worthLocked() error {
	if err := b.lock.distinct(); err != nil {
		return err
	}
	atLeast := time.Duration(max(0, b.lock.cfg.MinValidity) * float64(b.ask.term))
	if time.Until(validUntil(b.granted, b.lock.quorum)) > atLeast {
		return nil
	}
	return &LostError{Name: b.lock.nodes[0].target.name, Reason: Expired}
}

// verdictLocked returns the reason for the lack of a majority.
func (b *ballot) verdictLocked() error {
	switch {
	case b.fatal != nil:
		return b.fatal
	case b.takenLocked(0):
		return ErrNotAcquired
	}
	return b.noQuorumLocked()
}

// noQuorumLocked returns an error with the number of grants and refusals, and the errors of the other servers.
func (b *ballot) noQuorumLocked() error {
	return fmt.Errorf("%w: of %d, %d granted the lock, on %d it is somebody else's; %w",
		ErrNoQuorum, len(b.lock.nodes), len(b.granted), b.refused, errors.Join(b.errs...))
}

func (b *ballot) loseLocked(err error) []*Lease {
	b.decided, b.err = true, err
	close(b.done)
	return b.granted
}

// giveUp ends the ballot because ctx has ended. A ballot already won stays won.
func (b *ballot) giveUp(ctx context.Context) {
	b.mu.Lock()
	var back []*Lease
	if !b.decided {
		b.errs = append(b.errs, fmt.Errorf("%d have not answered: %w", b.missing, ended(ctx)))
		back = b.loseLocked(b.noQuorumLocked())
	}
	b.mu.Unlock()
	b.giveBack(back)
}

// giveBack releases useless grants in the background.
func (b *ballot) giveBack(leases []*Lease) {
	unlockAll(context.Background(), leases)
}

// vouching sends INFO server before each command, on the same connection, so that the process that runs the command
// also answers INFO.
type vouching struct {
	conn.Doer
	info *resp.Value
}

func (v vouching) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	ask := resp.Cmd("INFO", "server")
	if key, ok := cmd.Key(); ok {
		ask = ask.On(key)
	}
	replies, err := v.Doer.SendBatch(ctx, []resp.Command{ask, cmd})
	if err != nil {
		return resp.Value{}, err
	}
	*v.info = replies[0]
	if err := replies[1].Err(); err != nil {
		return resp.Value{}, err
	}
	return replies[1], nil
}
