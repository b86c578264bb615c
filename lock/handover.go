package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// A lock that a caller of the same process waits for is handed over to the first in line by one script, in the place of a
// release, a message and an acquire. As other processes are not told of that, it happens Config.HandOvers times in a row at
// most, and for no longer than a third of a lease.

// claim is how a waiter that sleeps and a holder who gives the lock back agree on what each of them does.
type claim struct {
	state  atomic.Uint32
	wants  request     // what the waiter would ask for; it does not change but while the state is awake
	passed chan passed // has room for one; the outcome
}

// The states of a claim.
const (
	awake     uint32 = iota // the waiter does something itself, or may not be handed the lock
	asleep                  // the lock may be handed over to the waiter
	claimed                 // that is under way, and its outcome will come
	abandoned               // the same, but the waiter has left
)

// passed is the outcome of a hand-over for the waiter.
type passed struct {
	granted bool
	unknown bool // there was no answer, or none that means anything
	start   instant
	token   int64
}

// doze waits until there is a reason to look, or the lock has been handed over to r. The error is that of a wait that is over.
func (c *Client) doze(ctx context.Context, r *request, h *head, own *claim, wakes wakes) (granted bool, err error) {
	var handed <-chan passed
	if own != nil && c.inheritable(r) {
		handed = own.passed
		own.wants = *r
		own.state.Store(asleep)
	}
	select {
	case p := <-handed:
		own.state.Store(awake)
		return c.inherit(r, h, &p), nil
	case event, ok := <-wakes.events:
		if ok {
			h.heard(&c.pace, event)
		} else {
			err = ErrClosed
		}
	case <-wakes.look:
		h.woken = true
	case <-wakes.timer:
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.done:
		err = ErrClosed
	}
	if handed != nil && !own.state.CompareAndSwap(asleep, awake) {
		if p, ok := c.awaitHandOver(ctx, own); ok && c.inherit(r, h, &p) {
			return true, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return false, c.gaveUp(ctx, r)
	case c.isClosed():
		return false, ErrClosed
	}
	return false, err
}

// awaitHandOver waits for the outcome of a hand-over that is under way. ok is false if the waiter leaves before it has come.
func (c *Client) awaitHandOver(ctx context.Context, own *claim) (p passed, ok bool) {
	select {
	case p = <-own.passed:
	case <-ctx.Done():
		if own.state.CompareAndSwap(claimed, abandoned) {
			return p, false
		}
		p = <-own.passed
	case <-c.done:
		if own.state.CompareAndSwap(claimed, abandoned) {
			return p, false
		}
		p = <-own.passed
	}
	own.state.Store(awake)
	return p, true
}

// wakes are what wakes a waiter.
type wakes struct {
	events <-chan pubsub.Event
	look   <-chan struct{}
	timer  <-chan time.Time
}

// inheritable reports whether r may be granted by a hand-over.
func (c *Client) inheritable(r *request) bool {
	return r.target.kind.handover != nil && r.state == nil && r.via == nil && !c.acks && c.cfg.HandOvers > 0
}

// inherit makes a lease of a hand-over, and reports whether there is one. If not there is a reason to look.
func (c *Client) inherit(r *request, h *head, p *passed) (granted bool) {
	switch {
	case p.granted:
		r.asked, r.inherited = true, true
		granted, _, r.failure = c.granted(r, p.start, 1, p.token)
		r.inherited = false
	case p.unknown:
		c.undo(r, p.start, true)
		c.renewOwner(r)
	}
	h.woken = !granted
	return granted
}

// heir claims the first waiter in line, if the lock of l may be handed over to it, and returns nil if not.
func (c *Client) heir(l *Lease) *claim {
	if l.target.kind.handover == nil || l.state != nil || l.repeated || l.whole.Load() != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[l.target.key()]
	if e == nil || e.first == nil || e.handed >= c.cfg.HandOvers || time.Since(e.since) > l.term/3 {
		return nil
	}
	if !e.first.claim.state.CompareAndSwap(asleep, claimed) {
		return nil
	}
	e.handed++
	return &e.first.claim
}

// handOver gives the lock to a waiter that has been claimed, and tells it. It returns what release would.
func (l *Lease) handOver(ctx context.Context, heir *claim) (resp.Value, error) {
	c, t, next := l.client, l.target, &heir.wants
	p := passed{start: c.now()}
	args := c.args(next, next.lease.Milliseconds(), l.owner, next.owner, latchLife.Milliseconds())
	v, err := t.kind.handover.Run(ctx, c.server, t.with(l.latch), args...)
	switch {
	case err != nil:
		p.unknown = uncertain(err)
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
	if heir.state.CompareAndSwap(claimed, awake) {
		heir.passed <- p
	} else if p.granted || p.unknown {
		c.undo(next, p.start, p.unknown)
	}
	return v, err
}

// giveBack releases the lock, or hands it over.
func (l *Lease) giveBack(ctx context.Context) (resp.Value, error) {
	if heir := l.client.heir(l); heir != nil {
		if v, err := l.handOver(ctx, heir); err == nil || uncertain(err) {
			return v, err
		}
	}
	return l.runRelease(ctx)
}
