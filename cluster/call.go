package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// target is where an attempt goes.
type target struct {
	node   *node // nil: nobody serves the slot
	slot   int
	asking bool // behind ASKING
}

// send makes an attempt with one command.
func (at target) send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	switch {
	case at.node == nil:
		return resp.Value{}, at.unserved(&cmd)
	case !at.asking:
		return at.node.pool.Send(ctx, cmd)
	}
	values, err := at.node.pool.SendBatch(ctx, []resp.Command{askingFor(&cmd), cmd})
	if err != nil {
		return resp.Value{}, err
	}
	if err := values[1].Err(); err != nil {
		return resp.Value{}, err
	}
	return values[1], nil
}

var asking = resp.Cmd("ASKING")

// askingFor returns the ASKING in front of cmd, for the connection that cmd would take.
func askingFor(cmd *resp.Command) resp.Command {
	if key, ok := cmd.Key(); ok {
		return asking.On(key)
	}
	return asking
}

// unserved is the error of an attempt that no node was there for.
func (at target) unserved(cmd *resp.Command) error {
	return &conn.Error{Op: commandName(cmd), Err: unserved{at.slot}}
}

// call is what the attempts of one call of a caller have in common: one budget over redirections, dials and pauses.
type call struct {
	c      *Cluster
	ctx    context.Context
	name   string // of the command, for traces
	slot   int
	pinned *node // if the call concerns no other

	history
	pauses int
	start  time.Time // of the first failure
	cause  error     // the last failure that was no redirection
}

// next decides what follows from the failure err of an attempt at a target. It returns the next target when it is time for
// the next attempt, and otherwise the error for the caller.
func (k *call) next(at target, err error) (target, error) {
	d := k.decide(at, err, &k.cause)
	if d.action == stop {
		return target{}, d.err
	}
	k.count(err)
	if waited := k.pause(d, at, err); waited != nil {
		return target{}, waited
	}
	return k.target(d, at), nil
}

// decide is the function of that name for this call, and acts on what it says about the topology. cause is why the attempt
// before failed, if that was no redirection; of one that leads nowhere it is the reason that the caller is told.
func (k *call) decide(at target, err error, cause *error) decision {
	c := k.c
	var from origin
	if at.node != nil {
		from = at.node.from
	}
	if k.failures == 0 {
		k.start = time.Now()
	} else {
		k.elapsed = time.Since(k.start)
	}
	k.asking = at.asking
	d := decide(err, from, k.history, c.policy)
	mine := k.ctx.Err() != nil // what the caller's own limit causes is nobody's sickness
	if at.node != nil && d.refresh && !mine && isTransport(err) {
		at.node.sick.Store(time.Now().UnixNano())
	}
	if d.refresh {
		c.wantRefresh()
	}
	if d.action == follow && k.pinned == nil {
		c.moved(d.slot, d.addr)
	}
	if isRedirect(err) {
		err = k.explain(err, *cause)
		if d.action == stop && *cause != nil && !errors.Is(d.err, errLoop) {
			d.err = err
		}
	} else {
		*cause = err
	}
	switch {
	case d.action == stop:
	case errors.Is(err, resp.ErrTryAgain) && !isTransport(err) && k.ctx.Value(conn.NoTryAgain) == true:
		d = decision{action: stop, err: err}
	case mine && !errors.Is(err, k.ctx.Err()):
		d = decision{action: stop, err: k.over(netfail.Ended(k.ctx), err)}
	case c.isClosed() && !errors.Is(err, conn.ErrClosed):
		d = decision{action: stop, err: k.over(conn.ErrClosed, err)}
	case mine, c.isClosed(), k.pinned != nil && (d.action == follow || d.action == ask || hasLeft(err)):
		d = decision{action: stop, err: err}
	}
	return d
}

// explain is the error of a redirection behind an attempt that failed with cause.
func (k *call) explain(redirect, cause error) error {
	e, ok := cause.(*conn.Error)
	switch {
	case cause == nil:
		return redirect
	case !ok: // what the node said that the redirection led to
		e = &conn.Error{Err: cause}
	}
	return &conn.Error{Op: k.name, Addr: e.Addr, Err: fmt.Errorf("%w; sent there by: %w", e.Err, redirect)}
}

// isTransport reports whether err is not an answer of the server to the command.
func isTransport(err error) bool {
	return errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent)
}

func (k *call) count(err error) {
	k.failures++
	if isRedirect(err) {
		k.redirects++
	} else {
		k.redirects = 0
	}
}

// disagreement is how many steps longer the pauses are between redirections. Nodes that send a call to and fro need a
// heartbeat, of which there are some in a second, to agree; a call must not use up its redirections before.
const disagreement = 3

// downPause bounds the pauses while a node says CLUSTERDOWN. One that has lost nothing is back at once when the cluster is, and
// says no sooner that it is.
const downPause = 64 * time.Millisecond

// pause waits as d says. An error means that the call is over.
func (k *call) pause(d decision, at target, err error) error {
	var wait time.Duration
	retry := k.c.cfg.Node.Retry
	if d.pause {
		n := k.pauses
		if isRedirect(err) {
			n += disagreement
		}
		if errors.Is(err, resp.ErrClusterDown) {
			retry.MaxBackoff = min(retry.MaxBackoff, max(downPause, retry.MinBackoff))
		}
		wait = netfail.Backoff(n, retry.MinBackoff, retry.MaxBackoff, rand.Float64())
		k.pauses++
	}
	var done <-chan struct{}
	if d.action == relocate {
		done = k.c.wantRefresh()
		wait = max(wait, k.c.cfg.Node.Retry.MaxBackoff)
	}
	k.c.retries.Add(1)
	if t := k.c.cfg.Node.Trace; t != nil && t.Retry != nil {
		t.Retry(conn.RetryInfo{Name: k.name, Addr: at.addr(), Attempt: k.failures, Pause: wait, Err: err})
	}
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-k.c.done:
		return k.over(conn.ErrClosed, err)
	case <-k.ctx.Done():
		return k.over(netfail.Ended(k.ctx), err)
	}
	return nil
}

// over is the error of a call that ends for a reason of its own after an attempt that failed with last.
func (k *call) over(reason, last error) error {
	return &conn.Error{Op: k.name, Err: fmt.Errorf("%w; last attempt: %w", reason, last)}
}

func (at target) addr() string {
	if at.node == nil {
		return ""
	}
	return at.node.addr
}

// target returns where the next attempt goes.
func (k *call) target(d decision, at target) target {
	switch {
	case k.pinned != nil:
		return at
	case d.action == ask:
		k.c.asked.Add(1)
		return target{node: k.c.nodeAt(d.addr), slot: at.slot, asking: true}
	case d.action == follow:
		// After a pause others may know better.
		if now := k.c.targetOf(at.slot); d.pause && now.node != nil && now.node != at.node {
			return now
		}
		return target{node: k.c.nodeAt(d.addr), slot: at.slot}
	case d.action == redial:
		k.redialled = true
		return target{node: k.c.redial(at.node), slot: at.slot}
	}
	return k.c.targetOf(at.slot)
}

// commandName returns the name of a command for errors, if it looks like one, so that no argument gets there by a mistake.
func commandName(cmd *resp.Command) string {
	const longest = 40
	name := cmd.Name()
	if name == "" || len(name) > longest {
		return "command"
	}
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b|0x20 && b|0x20 <= 'z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			return "command"
		}
	}
	return name
}
