package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// loop is the goroutine of cleanup, from the first work until Close.
func (u *cleanup) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var pending []*job
	var flush, sweep time.Time // when to delete the latches, and when to sweep the spares; zero if there are none
	for {
		select {
		case <-u.signal:
		case <-timer.C:
		case <-u.client.done:
			u.mu.Lock()
			u.closed = true
			pending = append(pending, u.jobs...)
			u.jobs = nil
			u.mu.Unlock()
			u.last(pending, nil)
			return
		}
		at := time.Now()
		u.mu.Lock()
		pending = append(pending, u.jobs...)
		u.jobs = nil
		if !sweep.IsZero() && !at.Before(sweep) {
			u.sweepLocked(false)
			sweep = time.Time{}
		}
		if sweep.IsZero() && u.sweeps {
			sweep = at.Add(sweepPause)
		}
		if flush.IsZero() && len(u.latches) > 0 {
			flush = at.Add(latchPause)
		}
		u.mu.Unlock()
		pending = u.round(pending, at)
		if !flush.IsZero() && !at.Before(flush) {
			flush = time.Time{}
			u.forget(u.client.life, u.takeLatches(), cleanupLimit)
		}
		timer.Reset(nextRound(pending, flush, sweep))
	}
}

func (u *cleanup) takeLatches() []latch {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		u.sweepLocked(true)
	}
	latches := u.latches
	u.latches = nil
	return latches
}

func nextRound(pending []*job, others ...time.Time) time.Duration {
	at := time.Now().Add(time.Hour)
	for _, other := range others {
		if !other.IsZero() {
			at = earlier(at, other)
		}
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
	u.run(u.client.life, due, cleanupLimit)
	for _, j := range due {
		if !j.over {
			rest = append(rest, j)
		}
	}
	return rest
}

// last runs all that is left to do once, before the client closes or after it has. A job whose owner's turn another one
// has waits for that: who gives up waiting leaves a queue behind the undo of what was asked for.
func (u *cleanup) last(jobs []*job, latches []latch) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLast)
	defer cancel()
	var waiting []*job
	for _, j := range jobs {
		if j.takeTurn() {
			u.end(ctx, j)
		} else {
			waiting = append(waiting, j)
		}
	}
	for _, j := range waiting {
		select {
		case j.ownerState().turn <- struct{}{}:
			j.turn = true
			u.end(ctx, j)
		case <-ctx.Done():
			j.finish(errEnded)
		}
	}
	u.forget(context.Background(), append(latches, u.takeLatches()...), cleanupLast)
}

var errEnded = fmt.Errorf("%w: %w", ErrUncertain, ErrClosed)

// end runs a job for the last time.
func (u *cleanup) end(ctx context.Context, j *job) {
	if j.stands() {
		u.run(ctx, []*job{j}, cleanupLast)
	}
	j.finish(errEnded)
}

// run runs the jobs of each server one by one, so that each goes on the connection of its key, within limit for all.
func (u *cleanup) run(life context.Context, due []*job, limit time.Duration) {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	beside(byServer(u.client, due, (*job).name), func(due []*job) { u.runOn(ctx, due) })
}

func (u *cleanup) runOn(ctx context.Context, due []*job) {
	for _, j := range due {
		v, err := j.run(u.client.patient(ctx), u.client)
		at := time.Now()
		switch {
		case err == nil:
			j.answered(u.client, v, at)
		case final(err):
			j.finish(serverError(err))
		case at.After(j.until) && !j.turn:
			j.finish(fmt.Errorf("%w: %w", ErrUncertain, err))
		default:
			j.postpone(at)
		}
	}
}

// forget deletes latches. If that fails they go when their time is up.
func (u *cleanup) forget(life context.Context, latches []latch, limit time.Duration) {
	if len(latches) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	ctx = u.client.patient(ctx)
	replies, err := u.client.server.SendBatch(ctx, u.forgetting(latches))
	if err == nil && errors.Is(replies[len(replies)-1].Err(), resp.ErrCrossSlot) && !u.apart.Swap(true) {
		_, err = u.client.server.SendBatch(ctx, u.forgetting(latches))
	}
	if err != nil {
		u.client.warn("latches stay until they expire", "count", len(latches), "error", err)
	}
}

// forgetting returns the commands that delete latches, or see to it that they expire. A server that is all there is deletes
// many by one command, which takes much less of both sides, unless it has turned out to be a node of a cluster.
func (u *cleanup) forgetting(latches []latch) (commands []resp.Command) {
	apart := u.client.spread != nil || u.apart.Load()
	words := make([]string, 1, 1+len(latches))
	words[0] = "DEL"
	for _, l := range latches {
		var cmd resp.Command
		switch {
		case l.stays:
			cmd = resp.Cmd("PEXPIRE", l.key, latchLife.Milliseconds())
		case apart:
			cmd = resp.Cmd("DEL", l.key)
		default:
			words = append(words, l.key)
			continue
		}
		commands = append(commands, cmd.On(l.name))
	}
	if len(words) > 1 {
		commands = append(commands, resp.CmdStrings(words).On(words[1]))
	}
	return commands
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

// stands reports whether there is anything to do. It ends a release that came too late, when the server has none of the
// holds of that time, and a change of which the server may not know a repeat any more.
func (j *job) stands() bool {
	if j.change != nil && j.change.old() {
		j.finish(fmt.Errorf("%w, and given up", ErrUncertain))
		return false
	}
	if j.lease == nil || j.lease.counted() {
		return true
	}
	j.settle(j.lease.notHeld())
	return false
}

func (j *job) name() string {
	switch {
	case j.lease != nil:
		return j.lease.target.name
	case j.change != nil:
		return j.change.target.name
	}
	return j.request.target.name
}

func (j *job) ownerState() *ownerState {
	if j.lease != nil {
		return j.lease.state
	}
	return j.request.state
}

// run sends the job's script. The caller has the turn of its owner, if it has one.
func (j *job) run(ctx context.Context, c *Client) (resp.Value, error) {
	if j.change != nil {
		return j.change.run(ctx)
	}
	if j.lease != nil {
		// The latch of the release may have expired, or will before an answer comes.
		if j.stale = time.Since(j.since) > latchLife/2; j.stale {
			return j.lease.runLateRelease(ctx)
		}
		v, err := j.lease.runRelease(ctx)
		j.lease.repeated = j.lease.repeated || err != nil && uncertain(err)
		return v, err
	}
	r, key := &j.request, j.request.target.hold()
	resting := c.restingLease(key, r.state, r.owner, nil)
	before := int64(0)
	if resting > 0 {
		before = r.state.tallies[key].count
	}
	keys := r.target.keys
	if r.latch != "" {
		keys = r.target.with(r.latch)
	}
	args := c.args(r, resting, r.owner, c.publishing(r.target), before, latchLife.Milliseconds())
	return r.target.kind.undo.Run(ctx, c.server, keys, args...)
}

// answered takes note of the server's answer to the job.
func (j *job) answered(c *Client, v resp.Value, at time.Time) {
	switch l := j.lease; {
	case j.change != nil:
		if err := j.change.answered(v); err != nil {
			j.postpone(at)
			return
		}
		j.finish(nil)
	case l != nil && j.stale:
		l.tally(l.resting() > 0)
		j.settle(fmt.Errorf("%w: it is released now, and may have been lost before", ErrUncertain))
	case l != nil:
		outcome, err := l.answered(v)
		if err != nil {
			j.postpone(at)
			return
		}
		j.settle(outcome)
	case j.late && j.request.latch == "":
		j.late = false
		j.next = at.Add(lateArrival)
	case !j.late && j.request.latch != "":
		c.cleanup.addLatch(j.request.target.name, j.request.latch)
		j.finish(nil)
	default:
		j.finish(nil)
	}
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
	if j.lease != nil {
		j.lease.releasing.Lock()
		j.lease.repeats = nil
		j.lease.releasing.Unlock()
		j.lease.client.forget(j.lease)
	}
	if j.done != nil {
		j.outcome = outcome
		close(j.done)
	}
}
