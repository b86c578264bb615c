package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// newWaiter puts a copy of r in line. left is the remaining lease of the holder, negative if unknown, and before the mark of the parked
// watch from before the attempt. The caller must call wait.
func (r *request) newWaiter(ctx context.Context, left time.Duration, before watchMark) *waiter {
	c := r.client
	r.countWaiting(1)
	w := &waiter{request: *r, left: left, mark: before, wake: make(chan struct{}, 1)}
	w.since = time.Now()
	k := r.target.kind
	if k.queued() { // alone in a line that is in no table; enterQueue has counted the call
		w.entry = &entry{failure: w.why.failure}
		w.inWaiters = true
		w.front.Store(true)
		return w
	}
	if r.state != nil {
		w.shared = make(chan struct{}, 1)
	}
	w.join()
	c.leavePlace(w.target, w.place) // the line of this process has another one
	w.place = nil
	w.offer(ctx)
	return w
}

// countWaiting counts a call that waits. A Redlock counts its own.
func (r *request) countWaiting(n int64) {
	if r.wrapDoer == nil {
		r.client.counters.waiting.Add(n)
	}
}

// join puts w at the end of the line.
func (w *waiter) join() {
	c := w.client
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	e := c.table.entryLocked(w.target.awaitedAs())
	w.entry = e
	if w.inWaiters = !c.table.closed; w.inWaiters {
		c.waiters.Add(1)
	}
	if e.place == nil {
		e.place, w.place = w.place, nil
	}
	w.awaitGrantLocked()
	if w.setup {
		e.setups++
	}
	w.behindSetup = !w.setup && e.setups > 0
	if w.state != nil {
		w.state.waiting = append(w.state.waiting, waitingCall{target: w.target, shared: w.shared})
	}
	if w.heldByOwnerLocked() { // since the attempt
		netfail.Signal(w.shared)
	}
	if w.inLine = e.waiters.PushBack(w); e.waiters.Len() == 1 {
		e.failure = w.why.failure
		w.front.Store(true)
	}
}

// awaitGrant takes the channel of the next grant in place of one that is closed.
func (w *waiter) awaitGrant() {
	w.client.table.mu.Lock()
	defer w.client.table.mu.Unlock()
	w.awaitGrantLocked()
}

func (w *waiter) awaitGrantLocked() {
	if w.target.kind.afterGrant == wakeAll {
		w.granted = w.entry.grantedLocked()
	}
}

// wait waits for the lock, acquires it, and returns the lease if the kind has leases.
func (w *waiter) wait(ctx context.Context) (lease *Lease, err error) {
	defer w.end(&err)
	done, err := w.awaitFront(ctx)
	w.traced.leftLine(w.since)
	if !done {
		w.prepare()
		err = w.contend(ctx)
	}
	return w.got, err
}

// awaitFront waits until w is at the front. It reports done if w has acquired the lock, or has failed, before.
func (w *waiter) awaitFront(ctx context.Context) (done bool, err error) {
	var again <-chan time.Time
	switch {
	case w.unsure, w.state != nil && w.why.failure != nil: // w may have already what the waiters in front wait for
		again = time.After(w.client.pace.PollMin)
	case w.behindSetup:
		again = time.After(0)
	}
	for !w.front.Load() {
		select {
		case <-w.wake:
			continue
		case <-w.shared:
		case <-w.granted:
			w.awaitGrant()
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
	whileOpen, cancel := c.untilClose(ctx)
	defer cancel()
	if w.behindSetup && !w.unsure { // without permits the waiter in front waits for the setup, but w, which does not, fails
		info, err := w.target.info(whileOpen, c.scripts)
		if err == nil && !info.Permits.Set {
			return true, nil, c.about(w.target.Name, ErrNotSet)
		}
		return false, time.After(c.pace.PollMax), nil // the waiter at the front reports a failure
	}
	asked := time.Now()
	granted, _, err := w.attempt(whileOpen)
	switch {
	case granted, err != nil && !temporary(err):
		return true, nil, err
	case errors.Is(err, remote.ErrLate) && (w.unsure || w.state != nil): // as after looks.Late
		again = time.After(c.pace.PollMax + rand.N(2*time.Since(asked)+1))
	case w.unsure && (err != nil || asked.Before(w.landed)): // an earlier request may still arrive
		again = time.After(c.pace.PollMax)
	case err == nil:
		w.expiredSince = time.Time{}
	case w.state == nil:
	case errors.Is(err, ErrLost) && w.expiredForLong(time.Now()):
		return true, nil, err
	default:
		again = time.After(c.pace.PollMax)
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

// gaveUp returns the error of a wait that ended with ctx or with the client. A waiter that has asked nothing itself knows what the waiter
// at the front knows.
func (w *waiter) gaveUp(ctx context.Context) error {
	r := w.request // a copy: a holder that has claimed w may read the request
	w.learnFromFront(&r.why)
	return r.gaveUp(ctx)
}

// learnFromFront records in why what the line in front of w knows, if w has asked nothing itself.
func (w *waiter) learnFromFront(why *denial) {
	if w.asked || why.refused() {
		return
	}
	w.client.table.mu.Lock()
	defer w.client.table.mu.Unlock()
	why.learnFrom(w.entry)
}

// end cleans up after a wait with the outcome err.
func (w *waiter) end(err *error) {
	c := w.client
	if w.target.kind.queued() {
		w.leaveQueue()
		if w.entry.head.events != nil {
			w.entry.head.events.Close()
		}
	}
	if *err != nil {
		w.withdraw()
	} else {
		c.leavePlace(w.target, w.place)
	}
	w.countWaiting(-1)
	w.leave()
	if w.inWaiters {
		c.waiters.Done()
	}
}

// leave removes w from the line of this process, if it is there. A waiter at the front passes the front on to the next waiter; the last waiter parks
// or closes the subscription.
func (w *waiter) leave() {
	if w.inLine == nil {
		return
	}
	c, e := w.client, w.entry
	var events *pubsub.Watch
	var parked bool
	var place any
	c.table.mu.Lock()
	if w.setup {
		e.setups--
	}
	if w.state != nil {
		w.state.waiting = slices.DeleteFunc(w.state.waiting, func(q waitingCall) bool { return q.shared == w.shared })
	}
	wasFirst := e.firstLocked() == w
	e.waiters.Remove(w.inLine)
	w.inLine = nil
	switch next := e.firstLocked(); {
	case !wasFirst:
	case next != nil:
		// The next waiter may want fewer permits than w.
		if w.target.kind.afterGrant != wakeNobody || w.target.Line != "" && e.place == nil {
			e.head.Wake()
		}
		next.front.Store(true)
		netfail.Signal(next.wake)
	default:
		events = e.head.events
		if parked = events != nil && e.head.Up() && !c.table.closed; parked {
			c.table.parkLocked(w.target.awaitedAs(), events)
		}
		e.head = head{}
		place, e.place = e.place, nil
		if w.got != nil && !w.target.kind.isRead() { // its release leaves the place; the turn of readers ends with their wait
			w.got.place, place = place, nil
		}
		c.table.dropLocked(w.target.awaitedAs(), e)
	}
	c.table.mu.Unlock()
	switch {
	case parked:
		c.cleanup.StartSweeps()
	case events != nil:
		events.Close()
	}
	c.leavePlace(w.target, place)
}

// noteAnswer records for the waiters behind w, which is at the front, whether its last attempt had an answer.
func (w *waiter) noteAnswer() {
	w.client.table.mu.Lock()
	defer w.client.table.mu.Unlock()
	w.entry.failure = w.why.failure
}
