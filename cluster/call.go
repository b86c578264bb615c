package cluster

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// target is the destination of an attempt.
type target struct {
	node   *node // nil if no node serves the slot
	slot   int
	asking bool // send ASKING first
	read   bool // the first attempt of a read, at a replica of the owner
}

func (at target) pool() *conn.Pool {
	if at.read {
		return at.node.reader
	}
	return at.node.pool
}

// send makes an attempt with one command.
func (at target) send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	if at.node != nil && !at.asking {
		return at.pool().Send(ctx, cmd)
	}
	values, err := at.together(ctx, []resp.Command{cmd})
	if err == nil {
		err = values[0].Err()
	}
	if err != nil {
		return resp.Value{}, err
	}
	return values[0], nil
}

// together makes an attempt with a batch that is not split. With an error it returns the replies to the first commands.
func (at target) together(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	switch {
	case at.node == nil:
		return nil, at.unserved(commandName(&cmds[0]))
	case !at.asking:
		return at.node.pool.SendBatch(ctx, cmds)
	}
	sent := make([]resp.Command, 0, 2*len(cmds))
	for i := range cmds {
		sent = append(sent, askingFor(&cmds[i]), cmds[i])
	}
	replies, err := at.node.pool.SendBatch(ctx, sent)
	values := make([]resp.Value, 0, len(cmds))
	for i := 1; i < len(replies); i += 2 {
		values = append(values, replies[i])
	}
	return values, err
}

var asking = resp.Cmd("ASKING")

// askingFor returns an ASKING that takes the same connection as cmd.
func askingFor(cmd *resp.Command) resp.Command {
	if key, ok := cmd.Key(); ok {
		return asking.On(key)
	}
	return asking
}

func (at target) unserved(name string) error {
	return &conn.Error{Op: name, Err: unserved{at.slot}}
}

// call is the state of one method call over all its attempts. The function decide decides after each.
type call struct {
	c      *Cluster
	ctx    context.Context
	name   string // the command's name, for errors and traces
	pinned *node  // nil unless the call is bound to one node
	called bool   // the function of With was called: nothing is repeated

	history
	repeats     int       // attempts after the first, including those after an attempt at a replica
	pauses      int       // pauses so far
	start       time.Time // time of the first failure
	lastFailure error     // last failure other than a redirection

	refreshed <-chan struct{} // closed at the end of the refresh that the last decision has requested
}

// run calls send, first with the target at, until send succeeds or k allows no further attempt.
func run[T any](k *call, at target, send func(target) (T, error)) (none T, err error) {
	for {
		v, err := send(at)
		if err == nil {
			return v, nil
		}
		if at, err = k.next(at, err); err != nil {
			return none, err
		}
	}
}

// next carries out the decision about an attempt that failed with err: it waits and returns the next
// target, or returns the error for the caller.
func (k *call) next(at target, err error) (target, error) {
	d := k.decide(at, err, &k.lastFailure)
	switch {
	case k.called:
		return target{}, err
	case d.action == stop:
		return target{}, d.err
	}
	k.history = d.after
	if ended := k.pause(d, at); ended != nil {
		return target{}, ended
	}
	return k.nextTarget(d, at), nil
}

// decide returns the decision about an attempt that failed with err, and the Cluster learns from the
// failure. last is the last failure other than a redirection, which decide updates.
func (k *call) decide(at target, err error, last *error) decision {
	now := time.Now()
	if k.failures == 0 {
		k.start = now
	}
	a := attempt{
		err: err, asking: at.asking, read: at.read, earlier: *last, elapsed: now.Sub(k.start), history: k.history,
		bounds: k.c.cfg.policy(), name: k.name, pinned: k.pinned != nil, noRepeat: k.wantsRefusals(),
		noTryAgain: k.ctx.Value(conn.NoTryAgain) == true, ctxErr: k.ctx.Err(), closed: k.c.isClosed(),
	}
	if at.node != nil {
		a.from = at.node.from
	}
	if a.ctxErr != nil {
		a.ctxEnd = netfail.Ended(k.ctx)
	}
	d := decide(a)
	if !isRedirect(err) {
		*last = err
	}
	if d.silent && at.node != nil {
		at.node.sick.Store(now.UnixNano())
	}
	if d.refresh {
		k.refreshed = k.c.wantRefresh()
	}
	switch {
	case d.moved:
		k.c.moved(d.slot, d.addr)
	case d.changed:
		k.c.redial(at.node)
	}
	return d
}

// wantsRefusals reports whether the caller wants a refusal as the reply, without another attempt: see conn.NoRepeat.
func (k *call) wantsRefusals() bool { return k.ctx.Value(conn.NoRepeat) == true }

// pause waits as d says, and before relocate for the refresh of the topology that decide has requested, or MaxBackoff. An
// error ends the call.
func (k *call) pause(d decision, at target) error {
	retry := k.c.cfg.Node.Retry
	wait := d.pause.length(k.pauses, retry)
	if d.pause != noPause {
		k.pauses++
	}
	var done <-chan struct{}
	if d.action == relocate {
		done = k.refreshed
		wait = max(wait, retry.MaxBackoff)
	}
	k.c.retries.Add(1)
	k.repeats++
	if t := k.c.cfg.Node.Trace; t != nil && t.Retry != nil {
		info := conn.RetryInfo{Name: k.name, Attempt: k.repeats, Pause: wait, Err: d.err}
		if at.node != nil {
			info.Addr = at.node.addr
		}
		t.Retry(k.ctx, info)
	}
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-k.c.life.Done():
		return endedError(k.name, conn.ErrClosed, d.err)
	case <-k.ctx.Done():
		return endedError(k.name, netfail.Ended(k.ctx), d.err)
	}
	return nil
}

// nextTarget returns the target of the next attempt, given the decision d about the last one, which had the target at.
func (k *call) nextTarget(d decision, at target) target {
	switch {
	case k.pinned != nil:
		return at
	case d.action == ask:
		k.c.asked.Add(1)
		return target{node: k.c.nodeAt(d.addr), slot: at.slot, asking: true}
	case d.action == follow:
		// After a pause the table may know a newer owner.
		if now := k.c.targetOf(at.slot); d.pause != noPause && now.node != nil && now.node != at.node {
			return now
		}
		return target{node: k.c.nodeAt(d.addr), slot: at.slot}
	case d.action == redial:
		return target{node: k.c.redial(at.node), slot: at.slot}
	}
	return k.c.targetOf(at.slot)
}
