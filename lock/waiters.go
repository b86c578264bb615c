package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// pace has the times of a waiter's looks without a wake-up.
type pace struct {
	// floor and ceiling bound the time to the next look. floor keeps a waiter from spinning near the end of the holder's
	// lease; ceiling covers a wake-up lost by the server.
	floor, ceiling time.Duration
	// pollMin and pollMax bound the growing pauses between looks while there is no subscription or no server.
	pollMin, pollMax time.Duration
	// slack is added to the holder's remaining lease, so that the key has expired at the next look.
	slack time.Duration
	// ignoreTTL makes waiters rely on wake-ups alone, for tests of lost wake-ups.
	ignoreTTL bool
}

var defaultPace = pace{
	floor:   10 * time.Millisecond,
	ceiling: 10 * time.Second,
	pollMin: 50 * time.Millisecond,
	pollMax: time.Second,
	slack:   2 * time.Millisecond,
}

// waiter is a waiting call of Lock. It stands in the line of its process, or by itself if the server keeps the line.
//
// The caller sleeps in awaitFront until the waiter is at the front, and then in contend.
type waiter struct {
	request // a holder who has claimed the waiter reads it

	// Constant.
	left  time.Duration // remaining lease of the holder at the start of the wait
	entry *entry        // entry of the line; nil if the server keeps the line
	wake  chan struct{} // buffered, 1: signalled after a change of front, claim or head

	front atomic.Bool // the waiter stands at the front
	claim claim       // may be changed by others too
	head  *head       // owned by the waiter at the front
	timer *time.Timer // for the next look; nil before the waiter is at the front

	questions questions // owned by the waiter at the front

	counted bool // in Client.queued; constant after join

	next, prev *waiter // guarded by table.mu
}

// head is the state of the waiter at the front. It passes from waiter to waiter with the turn.
type head struct {
	events  *pubsub.Watch
	up      bool // the subscription is in place
	woken   bool // an event has arrived since the last attempt
	short   bool // the last attempt was not acknowledged; its undo wakes other waiters in the same situation
	next    time.Time
	floor   time.Duration
	poll    time.Duration
	failing time.Time     // start of the first attempt of a series without an answer
	failure error         // of the last attempt in the series
	looks   int           // number of looks at a silent kind
	slept   time.Duration // last pause of a silent kind
}

// newWaiter puts a copy of r in line. left is the holder's remaining lease, if known. The caller must call wait.
func (r *request) newWaiter(ctx context.Context, left time.Duration) *waiter {
	c := r.client
	c.counters.waiting.Add(1)
	w := &waiter{request: *r, left: left, wake: make(chan struct{}, 1)}
	w.since = time.Now()
	k := r.target.kind
	if k.queued {
		w.head = new(head)
		w.front.Store(true)
		return w
	}
	if k.others == everybody || r.state != nil {
		w.look = make(chan struct{}, 1)
	}
	w.join()
	c.quit(w.target, w.place) // the line of this process has another one
	w.place = nil
	w.offer(ctx)
	return w
}

// join puts w at the end of the line.
func (w *waiter) join() {
	c := w.client
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	e := c.table.entryLocked(w.target.key())
	w.entry, w.head = e, &e.head
	if w.counted = !c.table.closed; w.counted {
		c.queued.Add(1)
	}
	if e.place == nil {
		e.place, w.place = w.place, nil
	}
	if w.prev = e.last; w.prev != nil {
		w.prev.next = w
	} else {
		e.first = w
		w.front.Store(true)
	}
	e.last = w
}

// leave removes w from the line. From the front the turn passes to the next waiter. After the last waiter the subscription is
// parked or closed.
func (w *waiter) leave() {
	c := w.client
	c.table.mu.Lock()
	var unused *pubsub.Watch
	var quit any
	e, parked := w.entry, false
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
			// The next waiter may want fewer permits than w.
			e.head.woken = e.head.woken || w.target.kind.others != nobody || w.target.line != "" && e.place == nil
			e.first.front.Store(true)
			notify(e.first.wake)
		} else {
			unused = e.head.events
			if parked = unused != nil && e.head.up && !c.table.closed; parked {
				c.table.parkLocked(w.target.key(), e, unused)
			}
			e.head = head{}
			quit = e.leavePlaceLocked(w.got)
		}
	}
	c.table.dropLocked(w.target.key(), e)
	c.table.mu.Unlock()
	switch {
	case parked:
		c.cleanup.StartSweeps()
	case unused != nil:
		unused.Close()
	}
	c.quit(w.target, quit)
	if w.counted {
		c.queued.Done()
	}
}

// wait waits for the lock, acquires it, and returns the lease if the kind has leases.
func (w *waiter) wait(ctx context.Context) (lease *Lease, err error) {
	defer w.end(&err)
	done, err := w.awaitFront(ctx)
	w.traced.stood(w.since)
	if !done {
		done, err = w.prepare(ctx)
	}
	if !done {
		err = w.contend(ctx)
	}
	return w.got, err
}

// end cleans up after a wait with the outcome err.
func (w *waiter) end(err *error) {
	c := w.client
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.entry == nil && w.head.events != nil {
		w.head.events.Close()
	}
	if *err != nil {
		w.withdraw()
	} else {
		c.quit(w.target, w.place)
	}
	c.counters.waiting.Add(-1)
	if w.entry != nil {
		w.leave()
	} else {
		c.queued.Done()
		w.leaveQueue()
	}
}

// awaitFront waits for the turn of w. It reports done if w acquired the lock, or failed, before its turn.
func (w *waiter) awaitFront(ctx context.Context) (done bool, err error) {
	var again <-chan time.Time // for an Owner, who may hold the lock already while the waiters in front wait
	if w.state != nil && !w.refused {
		again = time.After(w.client.pace.pollMin)
	}
	for !w.front.Load() {
		select {
		case <-w.wake:
			continue
		case <-w.look:
		case <-again:
		case <-ctx.Done():
			return true, w.quit(ctx)
		case <-w.client.done:
			return true, w.quit(ctx)
		}
		if done, again, err = w.lookInLine(ctx); done {
			return true, err
		}
	}
	return w.claim.state.Load() == delivered && w.inherit(), nil
}

// lookInLine is an attempt of a waiter behind the front. again, if not nil, fires at the time of the next attempt.
func (w *waiter) lookInLine(ctx context.Context) (done bool, again <-chan time.Time, err error) {
	c := w.client
	attempts, cancel := c.untilClose(ctx)
	defer cancel()
	granted, _, err := w.attempt(attempts)
	w.failure = err
	if granted || err != nil && !passing(err) {
		return true, nil, err
	}
	if err != nil {
		w.renewOwner()
		if w.state != nil {
			again = time.After(c.pace.pollMax)
		}
	}
	return false, again, nil
}

// quit ends a wait after the end of ctx or of the client, unless the lock was handed over before.
func (w *waiter) quit(ctx context.Context) error {
	err := w.gaveUp(ctx)
	if w.endOffer(ctx) {
		return nil
	}
	return err
}

// shareGrant signals the waiters able to share the lock just acquired by r: all waiters of a kind for everybody, and waiters
// of the same owner for other kinds.
func (r *request) shareGrant() {
	c := r.client
	all := r.target.kind.others == everybody
	if !all && r.state == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	key := r.target.key()
	if e := c.table.entries[key]; e != nil {
		for w := e.first; w != nil; w = w.next {
			if all || w.state == r.state {
				notify(w.look)
			}
		}
	}
	if r.state == nil {
		return
	}
	for _, p := range r.state.queued {
		if p.key == key && p.look != r.look {
			notify(p.look)
		}
	}
}

// notify signals look. A second signal before a receive has no effect.
func notify(look chan struct{}) {
	select {
	case look <- struct{}{}:
	default:
	}
}

// prepare readies w for the front, and the head if w is the first waiter of its line. It reports done at the end of the wait.
func (w *waiter) prepare(ctx context.Context) (done bool, err error) {
	h := w.head
	if h.poll != 0 {
		if h.events != nil {
			h.events.Move(w.wake)
			h.noteEvents(w.client, w.target)
		}
	} else if err := h.prepare(w); err != nil {
		if w.endOffer(ctx) {
			err = nil
		}
		return true, err
	}
	w.timer = time.NewTimer(time.Until(h.next))
	return false, nil
}

// prepare readies h for w, the first waiter of a line.
func (h *head) prepare(w *waiter) error {
	c, t := w.client, w.target
	*h = head{poll: c.pace.pollMin, floor: c.pace.floor}
	if h.events = c.table.unpark(t.key()); h.events != nil {
		h.events.Move(w.wake)
		h.noteEvents(c, t)
		h.woken = !w.seen.holds(h.events)
	} else if !t.kind.silent {
		channels := []string{t.channel}
		switch {
		case t.kind.queued:
			channels[0] += ":" + w.owner
		case t.line != "":
			channels = t.wakeChannels(c.id)
		}
		events, err := t.watch(c, w.wake, channels...)
		if err != nil {
			return ErrClosed
		}
		h.events = events
	}
	h.busy(&c.pace, t, w.left)
	return nil
}

// watch returns a Watch of channels of t.
func (t *target) watch(c *Client, wake chan<- struct{}, channels ...string) (*pubsub.Watch, error) {
	if c.channels.Publishing(t.kind.silent) == remote.ShardPublish {
		return c.events.SWatch(wake, channels...)
	}
	return c.events.Watch(wake, channels...)
}

// contend is the loop of the waiter at the front: sleep until a reason for an attempt, then try.
func (w *waiter) contend(ctx context.Context) error {
	w.planQuestions(time.Now())
	for {
		wait := time.Until(w.head.lookAt())
		if wait <= 0 || w.claim.state.Load() == delivered {
			if done, err := w.lookAtFront(ctx); done {
				return err
			}
			continue
		}
		w.askWhatIsDue(ctx)
		w.timer.Reset(w.questions.next(wait))
		w.offer(ctx) // from here on, a holder of this process may hand the lock over
		select {
		case <-w.wake:
			if w.claim.state.Load() != delivered {
				w.head.noteEvents(w.client, w.target)
			} else if w.inherit() {
				return nil
			}
		case <-w.look:
			w.head.woken = true
		case <-w.timer.C:
		case <-ctx.Done():
			return w.quit(ctx)
		case <-w.client.done:
			return w.quit(ctx)
		}
	}
}

// lookAtFront is an attempt of the waiter at the front. It reports done at the end of the wait.
func (w *waiter) lookAtFront(ctx context.Context) (done bool, err error) {
	c, r, h := w.client, &w.request, w.head
	if w.endOffer(ctx) {
		return true, nil
	}
	if w.claim.state.Load() == abandoned {
		h.woken = true
		return true, r.gaveUp(ctx)
	}
	h.noteEvents(c, r.target)
	began := time.Now()
	if h.hopeless(r, c.cfg.Lease, began) {
		r.failure = h.failure
		return true, r.failure
	}
	attempts, cancel := c.untilClose(ctx)
	defer cancel()
	var granted bool
	var left time.Duration
	granted, left, r.failure = r.attempt(attempts)
	switch {
	case granted:
		h.acquired(&c.pace, r)
		return true, nil
	case r.failure == nil:
		h.woken, r.late = false, time.Time{}
		h.busy(&c.pace, r.target, left)
	case ctx.Err() != nil || c.isClosed():
		h.woken = true // for the next waiter, because this waiter has not used its wake-up
		return true, r.gaveUp(ctx)
	case !passing(r.failure) || h.failed(&c.pace, r, c.cfg.Lease, began):
		return true, r.failure
	default:
		r.renewOwner()
	}
	return false, nil
}

// noteEvents records the state and the events of the subscription.
func (h *head) noteEvents(c *Client, t *target) {
	if h.events == nil {
		return
	}
	news, up := h.events.Take()
	if !up {
		c.channels.NoteRefusal(t.remote(), h.events.Err())
	}
	if h.up && !up {
		h.poll = c.pace.pollMin
		h.next = earlier(h.next, time.Now().Add(h.poll))
	}
	h.up, h.woken = up, h.woken || news
}

// busy sets the next look after an attempt on a held lock. left is the holder's remaining lease.
func (h *head) busy(p *pace, t *target, left time.Duration) {
	h.failing, h.short = time.Time{}, false
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

// acquired sets the next look of the waiter behind. An exclusive lock needs no look before the lease ends or is released.
func (h *head) acquired(p *pace, r *request) {
	h.floor = p.floor
	h.looks, h.slept = 0, 0
	h.busy(p, r.target, r.lease)
	h.woken = r.target.kind.others != nobody || r.tells // with tells, the next waiter must announce itself
}

// lookAt returns the time of the next look, in the past if a look is due.
func (h *head) lookAt() time.Time {
	if h.woken && !h.short {
		return time.Time{}
	}
	return h.next
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

// failed sets the next look after an attempt of r, begun at began, failed with r.failure. It reports true if the failures have
// lasted for patience.
func (h *head) failed(p *pace, r *request, patience time.Duration, began time.Time) (tooLong bool) {
	at := time.Now()
	h.woken = false
	h.next = at.Add(h.poll - rand.N(h.poll/4))
	h.poll = min(2*h.poll, p.pollMax)
	if h.short = errors.Is(r.failure, ErrNotReplicated); h.short {
		h.poll = p.pollMin      // the attempt already took AckTimeout, or the next request clears the cause
		h.failing = time.Time{} // the server has answered; ctx limits the wait for replicas
		return false
	}
	if errors.Is(r.failure, ErrLost) {
		// The server answered too late for the lease of r. The lateness is counted per request.
		h.failing = time.Time{}
		if r.late.IsZero() {
			r.late = at
		}
		return at.Sub(r.late) >= patience
	}
	if h.failing.IsZero() {
		h.failing = began
	}
	h.failure = r.failure
	return h.hopeless(r, patience, at)
}

// hopeless reports whether attempts have had no answer for patience, counted at the earliest from the start of r's own wait.
func (h *head) hopeless(r *request, patience time.Duration, at time.Time) bool {
	return !h.failing.IsZero() && at.Sub(h.failing) >= patience && at.Sub(r.since) >= patience
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
