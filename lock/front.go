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

// prepare readies w for the front, and the head if w is the first waiter of its line.
func (w *waiter) prepare() {
	c, t, h := w.client, w.target, &w.entry.head
	first := !h.Begun()
	if first {
		*h = head{Looks: looks.Begin(&c.pace), events: c.table.unpark(t.awaitedAs())}
	}
	switch {
	case h.events != nil:
		h.events.Move(w.wake)
		h.noteEvents(c, t)
		if first && w.mark.unchanged(h.events) {
			h.Used()
		} else if first {
			h.Wake()
		}
	case first && !t.kind.silent:
		h.events, _ = t.watch(c, w.wake, w.channels()...) // an error means a closed client
	}
	if first {
		h.Refused(time.Now(), w.left, t.backoff)
	}
}

func (t *target) watch(c *Client, wake chan<- struct{}, channels ...string) (*pubsub.Watch, error) {
	if c.publishing(t) == remote.ShardPublish {
		return c.events.SWatch(wake, channels...)
	}
	return c.events.Watch(wake, channels...)
}

// contend is the loop of the waiter at the front: it sleeps until there is a reason to look, then looks.
func (w *waiter) contend(ctx context.Context) (err error) {
	w.planQuestions(time.Now())
	for done := false; !done; {
		wait := time.Until(w.entry.head.At())
		switch {
		case wait <= 0 || w.claim.Delivered():
			done, err = w.lookAtFront(ctx)
		case w.askWhatIsDue(ctx): // the lock is free
			w.entry.head.Wake()
		default:
			done, err = w.sleep(ctx, wait)
		}
	}
	return err
}

// sleep waits for a reason for an attempt or a question, for wait at most. Meanwhile a holder of this process may hand the lock over.
// sleep reports done at the end of the whole wait.
func (w *waiter) sleep(ctx context.Context, wait time.Duration) (done bool, err error) {
	next := time.NewTimer(w.questions.next(wait))
	defer next.Stop()
	w.offer(ctx)
	select {
	case <-w.wake:
		if w.claim.Delivered() {
			return w.inherit(), nil
		}
		w.entry.head.noteEvents(w.client, w.target)
	case <-w.shared:
		w.entry.head.Wake()
	case <-w.granted:
		w.awaitGrant()
		w.entry.head.Wake()
	case <-next.C:
	case <-ctx.Done():
		return true, w.stopWaiting(ctx)
	case <-w.client.done:
		return true, w.stopWaiting(ctx)
	}
	return false, nil
}

// lookAtFront is an attempt of the waiter at the front. It reports done at the end of the wait.
func (w *waiter) lookAtFront(ctx context.Context) (done bool, err error) {
	c, r, h := w.client, &w.request, &w.entry.head
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
		r.why.failure = failure
		return true, failure
	}
	if w.shortOfTime(began) {
		return true, w.sitOut(ctx)
	}
	whileOpen, cancel := c.untilClose(ctx)
	defer cancel()
	granted, left, err := r.attempt(whileOpen)
	if granted || ctx.Err() == nil {
		w.noteAnswer()
	}
	if err == nil {
		h.took = min(time.Since(began), mostAttempt)
	}
	switch {
	case granted:
		w.planAfterGrant()
		return true, nil
	case err == nil:
		h.Used()
		w.expiredSince = time.Time{}
		h.Refused(time.Now(), left, w.target.backoff)
	case ctx.Err() != nil || c.isClosed():
		h.Wake() // for the next waiter, because this waiter has not used its wake-up
		return true, r.gaveUp(ctx)
	case !temporary(err) || w.planAfterFailure(began, err):
		return true, err
	}
	return false, nil
}

// mostAttempt limits head.took: after a pause of the server, waiters with more time left than that stay in line.
const mostAttempt = 100 * time.Millisecond

// shortOfTime reports whether w, at the front with somebody behind, has less time left than an attempt takes. Such a waiter leaves the line:
// otherwise, in a line too long for the deadlines of its callers, each would reach the front with too little time, and none would succeed.
func (w *waiter) shortOfTime(now time.Time) bool {
	if w.deadline.IsZero() || w.deadline.Sub(now) > w.entry.head.took {
		return false
	}
	w.client.table.mu.Lock()
	defer w.client.table.mu.Unlock()
	return w.entry.waiters.Len() > 1
}

// sitOut leaves the line to the waiters behind w, and waits for the deadline of w. Nobody in the line claims w.
func (w *waiter) sitOut(ctx context.Context) error {
	w.learnFromFront(&w.why) // after leave the entry may be another line's
	w.leave()
	select {
	case <-ctx.Done():
	case <-w.client.done:
	}
	return w.request.gaveUp(ctx)
}

// noteEvents records the state and the events of the subscription.
func (h *head) noteEvents(c *Client, t *target) {
	if h.events == nil {
		return
	}
	news, up := h.events.Take()
	if !up {
		c.channels.NoteRefusal(t.Lock, h.events.Err())
	}
	h.Note(time.Now(), news, up)
}

// valuesLook is the time within which who waits for values of a group looks: permitLook in all_line.lua. Nobody tells of the lease of the next
// holder, which may end.
const valuesLook = time.Second

// planAfterGrant sets the next look, of the waiter behind.
func (w *waiter) planAfterGrant() {
	more, ends := w.target.kind.afterGrant != wakeNobody || w.announces(), w.lease // the next waiter must announce itself
	if w.target.values != "" {
		ends = min(ends, valuesLook)
	}
	w.entry.head.Acquired(time.Now(), ends, w.target.backoff, more)
}

// planAfterFailure sets the next look after an attempt, begun at began, that failed with err. It reports whether attempts have failed for as
// long as Config.Lease, so that Lock gives up.
func (w *waiter) planAfterFailure(began time.Time, err error) (tooLong bool) {
	h, at := &w.entry.head, time.Now()
	switch {
	case errors.Is(err, ErrNotReplicated): // the server has answered; ctx limits the wait for replicas
		h.Unreplicated(at)
	case errors.Is(err, remote.ErrLate): // the server has answered; ctx limits the wait for a server with too much to do
		h.Late(at, began)
	case errors.Is(err, resp.ErrTryAgain): // the server has answered; the keys are together again after the migration
		h.Failed(at)
	case errors.Is(err, ErrLost): // the server answered too late for the lease of w: counted per request
		h.Failed(at)
		tooLong = w.expiredForLong(at)
	default:
		h.Unanswered(at, began, err)
		_, tooLong = h.Hopeless(at, w.since, w.client.cfg.Lease)
	}
	return tooLong
}

// expiredForLong records that a grant has arrived expired, and reports whether all grants have, for as long as Config.Lease.
func (w *waiter) expiredForLong(at time.Time) bool {
	if w.expiredSince.IsZero() {
		w.expiredSince = at
	}
	return at.Sub(w.expiredSince) >= w.client.cfg.Lease
}
