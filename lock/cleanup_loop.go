package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// loop is the goroutine of cleanup, from the first work until Close.
func (u *cleanup) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var pending []*job
	var flush time.Time // when to delete the latches; zero if there are none
	for {
		select {
		case <-u.signal:
		case <-timer.C:
		case <-u.client.done:
			u.mu.Lock()
			u.closed = true
			pending = append(pending, u.jobs...)
			latches := u.latches
			u.jobs, u.latches = nil, nil
			u.mu.Unlock()
			u.last(pending, latches)
			return
		}
		at := time.Now()
		u.mu.Lock()
		pending = append(pending, u.jobs...)
		u.jobs = nil
		if flush.IsZero() && len(u.latches) > 0 {
			flush = at.Add(latchPause)
		}
		u.mu.Unlock()
		pending = u.round(pending, at)
		if !flush.IsZero() && !at.Before(flush) {
			flush = time.Time{}
			u.forget(u.takeLatches(), cleanupLimit)
		}
		timer.Reset(nextRound(pending, flush))
	}
}

func (u *cleanup) takeLatches() []latch {
	u.mu.Lock()
	defer u.mu.Unlock()
	latches := u.latches
	u.latches = nil
	return latches
}

func nextRound(pending []*job, flush time.Time) time.Duration {
	at := time.Now().Add(time.Hour)
	if !flush.IsZero() {
		at = flush
	}
	for _, j := range pending {
		at = earlier(at, j.next)
	}
	return time.Until(at)
}

// round runs the jobs that are due and returns those that remain.
func (u *cleanup) round(pending []*job, at time.Time) []*job {
	var due, rest []*job
	for _, j := range pending {
		switch {
		case j.next.After(at), len(due) == cleanupBatch:
			rest = append(rest, j)
		case !j.takeTurn():
			j.postpone(at)
			rest = append(rest, j)
		case !j.stands():
		default:
			due = append(due, j)
		}
	}
	u.run(due, cleanupLimit)
	for _, j := range due {
		if !j.over {
			rest = append(rest, j)
		}
	}
	return rest
}

// last runs all that is left to do once, before the client closes or after it has.
func (u *cleanup) last(jobs []*job, latches []latch) {
	var due []*job
	for _, j := range jobs {
		if j.takeTurn() && j.stands() {
			due = append(due, j)
		}
	}
	u.run(due, cleanupLast)
	for _, j := range jobs {
		j.finish(fmt.Errorf("%w: %w", ErrUncertain, ErrClosed))
	}
	u.forget(append(latches, u.takeLatches()...), cleanupLast)
}

// run sends the jobs in one batch and takes note of the answers.
func (u *cleanup) run(due []*job, limit time.Duration) {
	if len(due) == 0 {
		return
	}
	calls := make([]script.Call, len(due))
	for i, j := range due {
		calls[i] = j.call(u.client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	replies, err := script.RunBatch(ctx, u.client.server, calls)
	at := time.Now()
	for i, j := range due {
		failure := err
		if failure == nil {
			failure = replies[i].Err()
		}
		switch {
		case failure == nil:
			j.answered(replies[i], at)
		case final(failure):
			j.finish(serverError(failure))
		case at.After(j.until):
			j.finish(fmt.Errorf("%w: %w", ErrUncertain, failure))
		default:
			j.postpone(at)
		}
	}
}

// forget deletes latches. If that fails they go when their time is up.
func (u *cleanup) forget(latches []latch, limit time.Duration) {
	if len(latches) == 0 {
		return
	}
	commands := make([]resp.Command, len(latches))
	for i, l := range latches {
		commands[i] = resp.Cmd("DEL", l.key).On(l.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := u.client.server.SendBatch(ctx, commands); err != nil {
		u.client.cfg.Logger.Warn("lock: latches stay until they expire", "count", len(latches), "error", err)
	}
}

// takeTurn makes sure that a job of an Owner has that owner's turn.
func (j *job) takeTurn() bool {
	state := j.ownerState()
	if state == nil || j.turn {
		return true
	}
	select {
	case state.turn <- struct{}{}:
		j.turn = true
	default:
	}
	return j.turn
}

// stands reports whether there is anything to do. It ends a release that came too late: the server has none of the holds
// of that time.
func (j *job) stands() bool {
	if j.lease == nil || j.lease.counted() {
		return true
	}
	j.settle(j.lease.notHeld())
	return false
}

func (j *job) ownerState() *ownerState {
	if j.lease != nil {
		return j.lease.state
	}
	return j.request.state
}

func (j *job) call(c *Client) script.Call {
	if j.lease != nil {
		return j.lease.call()
	}
	r, key := &j.request, j.request.target.key()
	resting := c.restingLease(key, r.state, nil)
	before := int64(0)
	if resting > 0 {
		before = r.state.tallies[key].count
	}
	return r.target.kind.undo.Call(r.target.freeKeys, resting, r.owner, publish, before)
}

// answered takes note of the server's answer to the job.
func (j *job) answered(v resp.Value, at time.Time) {
	if j.lease == nil {
		if j.again {
			j.again = false
			j.next = at.Add(lateArrival)
			return
		}
		j.finish(nil)
		return
	}
	j.settle(j.lease.answered(v))
}

// settle ends the release with a final outcome.
func (j *job) settle(outcome error) {
	j.lease.releasing.Lock()
	j.lease.settle(outcome)
	j.lease.releasing.Unlock()
	j.finish(outcome)
}

func (j *job) postpone(at time.Time) {
	j.pause = min(max(2*j.pause, repeatMin), repeatMax)
	j.next = at.Add(j.pause)
}

// finish ends the job: the owner's turn is given back, and who waits for the outcome learns it.
func (j *job) finish(outcome error) {
	if j.over {
		return
	}
	j.over = true
	if j.turn {
		j.ownerState().give()
	}
	if j.lease == nil {
		return
	}
	j.lease.releasing.Lock()
	j.lease.repeats = nil
	j.lease.releasing.Unlock()
	j.lease.client.forget(j.lease)
	j.outcome = outcome
	close(j.done)
}
