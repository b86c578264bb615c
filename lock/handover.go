package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// A lock that a caller of the same process waits for is handed over to the first in line by one script, in the place of a
// release, a message and an acquire. As other processes are not told of that, it happens for no longer than Config.HandOverFor and
// a third of a lease: where a lock is held for long there is little to gain. Where others listen, or where that is not known, it
// happens Config.HandOvers times in a row at most.

// claim is how a waiter and a holder who gives the lock back agree on what each of them does.
type claim struct {
	state   atomic.Uint32
	outcome *passed         // while told
	over    <-chan struct{} // closed when the waiter does not want it any more; changes, as its request does, only while awake
}

// The states of a claim.
const (
	awake     uint32 = iota // the waiter does something itself, or may not be handed the lock
	resting                 // the lock may be handed over to the waiter
	claimed                 // that is under way, and its outcome will come
	told                    // the outcome is there
	abandoned               // it may come yet, but the waiter has left
)

// passed is the outcome of a hand-over for the waiter.
type passed struct {
	granted bool
	owner   string // of the hold, which goes on; "": the waiter's own
	unknown bool   // there was no answer, or none that means anything
	start   instant
	token   int64
	latch   string // what undoes it leaves this key
	last    int64  // until when it may take effect
	series  series
}

// series are hand-overs in a row.
type series struct {
	length int
	since  time.Time // when the lock was acquired before them
}

// next returns the series that is longer by one.
func (s series) next() series { return series{s.length + 1, s.since} }

// mayGoOn reports whether the series is not too long: alone says that nobody but this client waits for the lock.
func (s series) mayGoOn(cfg *Config, lease time.Duration, alone bool) bool {
	return (alone || s.length < cfg.HandOvers) && time.Since(s.since) <= min(cfg.HandOverFor, lease/3)
}

// turn is how this process lets others have the lock when a series has ended. Its next waiter might be the fastest to hear of that
// each time. It steps back for a moment, and where nobody made use of that, less and less often.
type turn struct {
	back time.Time // nobody here looks before; zero: whenever there is a reason
	idle int       // how many series are to end without that since the last one that was of no use
	skip int       // how many of these are to come
}

const (
	// stepBack is how long others have to be first.
	stepBack = 300 * time.Microsecond
	maxIdle  = 15
)

// endSeries is for before the release that ends the series of l, if there has been one.
func (c *Client) endSeries(l *Lease) {
	if l.series.length == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[l.target.key()]; e != nil && e.first != nil && !e.alone {
		if e.turn.skip--; e.turn.skip < 0 {
			e.turn.back = time.Now().Add(stepBack)
		}
	}
}

// looked takes note of how the first look after stepping back came out.
func (w *waiter) looked(granted bool) {
	if w.entry == nil {
		return
	}
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	switch t := &w.entry.turn; {
	case t.back.IsZero():
	case granted:
		idle := min(2*t.idle+1, maxIdle)
		*t = turn{idle: idle, skip: idle}
	default:
		*t = turn{}
	}
}

// lookAt is when to look next: in the past if there is a reason already.
func (w *waiter) lookAt() time.Time {
	at := w.head.next
	if w.head.woken && !w.head.short {
		at = time.Time{}
	}
	if w.entry == nil {
		return at
	}
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	if back := w.entry.turn.back; at.Before(back) {
		return back
	}
	return at
}

// told takes note of how many have listened to a release. If the server has no other to listen at, one is this client.
func (c *Client) told(t *target, listeners int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[t.key()]; e != nil {
		e.alone = listeners == 1 && c.nature.spread == nil && c.nature.failover == nil
	}
}

// rest lets the lock be handed over to w from now on, if it is one that may get it so.
func (w *waiter) rest(ctx context.Context) {
	own, c := &w.claim, w.client
	k := w.target.kind
	if k.handover == nil || w.request.state != nil || w.via != nil || c.cfg.HandOvers < 0 || own.state.Load() != awake {
		return
	}
	own.over = ctx.Done()
	own.state.Store(resting)
}

// rouse ends what rest began, and reports whether the lock was handed over to w before that. What is under way is waited for,
// unless ctx or the client has ended: then it will be taken back, and until then its request must not change.
func (w *waiter) rouse(ctx context.Context) (granted bool) {
	own := &w.claim
	if own.state.Load() == awake || own.state.CompareAndSwap(resting, awake) {
		return false
	}
	for own.state.Load() != told {
		select {
		case <-w.wake:
			continue
		case <-ctx.Done():
		case <-w.client.done:
		}
		if own.state.CompareAndSwap(claimed, abandoned) {
			return false
		}
	}
	return w.inherit()
}

// inherit makes a lease of a hand-over, and reports whether there is one. If not there is a reason to look.
func (w *waiter) inherit() (granted bool) {
	c, r, h, p := w.client, &w.request, w.head, w.claim.outcome
	w.claim.state.Store(awake)
	switch {
	case p.granted:
		if p.owner != "" {
			r.owner = p.owner
		}
		r.asked, r.series, r.latch, r.last = true, p.series, p.latch, p.last
		granted, _, r.failure = c.granted(r, p.start, 1, p.token)
		r.series = series{}
		if !granted { // it came too late, and is undone
			c.renewOwner(r)
		}
	case p.unknown:
		r.latch, r.last = p.latch, p.last
		c.undo(r, p.start, true)
		c.renewOwner(r)
	}
	if h.woken = !granted; granted && h.poll > 0 {
		h.acquired(&c.pace, r)
	}
	return granted
}

// heir claims the first waiter in line, if the lock of l may be handed over to it and its request suits, and returns nil if not.
func (c *Client) heir(l *Lease, suits func(next *request) bool) *waiter {
	if l.target.kind.handover == nil || l.state != nil || l.repeated || l.whole.Load() != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[l.target.key()]
	if e == nil || e.first == nil || !l.series.mayGoOn(&c.cfg, l.term, e.alone) {
		return nil
	}
	first := &e.first.claim
	if !suits(&e.first.request) || !first.state.CompareAndSwap(resting, claimed) {
		return nil
	}
	select {
	case <-first.over:
		e.first.tell(new(passed))
		return nil
	default:
	}
	return e.first
}

// handOver gives the lock to a waiter that has been claimed, and tells it. It returns what release would.
func (l *Lease) handOver(ctx context.Context, heir *waiter) (resp.Value, error) {
	c, t, next := l.client, l.target, &heir.request
	p := &passed{start: c.now(), latch: newLatch(t), last: c.last(t.name)}
	p.series = l.series.next()
	args := append(c.args(next, next.lease.Milliseconds(), l.owner, next.owner, latchLife.Milliseconds()), p.last)
	v, err := t.kind.handover.Run(ctx, c.server, append(t.passing(l.latch), p.latch), args...)
	switch {
	case err != nil:
		p.unknown = uncertain(err)
	case c.late(t.name, v):
		err = errLate
	case v.Kind() == resp.Array:
		if p.token, err = v.At(1).Int(); err != nil {
			err = fmt.Errorf("lock: unexpected reply to handover: %w", err)
		}
		v = v.At(0)
		fallthrough
	default:
		count, failed := v.Int()
		p.granted = err == nil && failed == nil && count == 1
		p.unknown = !p.granted && !v.IsNull()
	}
	if !heir.tell(p) && (p.granted || p.unknown) {
		undone := *next
		undone.latch, undone.last = p.latch, p.last
		c.undo(&undone, p.start, p.unknown)
	}
	return v, err
}

// tell tells a waiter who has been claimed how that has come out. It reports false if that has left.
func (w *waiter) tell(p *passed) bool {
	w.claim.outcome = p
	if !w.claim.state.CompareAndSwap(claimed, told) {
		return false
	}
	nudge(w.wake)
	return true
}

// giveBack releases the lock, or hands it over.
func (l *Lease) giveBack(ctx context.Context) (resp.Value, error) {
	if heir := l.client.heir(l, func(*request) bool { return !l.client.acks }); heir != nil {
		if v, err := l.handOver(ctx, heir); err == nil || uncertain(err) {
			return v, err
		}
	}
	l.client.endSeries(l)
	return l.runRelease(ctx)
}
