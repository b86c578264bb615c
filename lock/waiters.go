package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/pubsub"
)

// pace is how often a waiter looks by itself, without having been woken.
type pace struct {
	// floor and ceiling bound the time to the next look: however little the holder's lease has left, a waiter does not
	// spin, and however much, it looks again before long, in case a wake-up was lost by the server.
	floor, ceiling time.Duration
	// pollMin and pollMax bound the growing pauses between looks while there is no subscription or no server.
	pollMin, pollMax time.Duration
	// slack is how long after the end of the holder's lease to look, for the key to have expired.
	slack time.Duration
	// ignoreTTL makes waiters rely on being woken alone, so that a test can show that no wake-up gets lost.
	ignoreTTL bool
}

var defaultPace = pace{
	floor:   10 * time.Millisecond,
	ceiling: 10 * time.Second,
	pollMin: 50 * time.Millisecond,
	pollMax: time.Second,
	slack:   2 * time.Millisecond,
}

// wakeQueue is how many events a lock's subscription keeps. One would do, since all say the same: look.
const wakeQueue = 4

// waiter is a call of Lock that stands in line. Client.mu guards the links.
type waiter struct {
	since      time.Time     // constant
	late       time.Time     // since when all it was granted came too late; owned by the call
	turn       chan struct{} // closed when it has come to the front
	next, prev *waiter
}

// head is what the waiter at the front knows. It goes from each to the next one with the turn.
type head struct {
	events  *pubsub.Subscription
	up      bool // the subscription is in place: whatever is published wakes
	woken   bool // there was an event that no attempt has followed yet
	next    time.Time
	floor   time.Duration
	poll    time.Duration
	failing time.Time // since when no attempt has had an answer
}

// join puts a new waiter at the end of the line.
func (c *Client) join(key entryKey) (*waiter, *entry) {
	w := &waiter{since: time.Now(), turn: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entryLocked(key)
	if w.prev = e.last; w.prev != nil {
		w.prev.next = w
	} else {
		e.first = w
		close(w.turn)
	}
	e.last = w
	c.counters.waiting.Add(1)
	return w, e
}

// leave takes w out of the line. If it stood at the front, the turn goes to the next one, and the subscription with the
// last one.
func (c *Client) leave(key entryKey, w *waiter, e *entry) {
	c.counters.waiting.Add(-1)
	c.mu.Lock()
	var unused *pubsub.Subscription
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		e.last = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		e.first = w.next
		if e.first != nil {
			close(e.first.turn)
		} else {
			unused = e.head.events
			e.head = head{}
		}
	}
	c.dropLocked(key, e)
	c.mu.Unlock()
	if unused != nil {
		unused.Close()
	}
}

// wait stands in line for the lock and acquires it when it is free. left is how long the holder's lease lasts, as far as is
// known.
func (c *Client) wait(ctx context.Context, r *request, left time.Duration) (*Lease, error) {
	key := r.target.key()
	w, e := c.join(key)
	defer c.leave(key, w, e)
	select {
	case <-w.turn:
	case <-ctx.Done():
		return nil, c.gaveUp(ctx, r, nil)
	case <-c.done:
		return nil, ErrClosed
	}
	h := &e.head
	if h.events == nil {
		events, err := c.events.Listen(r.target.channel)
		if err != nil {
			return nil, ErrClosed
		}
		*h = head{events: events, poll: c.pace.pollMin, floor: c.pace.floor}
		h.busy(&c.pace, left)
	}
	return c.contend(ctx, r, h, w)
}

// contend is the loop of the waiter at the front: sleep until there is a reason to look, and look.
func (c *Client) contend(ctx context.Context, r *request, h *head, w *waiter) (*Lease, error) {
	timer := time.NewTimer(time.Until(h.next))
	defer timer.Stop()
	attempts, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var last error
	for {
		if !h.due() {
			timer.Reset(time.Until(h.next))
			select {
			case event, ok := <-h.events.Events():
				if !ok {
					return nil, ErrClosed
				}
				h.heard(&c.pace, event)
			case <-timer.C:
			case <-ctx.Done():
				return nil, c.gaveUp(ctx, r, last)
			case <-c.done:
				return nil, ErrClosed
			}
			continue
		}
		h.drain(&c.pace)
		var lease *Lease
		var left time.Duration
		lease, left, last = c.attempt(attempts, r)
		switch {
		case lease != nil:
			h.acquired(&c.pace, lease.term)
			return lease, nil
		case last == nil:
			h.woken, w.late = false, time.Time{}
			h.busy(&c.pace, left)
		case ctx.Err() != nil || c.isClosed():
			h.woken = true // for the next in line: what woke this one has not been made use of
			return nil, c.gaveUp(ctx, r, last)
		case !passing(last) || h.failed(&c.pace, w, c.cfg.Lease, last):
			return nil, last
		default:
			c.renewOwner(r)
		}
	}
}

func (h *head) due() bool { return h.woken || !time.Now().Before(h.next) }

// drain takes the events that are there already, so that one attempt answers to all of them.
func (h *head) drain(p *pace) {
	for {
		select {
		case event, ok := <-h.events.Events():
			if !ok {
				return
			}
			h.heard(p, event)
		default:
			return
		}
	}
}

// heard takes note of an event.
func (h *head) heard(p *pace, event pubsub.Event) {
	switch event.Kind {
	case pubsub.Interrupted:
		h.up = false
		h.poll = p.pollMin
		h.next = earlier(h.next, time.Now().Add(h.poll))
	case pubsub.Resumed:
		h.up, h.woken = true, true
	default:
		h.woken = true
	}
}

// busy sets the next look after an attempt that found the lock taken for left.
func (h *head) busy(p *pace, left time.Duration) {
	h.failing = time.Time{}
	if h.up {
		h.poll = p.pollMin
	}
	h.next = time.Now().Add(h.pause(p, left))
}

// acquired sets the next look for the waiter behind: nothing has to be looked for before the lease ends or is released.
func (h *head) acquired(p *pace, term time.Duration) {
	h.woken = false
	h.floor = p.floor
	h.busy(p, term)
}

func (h *head) pause(p *pace, left time.Duration) time.Duration {
	d := p.ceiling - rand.N(p.ceiling/10)
	switch {
	case p.ignoreTTL, left == noTTL:
	case left <= h.floor:
		d = h.floor
		h.floor = min(2*h.floor, p.pollMax)
	default:
		h.floor = p.floor
		d = min(d, min(left, d)+p.slack)
	}
	if !h.up {
		d = min(d, h.poll-rand.N(h.poll/4))
		h.poll = min(2*h.poll, p.pollMax)
	}
	return d
}

// failed sets the next look after an attempt of w's that came to nothing because of err. It reports true when that has gone
// on for too long.
func (h *head) failed(p *pace, w *waiter, patience time.Duration, err error) (tooLong bool) {
	at := time.Now()
	h.woken = false
	h.next = at.Add(h.poll - rand.N(h.poll/4))
	h.poll = min(2*h.poll, p.pollMax)
	if errors.Is(err, ErrLost) {
		// An answer, if one that came too late, which is a matter of the lease that w asks for.
		h.failing = time.Time{}
		if w.late.IsZero() {
			w.late = at
		}
		return at.Sub(w.late) >= patience
	}
	if h.failing.IsZero() {
		h.failing = at
	}
	// How long others had had no answer before w came is not its matter.
	return at.Sub(h.failing) >= patience && at.Sub(w.since) >= patience
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
