package cluster

import (
	"context"
	"errors"
	"fmt"
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
	if !at.read {
		return at.node.pool
	}
	n := at.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reader == nil && !n.closed {
		n.reader, _ = n.dialReader() // no error: n.pool has the same Config
	}
	if n.reader == nil {
		return n.pool // closed too
	}
	return n.reader
}

// send makes an attempt with one command.
func (at target) send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	switch {
	case at.node == nil:
		return resp.Value{}, at.unserved(commandName(&cmd))
	case !at.asking:
		return at.pool().Send(ctx, cmd)
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

// call is the state of one method call over all its attempts. It decides after each failed attempt, and keeps the
// bounds on redirections, attempts and time.
type call struct {
	c      *Cluster
	ctx    context.Context
	name   string // the command's name, for traces
	pinned *node  // nil unless the call is bound to one node

	history
	repeats     int       // attempts after the first, including those after an attempt at a replica
	pauses      int       // pauses so far; each is longer than the one before
	start       time.Time // time of the first failure
	lastFailure error     // last failure other than a redirection
}

// next decides after an attempt at a target has failed with err. For another attempt, next waits and returns the next
// target. Otherwise it returns the error for the caller.
func (k *call) next(at target, err error) (target, error) {
	d := k.decide(at, err, &k.lastFailure)
	if d.action == stop {
		return target{}, d.err
	}
	k.countFailure(at, err)
	if waited := k.pause(d, at, err); waited != nil {
		return target{}, waited
	}
	return k.target(d, at), nil
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

// decide applies the function decide to this call, and then the bounds that only the call knows: its context, its values
// and its pinned node. last is the last failure other than a redirection, which decide updates. If a redirection leads
// nowhere, the error for the caller contains both.
func (k *call) decide(at target, err error, last *error) decision {
	d := k.learn(at, err)
	if d.action != stop && !isTransport(err) && k.wantsRefusals() {
		return decision{action: stop, err: err}
	}
	if at.read && d.action != stop {
		d = decision{action: again} // at once, with the owner
	}
	earlier := *last
	if isRedirect(err) {
		err = k.explain(err, earlier)
		if d.action == stop && !errors.Is(d.err, errLoop) {
			d.err = err
		}
	} else {
		*last = err
	}
	if why := k.endReason(d, err, earlier); why != nil {
		return decision{action: stop, err: why}
	}
	return d
}

// wantsRefusals reports whether the caller wants a refusal as the reply, without another attempt: see conn.NoRepeat.
func (k *call) wantsRefusals() bool { return k.ctx.Value(conn.NoRepeat) == true }

// learn returns the decision of the function decide about the failure err, and updates the table of slots by it. The node
// becomes sick if it did not answer, unless the caller's context has ended. A redirection by a replica does not change the
// table, because a replica may not know of a failover yet.
func (k *call) learn(at target, err error) decision {
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
	bounds := k.c.policy
	if at.read {
		bounds = unbounded
	}
	d := decide(err, from, k.history, bounds)
	if d.refresh {
		if at.node != nil && k.ctx.Err() == nil && isTransport(err) {
			at.node.sick.Store(time.Now().UnixNano())
		}
		k.c.wantRefresh()
	}
	switch {
	case k.pinned != nil, at.read:
	case d.action == follow:
		k.c.moved(d.slot, d.addr)
	case d.action == redial:
		k.c.redial(at.node)
	}
	return d
}

// endReason returns the error for the caller if the call ends although d allows another attempt: its context or the
// Cluster has ended, the caller wants TRYAGAIN, or the call must not go to another node. It returns nil if d stands.
// earlier is the last failure before err that was no redirection.
func (k *call) endReason(d decision, err, earlier error) error {
	end, closed := k.ctx.Err(), k.c.isClosed()
	isEnd := end != nil && errors.Is(err, end) // err only says that the context has ended
	switch {
	case isEnd && earlier != nil && errors.Is(err, conn.ErrNotSent):
		return k.endedError(netfail.Ended(k.ctx), earlier)
	case d.action == stop:
		return nil
	case errors.Is(err, resp.ErrTryAgain) && !isTransport(err) && k.ctx.Value(conn.NoTryAgain) == true:
		return err
	case end != nil && !isEnd:
		return k.endedError(netfail.Ended(k.ctx), err)
	case closed && !errors.Is(err, conn.ErrClosed):
		return k.endedError(conn.ErrClosed, err)
	case end != nil, closed, k.pinned != nil && (d.action == follow || d.action == ask || hasLeft(err)):
		return err
	}
	return nil
}

// explain returns the error of a redirection, together with cause, the earlier failure that is no redirection, or nil.
func (k *call) explain(redirect, cause error) error {
	e, ok := cause.(*conn.Error)
	switch {
	case cause == nil:
		return redirect
	case !ok: // cause is the reply of the node that the redirection named
		e = &conn.Error{Err: cause}
	}
	return &conn.Error{Op: k.name, Addr: e.Addr, Err: fmt.Errorf("%w; redirected there by: %w", e.Err, redirect)}
}

// countFailure counts an attempt that failed. An attempt at a replica does not count towards the bounds of the call.
func (k *call) countFailure(at target, err error) {
	if at.read {
		return
	}
	k.failures++
	if isRedirect(err) {
		k.redirects++
	} else {
		k.redirects = 0
	}
}

// disagreement is the number of doublings by which pauses between redirections are longer than others. Nodes that
// redirect a call back and forth agree after a heartbeat, some hundred milliseconds; the redirections of the call must
// last until then.
const disagreement = 3

// downPause limits the pauses after CLUSTERDOWN: the node is ready in the moment in which the cluster is.
const downPause = 64 * time.Millisecond

// pause waits for the backoff if d.pause is set, and after relocate for a refresh of the topology or MaxBackoff. An error
// ends the call.
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
		wait = netfail.Backoff(n, retry.MinBackoff, retry.MaxBackoff)
		k.pauses++
	}
	var done <-chan struct{}
	if d.action == relocate {
		done = k.c.wantRefresh()
		wait = max(wait, k.c.cfg.Node.Retry.MaxBackoff)
	}
	k.c.retries.Add(1)
	k.repeats++
	if t := k.c.cfg.Node.Trace; t != nil && t.Retry != nil {
		t.Retry(k.ctx, conn.RetryInfo{Name: k.name, Addr: at.addr(), Attempt: k.repeats, Pause: wait, Err: err})
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
		return k.endedError(conn.ErrClosed, err)
	case <-k.ctx.Done():
		return k.endedError(netfail.Ended(k.ctx), err)
	}
	return nil
}

// endedError returns the error of a call that ends for reason, after an attempt that failed with last.
func (k *call) endedError(reason, last error) error {
	return &conn.Error{Op: k.name, Err: fmt.Errorf("%w; last attempt: %w", reason, last)}
}

func (at target) addr() string {
	if at.node == nil {
		return ""
	}
	return at.node.addr
}

func (k *call) target(d decision, at target) target {
	switch {
	case k.pinned != nil:
		return at
	case d.action == ask:
		k.c.asked.Add(1)
		return target{node: k.c.nodeAt(d.addr), slot: at.slot, asking: true}
	case d.action == follow:
		// After a pause the table may know a newer owner.
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

// commandName returns the name of a command for errors. A name with unusual characters becomes
// "command", so that an argument in the wrong position never appears in an error.
func commandName(cmd *resp.Command) string { return netfail.Op(cmd.Name()) }
