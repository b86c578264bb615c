package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// mostTime is the most time that an attempt is expected to take: a pause of the server does not cost the waiters with more time left
// their turn.
const mostTime = 100 * time.Millisecond

// acquisition is the state of a Lock after the first attempt.
type acquisition struct {
	got    *Lease
	waiter *waiter // for the wait; nil if there is none
	traced *acquiring
}

// begin makes the first attempt of r, which is no longer used. The context is for finish.
func (r *request) begin(ctx context.Context) (context.Context, acquisition, error) {
	ctx = r.beginTrace(ctx, false)
	w, err := r.obtain(ctx)
	return ctx, acquisition{r.got, w, r.traced}, err
}

// finish waits for the lock if necessary. err is the error of begin.
func (a acquisition) finish(ctx context.Context, err error) (*Lease, error) {
	if a.waiter != nil {
		a.got, err = a.waiter.wait(ctx)
	}
	a.traced.done(ctx, a.got, err)
	return a.got, err
}

// try runs r once.
func (r *request) try(ctx context.Context) (*Lease, error) {
	ctx = r.beginTrace(ctx, true)
	err := r.tryObtain(ctx)
	if err != nil {
		r.got = nil
	}
	r.traced.done(ctx, r.got, err)
	return r.got, err
}

// obtain runs r. If r has to wait, obtain returns a waiter for the wait, and r is no longer used.
func (r *request) obtain(ctx context.Context) (w *waiter, err error) {
	c := r.client
	if c.isClosed() {
		return nil, ErrClosed
	}
	r.waits, r.since = true, time.Now()
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		r.deadline = deadline
	}
	first := ctx
	if r.target.kind.queued {
		if !r.enterQueue() {
			return nil, ErrClosed
		}
		defer func() {
			if w == nil {
				c.queued.Done()
				r.leaveQueue()
			}
		}()
		attempts, cancel := c.untilClose(ctx)
		defer cancel()
		first = attempts
	}
	if r.crowded() {
		return r.newWaiter(ctx, noTTL), nil
	}
	granted, left, err := r.attempt(first)
	r.failure = err
	switch {
	case granted:
		c.leavePlace(r.target, r.place) // an Owner's further hold may have moved a place whose waiters have left meanwhile
		return nil, nil
	case err == nil:
	case ctx.Err() != nil || c.isClosed():
		r.withdraw()
		return nil, r.gaveUp(ctx)
	case !passing(err):
		r.withdraw()
		return nil, err
	default:
		left, r.seen = noTTL, sighting{}
		r.renewOwner()
	}
	return r.newWaiter(ctx, left), nil
}

// tryObtain runs r once.
func (r *request) tryObtain(ctx context.Context) error {
	c := r.client
	if c.isClosed() {
		return ErrClosed
	}
	if err := r.ready(ctx); err != nil {
		return err
	}
	granted, left, err := r.attempt(ctx)
	r.again = left
	switch {
	case granted:
		return nil
	case err != nil && c.isClosed():
		return ErrClosed
	case err != nil && errors.Is(err, ctx.Err()):
		r.failure = err
		return r.gaveUp(ctx)
	case err != nil:
		return err
	}
	return r.notAcquired(nil)
}

// ready prepares the first attempt of r.
func (r *request) ready(ctx context.Context) error {
	c := r.client
	if ctx.Err() != nil {
		return r.gaveUp(ctx)
	}
	err := c.channels.Settle(ctx, r.target.remote())
	if err != nil && errors.Is(err, ctx.Err()) {
		r.failure = err
		return r.gaveUp(ctx)
	}
	return err
}

// newWaiter puts a copy of r in line. left is the holder's remaining lease, if known. The caller must call wait.
func (r *request) newWaiter(ctx context.Context, left time.Duration) *waiter {
	c := r.client
	c.counters.waiting.Add(1)
	w := &waiter{request: *r, left: left, wake: make(chan struct{}, 1)}
	w.since = time.Now()
	k := r.target.kind
	if k.queued {
		w.counted = true
		w.head = new(head)
		w.front.Store(true)
		return w
	}
	if k.others == everybody || r.state != nil {
		w.look = make(chan struct{}, 1)
	}
	w.join()
	c.leavePlace(w.target, w.place) // the line of this process has another one
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
	w.entry, w.head, w.inLine = e, &e.head, true
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
		e.failure = w.failure
		w.front.Store(true)
	}
	e.last = w
}

// noteAnswer records for the waiters behind w, which is at the front, whether its last attempt had an answer.
func (w *waiter) noteAnswer() {
	if w.entry == nil || w.entry.failure == nil && w.failure == nil {
		return // nobody else changes the record
	}
	w.client.table.mu.Lock()
	defer w.client.table.mu.Unlock()
	w.entry.failure = w.failure
}

// gaveUp is that of the request, for a waiter that may have left all questions to the waiter at the front.
func (w *waiter) gaveUp(ctx context.Context) error {
	r := w.request // a copy: a holder that has claimed w may read the request
	if w.entry != nil && !r.refused && !r.asked {
		w.client.table.mu.Lock()
		r.learn(w.entry, false)
		w.client.table.mu.Unlock()
	}
	return r.gaveUp(ctx)
}

// leave removes w from the line. From the front the turn passes to the next waiter. After the last waiter the subscription is
// parked or closed.
func (w *waiter) leave() {
	c := w.client
	w.inLine = false
	c.table.mu.Lock()
	var unused *pubsub.Watch
	var place any
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
			if w.target.kind.others != nobody || w.target.line != "" && e.place == nil {
				e.head.Wake()
			}
			e.first.front.Store(true)
			notify(e.first.wake)
		} else {
			unused = e.head.events
			if parked = unused != nil && e.head.Up() && !c.table.closed; parked {
				c.table.parkLocked(w.target.key(), e, unused)
			}
			e.head = head{}
			place = e.leavePlaceLocked(w.got)
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
	c.leavePlace(w.target, place)
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
		c.leavePlace(w.target, w.place)
	}
	c.counters.waiting.Add(-1)
	if w.entry == nil {
		w.leaveQueue()
	} else if w.inLine {
		w.leave()
	}
	if w.counted {
		c.queued.Done()
	}
}

// awaitFront waits for the turn of w. It reports done if w acquired the lock, or failed, before its turn.
func (w *waiter) awaitFront(ctx context.Context) (done bool, err error) {
	var again <-chan time.Time // for an Owner, who may hold the lock already while the waiters in front wait
	if w.state != nil && !w.refused {
		again = time.After(w.client.pace.PollMin)
	}
	for !w.front.Load() {
		select {
		case <-w.wake:
			continue
		case <-w.look:
		case <-again:
		case <-ctx.Done():
			return true, w.stopWaiting(ctx)
		case <-w.client.done:
			return true, w.stopWaiting(ctx)
		}
		if done, again, err = w.lookInLine(ctx); done {
			return true, err
		}
	}
	return w.claim.Delivered() && w.inherit(), nil
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
			again = time.After(c.pace.PollMax)
		}
	}
	return false, again, nil
}

// stopWaiting ends a wait after the end of ctx or of the client, unless the lock was handed over before.
func (w *waiter) stopWaiting(ctx context.Context) error {
	err := w.gaveUp(ctx)
	if w.endOffer(ctx) {
		return nil
	}
	return err
}

// prepare readies w for the front, and the head if w is the first waiter of its line. It reports done at the end of the wait.
func (w *waiter) prepare(ctx context.Context) (done bool, err error) {
	h := w.head
	if h.Begun() {
		if h.events != nil {
			h.events.Move(w.wake)
			h.noteEvents(w.client, w.target)
		}
	} else if err := h.start(w); err != nil {
		if w.endOffer(ctx) {
			err = nil
		}
		return true, err
	}
	w.timer = time.NewTimer(time.Until(h.At()))
	return false, nil
}

// start readies h for w, the first waiter of a line.
func (h *head) start(w *waiter) error {
	c, t := w.client, w.target
	*h = head{Looks: looks.Begin(&c.pace)}
	if h.events = c.table.unpark(t.key()); h.events != nil {
		h.events.Move(w.wake)
		h.noteEvents(c, t)
		if w.seen.holds(h.events) {
			h.Used()
		} else {
			h.Wake()
		}
	} else if !t.kind.silent {
		channels := []string{t.channel}
		switch {
		case t.kind.queued:
			channels[0] += ":" + w.owner
		case t.line != "":
			channels = t.wakeChannels(w.waiterID())
		}
		events, err := t.watch(c, w.wake, channels...)
		if err != nil {
			return ErrClosed
		}
		h.events = events
	}
	h.Refused(&c.pace, time.Now(), w.left, t.backoff)
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
		wait := time.Until(w.head.At())
		if wait <= 0 || w.claim.Delivered() {
			if done, err := w.lookAtFront(ctx); done {
				return err
			}
			continue
		}
		if w.askWhatIsDue(ctx) {
			w.head.Wake()
			continue
		}
		w.timer.Reset(w.questions.next(wait))
		w.offer(ctx) // from here on, a holder of this process may hand the lock over
		select {
		case <-w.wake:
			if !w.claim.Delivered() {
				w.head.noteEvents(w.client, w.target)
			} else if w.inherit() {
				return nil
			}
		case <-w.look:
			w.head.Wake()
		case <-w.timer.C:
		case <-ctx.Done():
			return w.stopWaiting(ctx)
		case <-w.client.done:
			return w.stopWaiting(ctx)
		}
	}
}

// lookAtFront is an attempt of the waiter at the front. It reports done at the end of the wait.
func (w *waiter) lookAtFront(ctx context.Context) (done bool, err error) {
	c, r, h := w.client, &w.request, w.head
	if w.endOffer(ctx) {
		return true, nil
	}
	if w.claim.Abandoned() {
		h.Wake()
		return true, w.gaveUp(ctx)
	}
	h.noteEvents(c, r.target)
	began := time.Now()
	if failure, hopeless := h.Hopeless(began, r.since, c.cfg.Lease); hopeless {
		r.failure = failure
		return true, failure
	}
	if w.tooLate(began) {
		w.leave()
		return true, w.sitOut(ctx)
	}
	attempts, cancel := c.untilClose(ctx)
	defer cancel()
	var granted bool
	var left time.Duration
	granted, left, r.failure = r.attempt(attempts)
	if granted || ctx.Err() == nil {
		w.noteAnswer()
	}
	if r.failure == nil {
		h.took = min(time.Since(began), mostTime)
	}
	switch {
	case granted:
		w.planAfterGrant()
		return true, nil
	case r.failure == nil:
		w.planAfterRefusal(left)
	case ctx.Err() != nil || c.isClosed():
		h.Wake() // for the next waiter, because this waiter has not used its wake-up
		return true, r.gaveUp(ctx)
	case !passing(r.failure) || w.planAfterFailure(began):
		return true, r.failure
	default:
		r.renewOwner()
	}
	return false, nil
}

// tooLate reports whether w, whose turn it is, lacks the time for an attempt at now while somebody waits behind it. Otherwise callers
// whose deadlines are short for the length of their line would all reach the front with too little time left, and none would succeed.
func (w *waiter) tooLate(now time.Time) bool {
	if w.entry == nil || w.deadline.IsZero() || w.deadline.Sub(now) > w.head.took {
		return false
	}
	w.client.table.mu.Lock()
	defer w.client.table.mu.Unlock()
	return w.next != nil
}

// sitOut waits for the deadline of w, which has left the line.
func (w *waiter) sitOut(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-w.client.done:
	}
	return w.gaveUp(ctx)
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
	h.Note(&c.pace, time.Now(), news, up)
}

// planAfterRefusal sets the next look. left is the remaining lease of the holder.
func (w *waiter) planAfterRefusal(left time.Duration) {
	w.head.Used()
	w.late = time.Time{}
	w.head.Refused(&w.client.pace, time.Now(), left, w.target.backoff)
}

// planAfterGrant sets the next look, of the waiter behind.
func (w *waiter) planAfterGrant() {
	more := w.target.kind.others != nobody || w.announces // the next waiter must announce itself
	w.head.Acquired(&w.client.pace, time.Now(), w.request.lease, w.target.backoff, more)
}

// planAfterFailure sets the next look after an attempt, begun at began, that failed with w.failure. It reports true if the failures have
// lasted for the time of a lease.
func (w *waiter) planAfterFailure(began time.Time) (tooLong bool) {
	h, p, at, patience := w.head, &w.client.pace, time.Now(), w.client.cfg.Lease
	switch {
	case errors.Is(w.failure, ErrNotReplicated): // the server has answered; ctx limits the wait for replicas
		h.Short(p, at)
		return false
	case errors.Is(w.failure, resp.ErrTryAgain): // the server has answered; the keys are together again after the migration
		h.Failed(p, at)
		return false
	case errors.Is(w.failure, ErrLost): // the server answered too late for the lease of w: counted per request
		h.Failed(p, at)
		if w.late.IsZero() {
			w.late = at
		}
		return at.Sub(w.late) >= patience
	}
	h.Unanswered(p, at, began, w.failure)
	_, tooLong = h.Hopeless(at, w.since, patience)
	return tooLong
}
