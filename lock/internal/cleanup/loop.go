package cleanup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
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

// The lanes of what is no batch: making jobs for kept work, and deleting latches.
var againLane, latchLane = lane{again: true, slot: -1}, lane{slot: -1}

// batch is a group of jobs sent together.
type batch struct {
	lane lane
	jobs []*Job
}

// agenda is the pending work of the loop.
type agenda struct {
	pending      []*Job
	busy         map[lane]bool
	flush, sweep time.Time // the times to delete latches and to sweep the spares; zero for none
	resend       time.Time // the time to send kept work again; zero for none
	loss         bool      // resend is about a loss, and not only about unknown masters
	resent       time.Time // the time of the last such repetition
}

// repeating returns the number of busy lanes of repeats.
func (a *agenda) repeating() (n int) {
	for l := range a.busy {
		if l.again {
			n++
		}
	}
	return n
}

// reached reports whether the time of an agenda has come at the time at.
func reached(t, at time.Time) bool { return !t.IsZero() && !at.Before(t) }

// loop is the goroutine of cleanup, from the first work until Close.
func (u *Cleanup) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	a := agenda{busy: make(map[lane]bool)}
	closing := u.asking.Done()
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
		if due, loss := u.resend(&a, at, closing == nil); due {
			u.batches.Go(func() { u.sendAgain(at, loss) })
		}
		u.collect(&a, at, closing == nil)
		for _, b := range u.next(&a, at) {
			u.batches.Go(func() { u.run(b) })
		}
		if latches := u.dueLatches(&a, at, closing == nil); len(latches) > 0 {
			u.batches.Go(func() { u.flushLatches(latches) })
		}
		if closing == nil && len(a.pending)+len(a.busy) == 0 && u.finished() {
			return
		}
		timer.Reset(a.wait())
	}
}

// collect takes new jobs and the results of finished batches.
func (u *Cleanup) collect(a *agenda, at time.Time, closing bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a.pending = append(a.pending, u.jobs...)
	u.jobs = nil
	for _, b := range u.returned {
		delete(a.busy, b.lane)
		for _, j := range b.jobs {
			if !j.over {
				a.pending = append(a.pending, j)
			}
		}
	}
	u.returned = nil
	switch {
	case closing:
		a.dropKept()
		for _, j := range a.pending {
			j.next = clock.Earlier(j.next, at.Add(repeatMax)) // later jobs might run out of time
		}
		u.sweepLocked(true)
		a.sweep = time.Time{}
	case reached(a.sweep, at):
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
func (u *Cleanup) next(a *agenda, at time.Time) []batch {
	ready := make(map[lane][]*Job)
	rest := a.pending[:0]
	for _, j := range a.pending {
		if l := u.laneOf(j); a.busy[l] || j.next.After(at) {
			rest = append(rest, j)
		} else {
			ready[l] = append(ready[l], j)
		}
	}
	var batches []batch
	for l, jobs := range ready {
		if l.again && a.repeating() >= lanesMost {
			rest = append(rest, jobs...)
			continue
		}
		chosen, others := choose(jobs, at)
		rest = append(rest, others...)
		if len(chosen) == 0 {
			continue
		}
		a.busy[l] = true
		batches = append(batches, batch{l, chosen})
	}
	clear(a.pending[len(rest):])
	a.pending = rest
	return batches
}

func (u *Cleanup) laneOf(j *Job) lane {
	if j.again {
		return lane{again: true, slot: u.cfg.Server.SlotOf(j.work.Name())}
	}
	return lane{route: u.cfg.Server.Route(j.work.Name())}
}

// choose selects jobs for one batch, releases first, and also returns the rest.
func choose(jobs []*Job, at time.Time) (chosen, rest []*Job) {
	slices.SortStableFunc(jobs, func(a, b *Job) int { return int(a.work.Rank() - b.work.Rank()) })
	size := 0
	for i, j := range jobs {
		if size > 0 && size+j.work.Size() > batchSize {
			return chosen, append(rest, jobs[i:]...)
		}
		switch {
		case !j.ready():
			j.next = at.Add(repeatMin)
			rest = append(rest, j)
		case j.needed():
			size += j.work.Size()
			chosen = append(chosen, j)
		}
	}
	return chosen, rest
}

// wait returns the time until the loop has work, unless a batch returns earlier.
func (a *agenda) wait() time.Duration {
	now := time.Now()
	at := now.Add(time.Hour)
	if !a.flush.IsZero() && !a.busy[latchLane] {
		at = clock.Earlier(at, a.flush)
	}
	if !a.sweep.IsZero() {
		at = clock.Earlier(at, a.sweep)
	}
	if !a.resend.IsZero() && !a.busy[againLane] {
		at = clock.Earlier(at, a.resend)
	}
	for _, j := range a.pending {
		if j.next.After(now) { // otherwise its lane is busy
			at = clock.Earlier(at, j.next)
		}
	}
	return at.Sub(now)
}

// run sends a batch and returns the batch to the loop.
func (u *Cleanup) run(b batch) {
	limit := batchLimit
	switch {
	case u.cfg.Server.Spread == nil:
	case b.lane.again:
		limit = againLimit
	default:
		limit = freshLimit
	}
	u.send(u.life, b.jobs, limit)
	u.giveBack(b)
}

// giveBack returns a finished batch to the loop, and frees its lane.
func (u *Cleanup) giveBack(b batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.returned = append(u.returned, b)
	netfail.Signal(u.signal)
}

// send runs jobs that have their turns, in one write.
func (u *Cleanup) send(life context.Context, jobs []*Job, limit time.Duration) {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	calls, runs := make([]script.Call, len(jobs)), make([]*remote.Call, len(jobs))
	for i, j := range jobs {
		runs[i] = j.work.Call()
		runs[i].NoRetry = true
		calls[i] = runs[i].Script.Call(runs[i].Keys, runs[i].Args...)
		if runs[i].LineOnly {
			calls[i] = calls[i].AnyOrder()
		}
	}
	replies, err := script.RunBatch(remote.Dividing(ctx), u.cfg.Server.Doer, calls)
	at := time.Now()
	for i, j := range jobs {
		var v resp.Value
		failure := err
		if i < len(replies) {
			v, failure = replies[i], replies[i].Err()
		}
		if remote.TryAgain(failure) {
			v, failure = u.cfg.Runner.RunMigrating(remote.Dividing(ctx), runs[i], failure)
		}
		if failure == nil {
			u.answered(j, v, at)
			continue
		}
		if remote.Final(failure) && errors.Is(failure, conn.ErrClosed) {
			u.count(j)
		}
		u.failed(j, failure, at)
	}
}

// runAlone runs a job without the loop, for a limited time.
func (u *Cleanup) runAlone(j *Job) {
	ctx, cancel := context.WithTimeout(context.Background(), aloneLast)
	defer cancel()
	for !j.over {
		if j.ready() && j.needed() {
			u.send(ctx, []*Job{j}, aloneLast)
		}
		if j.over {
			return
		}
		select {
		case <-time.After(max(j.pause, repeatMin)):
		case <-ctx.Done():
			u.cfg.Server.Log.WarnOf(j.work.Name(), "", "", "given up after Close", "error", u.cfg.Ended)
			j.finish(u.cfg.Ended)
		}
	}
}

// finished ends the loop, unless there is new work.
func (u *Cleanup) finished() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = len(u.jobs)+len(u.returned)+len(u.latches)+len(u.spares) == 0
	return u.closed
}

// count counts an abandoned job, at the end or after the Close of the Server.
func (u *Cleanup) count(j *Job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	j.work.Count(&u.abandoned)
}

// giveUp ends the loop and abandons its work.
func (u *Cleanup) giveUp(a *agenda) {
	u.batches.Wait()
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.collect(a, time.Now(), true)
	for _, j := range a.pending {
		if !j.ready() || j.needed() {
			u.count(j)
			j.finish(u.cfg.Ended)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.latches) > 0 {
		u.cfg.Server.Log.Warn("latches stay until they expire", "count", len(u.latches), "error", u.cfg.Ended)
	}
}
