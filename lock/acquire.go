package lock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// errUnanswered is the failure of a request that stands in line because of requests before it.
var errUnanswered = errors.New("earlier requests for the lock have no answer")

// crowded reports whether r has to stand in line: somebody in this process has the lock or waits for it, or has left without an
// answer. Without the last rule, callers whose deadlines are short for a busy server would all ask it at once, again and again, and
// keep it so busy that none of them has an answer in time. An owner that already has the lock does not stand in line.
func (r *request) crowded() bool {
	c := r.client
	k := r.target.kind
	if k.queued {
		return false
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	line, holders := c.table.entries[r.target.key()], c.table.entries[r.target.hold()]
	if r.state != nil && (holders.heldBy(r.state) || k.twin != nil && c.table.entries[entryKey{k.twin, r.target.name}].heldBy(r.state)) {
		return false
	}
	awaited, held := line != nil && line.first != nil, holders != nil && holders.leases != nil
	if taken := held && r.target.excludes(); awaited || taken {
		r.learn(line, taken)
		return true
	}
	if line != nil && line.unanswered > 0 {
		r.failure = errUnanswered
		return true
	}
	r.sightLocked(line)
	return false
}

// learn records in r the last answer to the line in front of it. taken: this process has the lock.
func (r *request) learn(line *entry, taken bool) {
	if r.refused = taken || line.failure == nil; !r.refused {
		r.failure = line.failure
	}
}

// sightLocked records the number of events on the parked watch of a line, if any.
func (r *request) sightLocked(line *entry) {
	if line != nil && line.parked != nil {
		r.seen.watch = line.parked
		r.seen.count, _ = line.parked.Count()
	}
}

// attempt runs the acquire script once, and again if the request arrived too late to run. attempt reports whether the
// server granted r, with the lease in r.got for kinds with leases, and otherwise the time until the next reason to
// ask. An attempt without a reply is undone in the background.
func (r *request) attempt(ctx context.Context) (granted bool, left time.Duration, err error) {
	c := r.client
	if r.target.kind.Undo != nil {
		if !c.calls.Enter(r.permits) {
			return false, 0, ErrClosed
		}
		defer c.calls.Leave(r.permits)
	}
	if ctx.Done() == nil {
		ctx = c.life
	}
	for late := 1; ; {
		granted, left, err = r.ask(ctx)
		switch {
		case errors.Is(err, remote.ErrLate) && late < remote.Arrivals && ctx.Err() == nil:
			late++
		case err == nil && !granted && left == 0 && r.target.kind.Pass != nil && r.pass(ctx): // the lock is free, and its queue was stuck
			late = 1
		default:
			return granted, left, err
		}
	}
}

// ask is attempt without the repeat.
func (r *request) ask(ctx context.Context) (granted bool, left time.Duration, err error) {
	c := r.client
	if r.turn, err = r.state.take(ctx, r.target.name, c.done, ErrClosed); err != nil {
		return false, 0, err
	}
	defer r.endTurn()
	if !r.unsure && r.target.kind.Undo != nil {
		r.latch = newLatch(r.target)
	}
	r.traced.asked()
	ack, err := r.acking(ctx)
	if err != nil {
		return false, 0, err
	}
	at := r.position()
	v, start, err := r.send(ctx, r.through(ack), at)
	r.asked = r.asked || !errors.Is(err, conn.ErrNotSent)
	if err != nil {
		r.notePlace(at, start, false, err)
		r.unanswered(ctx, start, err)
		return false, 0, c.refused(r.target.name, err)
	}
	if c.clocks.Late(r.target.name, v) {
		return false, 0, remote.ErrLate
	}
	count, token, left, err := r.parseGrant(v)
	switch {
	case err != nil && errors.Is(err, errUnexpected):
		r.undo(start, false)
		return false, left, err
	case err != nil:
		return false, left, c.about(r.target.name, err)
	}
	r.notePlace(at, start, count > 0, nil)
	if count == 0 {
		r.refused, r.short = true, nil
		r.noteLeft(left)
		return false, left, nil
	}
	if err := r.acknowledged(ctx, ack); err != nil {
		r.undo(start, false)
		r.short = err
		return false, 0, err
	}
	return r.granted(start, count, token)
}

// through returns the Doer that sends the acquire. ack may be nil.
func (r *request) through(ack *remote.Acked) conn.Doer {
	server := conn.Doer(r.client.server)
	if ack != nil {
		server = ack
	}
	if r.via != nil {
		server = r.via(server)
	}
	return server
}

// unanswered handles an acquire of r that failed with err. An acquire that may have run is undone, or asked again under the same
// latch.
func (r *request) unanswered(ctx context.Context, start clock.Instant, err error) {
	c := r.client
	k := r.target.kind
	switch {
	case !remote.Uncertain(err):
	case k.unowned && r.waits && ctx.Err() == nil && !c.isClosed():
		r.doubt()
	default:
		if ctx.Err() != nil && k.queued { // otherwise withdraw would send another undo
			r.leaveQueue()
			r.waits = false
		}
		r.undo(start, true)
	}
}

// send sends the acquire script of r, and records in r the time until which the request is valid. start is the time before the
// answered request.
func (r *request) send(ctx context.Context, server conn.Doer, s position) (v resp.Value, start clock.Instant, err error) {
	c, k := r.client, r.target.kind
	start = c.now()
	last := c.clocks.Last(r.target.name)
	r.last = max(r.last, last)
	if k.args == nil && c.remote.Spread == nil { // a shortcut without heap allocations
		keys := r.keys(make([]string, 0, maxKeys))
		args := []any{r.lease.Milliseconds(), r.owner, last, s.place, s.stand}
		if r.target.line == "" {
			args = args[:3]
		}
		v, err = k.Acquire.Run(remote.Patient(ctx), server, keys, args...)
		return v, start, err
	}
	args := append(r.args(r.lease.Milliseconds(), r.owner), last)
	if r.target.line != "" {
		args = append(args, s.place, s.stand)
	}
	if k.permits || k.isRead() { // their grants call the next in the line
		args = append(args, c.channels.ListenersKnown(k.silent), c.channels.Publishing(k.silent))
	}
	return c.runFrom(ctx, server, &remote.Call{Script: k.Acquire, Lock: r.target.remote(), Keys: r.keys(nil), Once: r.waits,
		MayCome: r.own().lastArrival(), Args: args, Leaves: k.joins}, start)
}

// runFrom runs x at start. A request refused by the nodes of a migrating slot has had no effect: runFrom returns the time before the
// last request.
func (c *Client) runFrom(ctx context.Context, server conn.Doer, x *remote.Call, start clock.Instant) (resp.Value, clock.Instant, error) {
	if c.remote.Spread == nil {
		v, err := c.scripts.Run(ctx, server, x)
		return v, start, err
	}
	last := start
	x.Again = func() { last = c.now() }
	v, err := c.scripts.Run(ctx, server, x)
	return v, last, err
}

// acking returns the Acked for sending r, or nil if r needs no acknowledgement, for example because it changes nothing.
func (r *request) acking(ctx context.Context) (*remote.Acked, error) {
	c := r.client
	if !c.replicas.On() || r.target.kind.Undo == nil {
		return nil, nil
	}
	leaves, _ := ctx.Deadline()
	ack, err := c.replicas.New(ctx, remote.Hold{Name: r.target.name, Kind: r.target.kind.Name, Owner: r.owner}, leaves)
	return ack, notReplicated(err)
}

// acknowledged returns an error if too few replicas have the grant. ack may be nil.
func (r *request) acknowledged(ctx context.Context, ack *remote.Acked) error {
	if ack == nil {
		return nil
	}
	bare, err := ack.Confirm(ctx)
	if bare {
		r.client.counters.unacknowledged.Add(1)
		r.traced.note(func(end *AcquireEnd) { end.Unacknowledged = true })
	}
	return notReplicated(err)
}

// granted makes a lease of the server's grant, unless the lease has already ended or the client is closed.
func (r *request) granted(start clock.Instant, count, token int64) (bool, time.Duration, error) {
	c := r.client
	if r.target.kind.unowned {
		if r.latch != "" {
			c.cleanup.SettleLatch(r.target.name, r.latch, r.unsure, r.last)
			r.endDoubt()
		}
		r.shareGrant()
		return true, 0, nil
	}
	l := newLease(c, r, start)
	l.token = token
	if r.state != nil {
		l.period = r.recordGrant(count)
	}
	var refused error
	if l.since = c.now(); start.Elapsed(l.since) >= validity(l.term) {
		r.refused = true
		refused = r.target.grantedLate(c)
	} else if !c.table.register(l) {
		refused = ErrClosed
	}
	if refused != nil {
		r.turn.ungrant(r.target.stored(), false)
		r.undo(start, false)
		return false, 0, refused
	}
	for _, other := range r.lostBefore(l) {
		other.revoke(Forced, nil)
	}
	r.endTurn()
	r.got = l
	c.watchdog.Add(l, l.renewed, start.Time, l.firstDue())
	l.warnWaited(r.since)
	c.counters.acquired.Add(1)
	r.shareGrant()
	return true, 0, nil
}

// parseGrant parses the reply to acquire, and records in r which values are first holds.
func (r *request) parseGrant(v resp.Value) (count, token int64, left time.Duration, err error) {
	r.first = r.target.values
	if r.first != "" && r.state != nil && v.Kind() == resp.SimpleString {
		r.first, err = v.Text()
		return 1, 0, 0, err
	}
	return parseAcquire(v, r.state != nil)
}

// recordGrant records a granted hold of an Owner, and returns its period. The leases of a group are their own record.
func (r *request) recordGrant(count int64) int64 {
	if r.target.values != "" {
		return 0
	}
	return r.turn.grant(r.target.stored(), count)
}

// lostBefore returns the leases of l's Owner that were lost before the grant of l, as a first hold implies.
func (r *request) lostBefore(l *Lease) []*Lease {
	switch {
	case r.state == nil || r.target.values != "" && r.first == "":
		return nil
	case r.target.values != "":
		return r.client.table.besides(&target{kind: l.target.kind, name: l.target.name, values: r.first}, r.state, l)
	}
	return slices.DeleteFunc(r.client.table.besides(l.target, r.state, l), func(other *Lease) bool { return other.period == l.period })
}

// doubt handles an attempt without a reply, for a kind without owners. The next attempt uses the same latch, and
// takes nothing if the first attempt succeeded, so a process that dies never holds more than it requested.
func (r *request) doubt() {
	c := r.client
	if !r.unsure && r.target.kind.Undo != nil {
		r.unsure = true
		c.calls.Stay(r.permits)
	}
}

// withdraw removes an abandoned request from the server's queue, or retracts the announcement of its wait.
func (r *request) withdraw() {
	c := r.client
	if r.unsure {
		r.undo(c.now(), true)
	}
	c.leavePlace(r.target, r.place)
	queued := r.target.kind.queued
	if queued {
		r.leaveQueue()
	}
	if !r.asked || !(queued && r.waits) && !r.announces {
		return
	}
	leaving := *r
	leaving.waits, leaving.latch = false, newLatch(r.target)
	c.cleanup.Take(cleanup.NewJob(&undo{request: leaving}, time.Now().Add(r.lease), false))
}
