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
	turn       chan struct{} // closed when it has come to the front
	look       chan struct{} // has room for one: another one has got what this one may have too; nil if that cannot be
	state      *ownerState   // of the request
	claim      claim         // which others may change too
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
	looks   int       // of a silent kind, with the last pause
	slept   time.Duration
}

// join puts a new waiter at the end of the line.
func (c *Client) join(key entryKey, state *ownerState) (*waiter, *entry) {
	w := &waiter{turn: make(chan struct{}), state: state}
	if key.kind.others == everybody || state != nil {
		w.look = make(chan struct{}, 1)
	}
	if key.kind.handover != nil {
		w.claim.passed = make(chan passed, 1)
	}
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
			// What is too little for one that wanted many permits may do for the next.
			e.head.woken = e.head.woken || key.kind.others != nobody
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
func (c *Client) wait(ctx context.Context, r *request, left time.Duration) (err error) {
	r.since = time.Now()
	if r.target.kind.queued {
		return c.waitInQueue(ctx, r, left)
	}
	key := r.target.key()
	w, e := c.join(key, r.state)
	defer c.leave(key, w, e)
	defer func() {
		if err != nil {
			c.withdraw(r)
		}
	}()
	h := &e.head // of which it may make use when it stands at the front
	c.rest(ctx, r, &w.claim)
	if done, err := c.stand(ctx, r, h, w); done {
		return err
	}
	if h.poll == 0 {
		if err := c.prepare(h, r, r.target.channel, left); err != nil {
			if c.rouse(ctx, r, h, &w.claim) {
				return nil
			}
			return err
		}
	}
	return c.contend(ctx, r, h, w.look, &w.claim)
}

// stand waits for the turn of w. It reports done if r has got the lock, or failed, before that.
func (c *Client) stand(ctx context.Context, r *request, h *head, w *waiter) (done bool, err error) {
	var again <-chan time.Time // of an Owner, who may have the lock already while those in front wait for that to end
	if r.state != nil && !r.refused {
		again = time.After(c.pace.pollMin)
	}
	for {
		select {
		case <-w.turn:
			return false, nil
		case p := <-w.claim.passed:
			return c.inherit(r, h, &w.claim, p), nil
		case <-w.look:
		case <-again:
		case <-ctx.Done():
			if c.rouse(ctx, r, h, &w.claim) {
				return true, nil
			}
			return true, c.gaveUp(ctx, r)
		case <-c.done:
			if c.rouse(ctx, r, h, &w.claim) {
				return true, nil
			}
			return true, ErrClosed
		}
		granted, _, err := c.attempt(ctx, r)
		r.failure = err
		if granted || err != nil && !passing(err) {
			return true, err
		}
		again = nil
		if err != nil {
			c.renewOwner(r)
			if r.state != nil {
				again = time.After(c.pace.pollMax)
			}
		}
	}
}

// shareGrant has those in line look who may have the lock too now that r has it: everybody of some kinds, of the others those
// whose owner is the same.
func (c *Client) shareGrant(r *request) {
	all := r.target.kind.others == everybody
	if !all && r.state == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.target.key()
	if e := c.entries[key]; e != nil {
		for w := e.first; w != nil; w = w.next {
			if all || w.state == r.state {
				nudge(w.look)
			}
		}
	}
	if r.state == nil {
		return
	}
	for _, p := range r.state.queued {
		if p.key == key && p.look != r.look {
			nudge(p.look)
		}
	}
}

// nudge says to look; saying it twice is saying it once.
func nudge(look chan struct{}) {
	select {
	case look <- struct{}{}:
	default:
	}
}

// waitInQueue stands in the line that the server keeps, with a subscription of its own.
func (c *Client) waitInQueue(ctx context.Context, r *request, left time.Duration) error {
	c.counters.waiting.Add(1)
	defer c.counters.waiting.Add(-1)
	var h head
	err := c.prepare(&h, r, r.target.channel+":"+r.owner, left)
	if err == nil {
		err = c.contend(ctx, r, &h, r.look, nil)
		h.events.Close()
	}
	if err != nil {
		c.withdraw(r)
	}
	return err
}

// prepare makes h ready for the first waiter of a line.
func (c *Client) prepare(h *head, r *request, channel string, left time.Duration) error {
	*h = head{poll: c.pace.pollMin, floor: c.pace.floor}
	if !r.target.kind.silent {
		listen := c.events.Listen
		if c.publishing(r.target) == shardPublish {
			listen = c.events.SListen
		}
		events, err := listen(channel)
		if err != nil {
			return ErrClosed
		}
		h.events = events
	}
	h.busy(&c.pace, r.target, left)
	return nil
}

// contend is the loop of the waiter at the front: sleep until there is a reason to look, and look. There is one when look says
// so. Without a claim the lock cannot be handed over.
func (c *Client) contend(ctx context.Context, r *request, h *head, look <-chan struct{}, own *claim) error {
	timer := time.NewTimer(time.Until(h.next))
	defer timer.Stop()
	attempts, cancel := c.untilClose(ctx)
	defer cancel()
	wakes := wakes{timer: timer.C, look: look}
	if h.events != nil {
		wakes.events = h.events.Events()
	}
	for {
		var over error
		for !h.due() && over == nil {
			timer.Reset(time.Until(h.next))
			var granted bool
			if granted, over = c.doze(ctx, r, h, own, wakes); granted {
				return nil
			}
		}
		if c.rouse(ctx, r, h, own) {
			return nil
		}
		if over != nil {
			return over
		}
		h.drain(&c.pace, wakes.events)
		var granted bool
		var left time.Duration
		granted, left, r.failure = c.attempt(attempts, r)
		switch {
		case granted:
			h.acquired(&c.pace, r)
			return nil
		case r.failure == nil:
			h.woken, r.late = false, time.Time{}
			h.busy(&c.pace, r.target, left)
		case ctx.Err() != nil || c.isClosed():
			h.woken = true // for the next in line: what woke this one has not been made use of
			return c.gaveUp(ctx, r)
		case !passing(r.failure) || h.failed(&c.pace, r, c.cfg.Lease, r.failure):
			return r.failure
		default:
			c.renewOwner(r)
		}
	}
}

// doze waits until there may be a reason to look, or the lock has been handed over to r. The error is that of a wait that is
// over.
func (c *Client) doze(ctx context.Context, r *request, h *head, own *claim, wakes wakes) (granted bool, over error) {
	var handed <-chan passed
	if own != nil {
		c.rest(ctx, r, own)
		handed = own.passed
	}
	select {
	case p := <-handed:
		return c.inherit(r, h, own, p), nil
	case event, ok := <-wakes.events:
		if !ok {
			return false, ErrClosed
		}
		h.heard(&c.pace, event)
	case <-wakes.look:
		h.woken = true
	case <-wakes.timer:
	case <-ctx.Done():
		return false, c.gaveUp(ctx, r)
	case <-c.done:
		return false, ErrClosed
	}
	return false, nil
}

// wakes are what wakes the waiter at the front.
type wakes struct {
	events <-chan pubsub.Event
	look   <-chan struct{}
	timer  <-chan time.Time
}

func (h *head) due() bool { return h.woken || !time.Now().Before(h.next) }

// drain takes the events that are there already, so that one attempt answers to all of them.
func (h *head) drain(p *pace, events <-chan pubsub.Event) {
	for {
		select {
		case event, ok := <-events:
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
func (h *head) busy(p *pace, t *target, left time.Duration) {
	h.failing = time.Time{}
	if h.up {
		h.poll = p.pollMin
	}
	if t.kind.silent {
		h.slept = t.backoff(h.looks, h.slept)
		h.looks++
		h.next = time.Now().Add(h.slept)
		return
	}
	h.next = time.Now().Add(h.pause(p, left))
}

// acquired sets the next look for the waiter behind. Of a lock that one at a time has, nothing has to be looked for before
// the lease ends or is released.
func (h *head) acquired(p *pace, r *request) {
	h.floor = p.floor
	h.looks, h.slept = 0, 0
	h.busy(p, r.target, r.lease)
	h.woken = r.target.kind.others != nobody || r.tells // the next one is to tell that it waits
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

// failed sets the next look after an attempt of r's that came to nothing because of err. It reports true when that has gone
// on for too long.
func (h *head) failed(p *pace, r *request, patience time.Duration, err error) (tooLong bool) {
	at := time.Now()
	h.woken = false
	h.next = at.Add(h.poll - rand.N(h.poll/4))
	h.poll = min(2*h.poll, p.pollMax)
	if errors.Is(err, ErrLost) {
		// An answer, if one that came too late, which is a matter of the lease that r asks for.
		h.failing = time.Time{}
		if r.late.IsZero() {
			r.late = at
		}
		return at.Sub(r.late) >= patience
	}
	if h.failing.IsZero() {
		h.failing = at
	}
	// How long others had had no answer before r came is not its matter.
	return at.Sub(h.failing) >= patience && at.Sub(r.since) >= patience
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
