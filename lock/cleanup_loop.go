package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// lane is the unit of concurrency, with one batch at a time: a server. Repeats have lanes of their own, in a cluster
// one per slot, so that a refused repeat delays no other.
type lane struct {
	route string
	again bool
	slot  int
}

// batch is a group of jobs sent together.
type batch struct {
	lane lane
	jobs []*job
}

// agenda is the pending work of the loop.
type agenda struct {
	pending      []*job
	busy         map[lane]bool
	repeating    int       // number of busy lanes of repeats
	flush, sweep time.Time // the times to delete latches and to sweep the spares; zero for none
	flushing     bool
}

// loop is the goroutine of cleanup, from the first work until Close.
func (u *cleanup) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	a := agenda{busy: make(map[lane]bool)}
	closing := u.closing
	for {
		select {
		case <-u.signal:
		case <-timer.C:
		case <-closing:
			closing = nil
		case <-u.life.Done():
			u.giveUp(&a)
			return
		}
		at := time.Now()
		u.collect(&a, at, closing == nil)
		for _, b := range u.next(&a, at) {
			u.batches.Go(func() { u.run(b) })
		}
		if latches := u.due(&a, at, closing == nil); len(latches) > 0 {
			u.batches.Go(func() { u.flushLatches(latches) })
		}
		if closing == nil && len(a.pending)+len(a.busy) == 0 && !a.flushing && u.finished() {
			return
		}
		timer.Reset(a.wait())
	}
}

// collect takes new jobs and the results of finished batches.
func (u *cleanup) collect(a *agenda, at time.Time, closing bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a.pending = append(a.pending, u.jobs...)
	u.jobs = nil
	for _, b := range u.returned {
		delete(a.busy, b.lane)
		if b.lane.again {
			a.repeating--
		}
		for _, j := range b.jobs {
			if !j.over {
				a.pending = append(a.pending, j)
			}
		}
	}
	u.returned = nil
	if u.flushed {
		u.flushed, a.flushing = false, false
	}
	switch {
	case closing:
		for _, j := range a.pending {
			j.next = earlier(j.next, at.Add(repeatMax)) // later jobs might run out of time
		}
		u.sweepLocked(true)
		a.sweep = time.Time{}
	case !a.sweep.IsZero() && !at.Before(a.sweep):
		u.sweepLocked(false)
		a.sweep = time.Time{}
	}
	if a.sweep.IsZero() && u.sweeps {
		a.sweep = at.Add(sweepPause)
	}
	if a.flush.IsZero() && len(u.latches) > 0 {
		a.flush = at.Add(latchPause)
	}
}

// next removes due batches from the pending jobs: one for each idle lane.
func (u *cleanup) next(a *agenda, at time.Time) []batch {
	ready := make(map[lane][]*job)
	rest := a.pending[:0]
	for _, j := range a.pending {
		if j.next.After(at) {
			rest = append(rest, j)
			continue
		}
		l := u.laneOf(j)
		if a.busy[l] {
			rest = append(rest, j)
			continue
		}
		ready[l] = append(ready[l], j)
	}
	var batches []batch
	for l, jobs := range ready {
		if l.again && a.repeating >= cleanupLanes {
			rest = append(rest, jobs...)
			continue
		}
		chosen, others := choose(jobs, at)
		rest = append(rest, others...)
		if len(chosen) == 0 {
			continue
		}
		a.busy[l] = true
		if l.again {
			a.repeating++
		}
		batches = append(batches, batch{l, chosen})
	}
	clear(a.pending[len(rest):])
	a.pending = rest
	return batches
}

func (u *cleanup) laneOf(j *job) lane {
	spread := u.client.nature.spread
	l := lane{again: j.again}
	switch {
	case spread == nil:
	case j.again:
		l.slot = spread.Slot(j.name())
	default:
		l.route = spread.Route(j.name())
	}
	return l
}

// choose selects jobs for one batch, releases first, and also returns the rest.
func choose(jobs []*job, at time.Time) (chosen, rest []*job) {
	slices.SortStableFunc(jobs, func(a, b *job) int { return a.rank() - b.rank() })
	size := 0
	for i, j := range jobs {
		if size > 0 && size+j.size() > cleanupBatch {
			return chosen, append(rest, jobs[i:]...)
		}
		switch {
		case !j.takeTurn():
			j.next = at.Add(repeatMin)
			rest = append(rest, j)
		case j.stands():
			size += j.size()
			chosen = append(chosen, j)
		}
	}
	return chosen, rest
}

// rank orders jobs: releases come first, since other owners may wait for the lock.
func (j *job) rank() int {
	switch {
	case j.lease != nil:
		return 0
	case j.change != nil:
		return 1
	}
	return 2
}

// size returns the number of locks or permits of the job.
func (j *job) size() int {
	switch {
	case j.lease != nil:
		return j.lease.size()
	case j.change == nil && j.request.target.kind.parted:
		return max(1, j.request.permits)
	}
	return 1
}

// wait returns the time until the loop has work, unless a batch returns earlier.
func (a *agenda) wait() time.Duration {
	now := time.Now()
	at := now.Add(time.Hour)
	if !a.flush.IsZero() && !a.flushing {
		at = earlier(at, a.flush)
	}
	if !a.sweep.IsZero() {
		at = earlier(at, a.sweep)
	}
	for _, j := range a.pending {
		if j.next.After(now) { // otherwise its lane is busy
			at = earlier(at, j.next)
		}
	}
	return at.Sub(now)
}

// run sends a batch and returns the batch to the loop.
func (u *cleanup) run(b batch) {
	limit := cleanupLimit
	switch {
	case u.client.nature.spread == nil:
	case b.lane.again:
		limit = againLimit
	default:
		limit = freshLimit
	}
	u.send(u.life, b.jobs, limit)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.returned = append(u.returned, b)
	u.wakeLocked()
}

// send runs jobs that have their turns, in one write.
func (u *cleanup) send(life context.Context, jobs []*job, limit time.Duration) {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	calls, runs := make([]script.Call, len(jobs)), make([]*remote.Call, len(jobs))
	for i, j := range jobs {
		runs[i] = j.call(u.client)
		runs[i].Once = true
		calls[i] = runs[i].Script.Call(runs[i].Keys, runs[i].Args...)
	}
	replies, err := script.RunBatch(remote.Dividing(ctx), u.client.server, calls)
	at := time.Now()
	for i, j := range jobs {
		var v resp.Value
		failure := err
		if i < len(replies) {
			v, failure = replies[i], replies[i].Err()
		}
		if remote.Refused(failure) {
			v, failure = u.client.scripts.Divide(remote.Dividing(ctx), u.client.server, runs[i], failure)
		}
		if failure == nil {
			j.answered(u.client, v, at)
			continue
		}
		if final(failure) && errors.Is(failure, conn.ErrClosed) {
			u.count(j)
		}
		j.failed(failure, at)
	}
}

// failed records a request without a reply, or with an error reply.
func (j *job) failed(err error, at time.Time) {
	if remote.Uncertain(err) {
		switch {
		case j.change != nil:
			j.change.unsure = true
		case j.lease != nil && !j.stale:
			j.lease.repeated = true
		}
	}
	switch {
	case final(err):
		j.finish(serverError(err))
	case at.After(j.until) && !j.turn:
		j.finish(fmt.Errorf("%w: %w", ErrUncertain, err))
	default:
		j.postpone(at)
	}
}

// runAlone runs a job without the loop, for a limited time.
func (u *cleanup) runAlone(j *job) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLast)
	defer cancel()
	for !j.over {
		if j.takeTurn() && j.stands() {
			u.send(ctx, []*job{j}, cleanupLast)
		}
		if j.over {
			return
		}
		select {
		case <-time.After(max(j.pause, repeatMin)):
		case <-ctx.Done():
			u.client.log.Warn("given up after Close", "name", j.name(), "error", errEnded)
			j.finish(errEnded)
		}
	}
}

var errEnded = fmt.Errorf("%w: %w", ErrUncertain, ErrClosed)

// finished ends the loop, unless there is new work.
func (u *cleanup) finished() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = len(u.jobs)+len(u.returned)+len(u.latches)+len(u.spares) == 0
	return u.closed
}

// count counts an abandoned job, at the end or after the Close of the Server.
func (u *cleanup) count(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.given.add(j)
}

// giveUp ends the loop and abandons its work.
func (u *cleanup) giveUp(a *agenda) {
	u.batches.Wait()
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.collect(a, time.Now(), true)
	for _, j := range a.pending {
		if !j.takeTurn() || j.stands() {
			u.count(j)
			j.finish(errEnded)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.latches) > 0 {
		u.client.log.Warn("latches stay until they expire", "count", len(u.latches), "error", ErrClosed)
	}
}

// due returns the latches to delete now.
func (u *cleanup) due(a *agenda, at time.Time, closing bool) []latch {
	if a.flushing || a.flush.IsZero() || at.Before(a.flush) && !closing {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	latches := u.latches
	u.latches, a.flush = nil, time.Time{}
	a.flushing = len(latches) > 0
	return latches
}

func (u *cleanup) flushLatches(latches []latch) {
	u.forget(u.life, latches, cleanupLimit)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flushed = true
	u.wakeLocked()
}
