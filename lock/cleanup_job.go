package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// forget deletes latches. After a failure, latches stay until they expire.
func (u *cleanup) forget(life context.Context, latches []latch, limit time.Duration) {
	if len(latches) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	ctx = remote.Patient(ctx)
	replies, err := u.client.server.SendBatch(ctx, u.forgetting(latches))
	if err == nil && errors.Is(replies[len(replies)-1].Err(), resp.ErrCrossSlot) && !u.apart.Swap(true) {
		_, err = u.client.server.SendBatch(ctx, u.forgetting(latches))
	}
	if err != nil {
		u.client.log.Warn("latches stay until they expire", "count", len(latches), "error", err)
	}
}

// forgetting returns the commands to delete latches, or to set their expiry. A single server deletes many latches by
// one command, at much less cost for both sides, unless the server has turned out to be a node of a cluster.
func (u *cleanup) forgetting(latches []latch) (commands []resp.Command) {
	apart := u.client.nature.spread != nil || u.apart.Load()
	words := make([]string, 1, 1+len(latches))
	words[0] = "DEL"
	for _, l := range latches {
		var cmd resp.Command
		switch {
		case l.until > 0:
			cmd = resp.Cmd("PEXPIREAT", l.key, l.until)
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

// takeTurn takes the owner's turn for a job of an Owner, and reports whether the job has the turn.
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

// stands reports whether there is work left. stands ends a late release if the server has none of its owner's holds
// of that time, and a change if the server may no longer recognize a repeat.
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

// call returns the job's script call. The caller has the owner's turn, if there is an Owner.
func (j *job) call(c *Client) *remote.Call {
	switch {
	case j.change != nil:
		return j.change.call(c.clocks.Last(j.name()))
	case j.lease != nil:
		// The latch of the release may have expired, or may expire before a reply arrives. A late release keeps the same
		// latch: earlier requests may still arrive.
		j.stale = j.stale || time.Since(j.since) > latchLife/2
		if j.stale {
			return j.lease.lateReleaseCall()
		}
		return j.lease.releaseCall(c.clocks.Last(j.name()))
	}
	if j.place != nil {
		return c.quitCall(j.request.target, j.place)
	}
	r, key := &j.request, j.request.target.hold()
	resting := c.restingLease(key, r.state, r.owner, nil)
	before := int64(0)
	if resting > 0 {
		before = r.state.tallies[key].count
	}
	r.last = max(r.last, c.clocks.Last(r.target.name)) // earlier requests do not outlast the latch
	keys := r.target.lined(r.target.of(r.owner, r.state, r.latch))
	args := c.lineArgs(r.target, c.args(r, resting, r.owner, c.channels.Publishing(r.target.kind.silent), before, r.last))
	return &remote.Call{Script: r.target.kind.Undo, Lock: r.target.remote(), Keys: keys, Args: args, Leaves: !r.target.kind.unowned,
		Tells: true, MayCome: r.state.mayComeOf()}
}

// answered records the server's reply to the job.
func (j *job) answered(c *Client, v resp.Value, at time.Time) {
	switch l := j.lease; {
	case c.clocks.Late(j.name(), v):
		j.failed(remote.ErrLate, at)
	case j.change != nil:
		if err := j.change.answered(v); err != nil {
			j.failed(err, at)
			return
		}
		j.finish(nil)
	case l != nil && j.stale:
		l.tally(l.resting() > 0)
		c.counters.released.Add(1)
		j.settle(fmt.Errorf("%w: it is released now, and may have been lost before", ErrUncertain))
	case l != nil:
		outcome, err := l.answered(v)
		if err != nil {
			j.failed(err, at)
			return
		}
		j.settle(outcome)
	case j.place != nil:
		j.finish(nil)
	default:
		if !j.late && !j.again { // otherwise the latch expires by itself
			c.cleanup.addLatch(j.request.target.name, j.request.latch)
		}
		if j.behind == nil {
			j.finish(nil)
			return
		}
		j.request, j.behind, j.late = *j.behind, nil, false
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
	j.next, j.again = at.Add(j.pause), true
}

// finish ends the job, gives the owner's turn back, and wakes the caller that waits for the outcome.
func (j *job) finish(outcome error) {
	if j.over {
		return
	}
	j.over = true
	defer j.endTrace(outcome)
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
