package lock

import (
	"context"
	"errors"
	"time"
)

// tryObtain is the attempt of a call that does not wait. left is as for attempt.
func (r *request) tryObtain(ctx context.Context) (left time.Duration, err error) {
	if err := r.ready(ctx); err != nil {
		return 0, err
	}
	granted, left, err := r.attempt(ctx)
	switch {
	case granted:
		return left, nil
	case err == nil:
		return left, r.notAcquired(nil)
	case r.client.isClosed(), errors.Is(err, ctx.Err()):
		return left, r.gaveUp(ctx)
	}
	return left, err
}

// obtain makes the first attempt of a call that waits. It returns a waiter if r has to wait: then r is no longer used.
func (r *request) obtain(ctx context.Context) (w *waiter, err error) {
	c, asking := r.client, ctx
	r.waits, r.since = true, time.Now()
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	r.deadline, _ = ctx.Deadline()
	if r.target.kind.queued() {
		if !r.enterQueue() {
			return nil, ErrClosed
		}
		defer func() {
			if w == nil {
				c.waiters.Done()
				r.leaveQueue()
			}
		}()
		// For all kinds this would double the allocations of a Lock and Unlock (TestAllocations), so others pay for it in a wait only.
		whileOpen, cancel := c.untilClose(ctx)
		defer cancel()
		asking = whileOpen
	}
	before, must := r.mustWait()
	if must {
		return r.newWaiter(ctx, noTTL, before), nil
	}
	granted, left, err := r.attempt(asking)
	switch {
	case granted:
		c.leavePlace(r.target, r.place) // an Owner's further hold may have moved a place whose waiters have left meanwhile
		return nil, nil
	case err == nil:
	case ctx.Err() != nil || c.isClosed():
		r.withdraw()
		return nil, r.gaveUp(ctx)
	case !temporary(err):
		r.withdraw()
		return nil, err
	default:
		left, before = noTTL, watchMark{}
	}
	return r.newWaiter(ctx, left, before), nil
}

// ready prepares the first attempt of r. For a call that waits, ready tolerates an unreachable server as the wait does.
func (r *request) ready(ctx context.Context) error {
	c := r.client
	if ctx.Err() != nil || c.isClosed() {
		return r.gaveUp(ctx)
	}
	err := c.channels.Settle(ctx, r.target.Lock)
	for err != nil && r.waits && temporary(err) && time.Since(r.since) < c.cfg.Lease && c.sleep(ctx, c.pace.PollMax) == nil {
		err = c.channels.Settle(ctx, r.target.Lock)
	}
	if err != nil && (ctx.Err() != nil || c.isClosed()) {
		r.why.failure = err
		return r.gaveUp(ctx)
	}
	return c.about(r.target.Name, err)
}
