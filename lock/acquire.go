package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// errSlow is the failure of a call that waits and whose request was under way for too long; a later attempt may succeed. Other requests come too
// late because the clocks differ, which the answer tells: then a repeat comes in time.
var errSlow = fmt.Errorf("%w: it has more to do than it can", remote.ErrLate)

// errUnanswered is the failure of a request that stands in line because earlier requests have no answer.
var errUnanswered = errors.New("earlier requests for the lock have no answer")

// mustWait reports whether r has to stand in line, as another caller of this process has the lock, waits for it, or has left without an
// answer. By the last rule, callers whose deadlines are too short for a busy server do not all ask it again and again, and keep it busy.
// An Owner that has the lock never stands in line. before is the mark of the parked watch of a line without waiters.
func (r *request) mustWait() (before watchMark, must bool) {
	c := r.client
	k := r.target.kind
	if k.queued() {
		return watchMark{}, false
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	line, holders := c.table.entries[r.target.awaitedAs()], c.table.entries[r.target.heldAs()]
	switch {
	case r.heldByOwnerLocked():
		return watchMark{}, false
	case holders != nil && len(holders.leases) > 0 && r.target.exclusive():
		r.why.refuse()
	case line != nil && line.waiters.Len() > 0:
		r.why.learnFrom(line)
	case line != nil && line.unanswered > 0:
		r.why.failure = errUnanswered
	default:
		return c.table.markLocked(r.target.awaitedAs()), false
	}
	return watchMark{}, true
}

// heldByOwnerLocked reports whether r's Owner has the lock, or its other half. The caller has table.mu.
func (r *request) heldByOwnerLocked() bool {
	entries, twin := r.client.table.entries, r.target.kind.twin
	return r.state != nil && (entries[r.target.heldAs()].heldBy(r.state) || twin != nil && entries[entryKey{twin, r.target.Name}].heldBy(r.state))
}

// attempt runs the acquire script once, and again if the request arrived too late to run. It reports whether the server
// granted r, with the lease in r.got for kinds with leases. After a refusal, left is the time until asking again is
// worthwhile, negative if unknown. An attempt without a reply is undone in the background.
func (r *request) attempt(ctx context.Context) (granted bool, left time.Duration, err error) {
	c := r.client
	if r.target.kind.Undo != nil {
		if !c.acquires.Enter(r.permits) {
			return false, 0, ErrClosed
		}
		defer c.acquires.Leave(r.permits)
	}
	if ctx.Done() == nil {
		ctx = c.untilCloseOnly(ctx)
	}
	if r.beside != nil {
		limited, answered := r.beside(ctx)
		defer func() { answered(granted, err) }()
		ctx = limited
	}
	for late := 1; ; {
		granted, left, err = r.ask(ctx)
		switch {
		case errors.Is(err, remote.ErrLate) && err != errSlow && late < remote.Arrivals && ctx.Err() == nil:
			late++
		case err == nil && !granted && left == 0 && r.target.kind.Pass != nil && r.pass(ctx): // the lock is free, and its queue was stuck
			late = 1
		default:
			r.why.failure = err
			return granted, left, err
		}
	}
}

// ask is attempt without the repeat.
func (r *request) ask(ctx context.Context) (granted bool, left time.Duration, err error) {
	c := r.client
	if r.turn, err = r.takeTurn(ctx); err != nil {
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
	v, start, err := r.send(ctx, r.doer(ack), at)
	r.asked = r.asked || !errors.Is(err, conn.ErrNotSent) && !remote.Denied(err)
	if err != nil {
		r.notePlace(at, start, false, err)
		r.unanswered(ctx, start, err)
		return false, 0, c.failed(r.target.Name, err)
	}
	if c.clocks.Late(r.target.Name, v) {
		if r.waits && start.Elapsed(c.now()) >= remote.Arrival {
			return false, 0, errSlow
		}
		return false, 0, remote.ErrLate
	}
	g, left, err := r.parseGrant(v)
	switch {
	case err != nil && errors.Is(err, errUnexpected):
		r.undo(start, false)
		return false, left, err
	case err != nil:
		return false, left, c.about(r.target.Name, err)
	}
	r.notePlace(at, start, g.count > 0, nil)
	if g.count == 0 {
		r.noteRefusal(left)
		r.loseHolds()
		return false, left, nil
	}
	g.start = start
	if g.refused = r.acknowledged(ctx, ack); g.refused != nil {
		r.why.answer = g.refused
	}
	err = r.accept(g)
	return err == nil, 0, err
}

// errTurnTaken is the failure of an acquire behind an undo, in the background, that gets no answer.
var errTurnTaken = fmt.Errorf("%w: an earlier request of the same owner has no answer", conn.ErrNotSent)

// takeTurn takes the turn of the Owner. An undo without an answer may have it for as long as its lease, or a place in a queue, could last: a call
// does not wait for longer than for a server, unless other calls have the turn meanwhile.
func (r *request) takeTurn(ctx context.Context) (*ownedLock, error) {
	if r.state == nil {
		return nil, nil
	}
	for {
		own, taken := r.state.takeFree(r.target.Name)
		if taken {
			return own, nil
		}
		given := own.given.Load()
		patient, cancel := context.WithTimeout(ctx, r.client.cfg.Lease)
		turn, err := r.state.take(patient, r.target.Name, r.client.done, ErrClosed)
		late := patient.Err() != nil
		cancel()
		switch {
		case err == nil || !late || ctx.Err() != nil:
			return turn, err
		case own.given.Load() == given: // no other call has had it
			return nil, r.client.about(r.target.Name, errTurnTaken)
		}
	}
}

// doer returns the Doer that sends the acquire. ack may be nil.
func (r *request) doer(ack *remote.AckedDoer) conn.Doer {
	server := conn.Doer(r.client.server)
	if ack != nil {
		server = ack
	}
	if r.wrapDoer != nil {
		server = r.wrapDoer(server)
	}
	return server
}

// unanswered handles an acquire of r, sent at start, that failed with err. An acquire that may have run is undone or, for a waiter of a kind
// without owners, sent again under the same latch.
func (r *request) unanswered(ctx context.Context, start clock.Instant, err error) {
	c := r.client
	k := r.target.kind
	_, answered := errors.AsType[resp.Error](err)
	switch {
	case !remote.Uncertain(err): // nothing has run
	case answered: // a part of the script has run
		r.undo(start, false)
	case k.unowned() && r.waits && ctx.Err() == nil && !c.isClosed():
		if !r.unsure && k.Undo != nil { // the next attempt has the same latch, and takes nothing more if this one has succeeded
			r.unsure = true
			c.acquires.Stay(r.permits)
		}
		r.landed = time.Now().Add(remote.Arrival)
	default:
		if ctx.Err() != nil && k.queued() { // otherwise withdraw would send another undo
			r.leaveQueue()
			r.waits = false
		}
		r.undo(start, true)
	}
}

// send sends the acquire script of r, and records in r the time until which the request is valid. start is the time before the
// answered request.
func (r *request) send(ctx context.Context, server conn.Doer, at position) (v resp.Value, start clock.Instant, err error) {
	c, k := r.client, r.target.kind
	last := c.clocks.LastMoment(r.target.Name)
	r.lastMoment = max(r.lastMoment, last)
	if k.args == nil && c.remote.Spread == nil { // a shortcut without heap allocations
		keys := r.keys(make([]string, 0, maxKeys))
		args := []any{r.lease.Milliseconds(), r.owner, last, at.place, at.stand}
		switch {
		case r.target.Line == "":
			args = args[:3]
		case at.stand == standsJoin: // as without it
			args = args[:4]
		}
		start = c.now()
		v, err = k.Acquire.Run(remote.Patient(ctx), server, keys, args...)
		return v, start, err
	}
	args := append(r.args(r.lease.Milliseconds(), r.owner), last)
	calls := k.permits || k.isRead() || k.queued() // their grants call the next in the line or queue
	if r.target.Line != "" {
		args = append(args, at.place)
		if calls || at.stand != standsJoin {
			args = append(args, at.stand)
		}
	}
	if calls {
		args = append(args, c.listenersKnown(r.target), c.publishing(r.target))
	}
	x := &remote.Call{Script: k.Acquire, Lock: r.target.Lock, Keys: r.keys(nil), Args: args, Doer: server, NoRetry: r.waits,
		Apart: remote.Apart{OnSource: k.reentersOnSource, SharesAtNil: k.isRead(), MayRunUntil: r.turn.mayRun()}}
	v, err = c.scripts.Run(ctx, x)
	return v, x.Sent, err
}

// acking returns the Doer for sending r, or nil if r needs no acknowledgement, for example because it changes nothing.
func (r *request) acking(ctx context.Context) (*remote.AckedDoer, error) {
	c := r.client
	if !c.replicas.On() || r.target.kind.Undo == nil {
		return nil, nil
	}
	leaves, _ := ctx.Deadline()
	return c.replicas.AckedDoer(ctx, remote.Hold{Name: r.target.Name, Kind: r.target.kind.Name, Owner: r.shownOwner()}, leaves)
}

// acknowledged returns an error if too few replicas have the grant. ack may be nil.
func (r *request) acknowledged(ctx context.Context, ack *remote.AckedDoer) error {
	if ack == nil {
		return nil
	}
	bare, err := ack.Confirm(ctx)
	if bare {
		r.client.counters.unacknowledged.Add(1)
		r.traced.note(func(end *AcquireEnd) { end.Unacknowledged = true })
	}
	return err
}

// accept makes r.got of the grant g. It undoes a grant that too few replicas have acknowledged, that has expired on the way, or that
// comes after Close, and returns the reason.
func (r *request) accept(g grant) error {
	if r.target.kind.unowned() {
		return r.acceptUnowned(g)
	}
	c := r.client
	l, k, own := newLease(r, g), r.target.storedKind(), r.turn
	if !r.counted() {
		own = nil
	}
	holds := own.tallyWith(k, g.count, g.token)
	l.period = holds.period
	l.grantedAt = c.now()
	refused := g.refused
	switch {
	case refused != nil:
	case g.start.Elapsed(l.grantedAt) >= validity(l.term):
		r.why.refuse()
		refused = r.target.expiredGrant(c)
	case !c.table.register(l):
		refused = ErrClosed
	}
	for _, other := range r.lostBefore(l, g) {
		other.revoke(Forced, nil)
	}
	if refused != nil {
		own.recordUndone(k, holds)
		r.undo(l.grantedAt, false)
		return refused
	}
	own.record(k, holds)
	r.endTurn()
	r.got = l
	c.watchdog.Add(l, l.renewed, g.start.Time, l.firstDue())
	l.warnWaited(r.since)
	c.counters.acquired.Add(1)
	r.shareGrant()
	return nil
}

// acceptUnowned is accept for a kind without leases.
func (r *request) acceptUnowned(g grant) error {
	if g.refused != nil {
		r.undo(g.start, false)
		return g.refused
	}
	if r.latch != "" {
		r.client.cleanup.SettleLatch(r.target.Name, r.latch, r.unsure, r.lastMoment)
		r.endUnsure()
	}
	if waited := time.Since(r.since); r.target.kind.permits && !r.since.IsZero() && r.client.waitsLong(waited, r.standby) {
		r.client.log.WarnOf(r.target.Name, r.target.kind.Name, "", acquiredLate, "waited", roughly(waited))
	}
	r.shareGrant()
	return nil
}

// parseGrant parses the reply to acquire. The count of a refusal is 0, and left as for attempt.
func (r *request) parseGrant(v resp.Value) (g grant, left time.Duration, err error) {
	if r.target.values != "" && r.state != nil && v.Kind() == resp.SimpleString {
		g.count = 1
		g.values, err = v.Text()
		return g, 0, err
	}
	g.values = r.target.values
	g.count, g.token, left, err = parseAcquire(v, r.state != nil)
	if errors.Is(err, ErrUpgrade) && r.turn.tally(r.target.readKind()).count == 0 { // a former master confirmed the release of the read hold
		return g, r.client.pace.PollMax, nil
	}
	return g, left, err
}

// lostBefore returns the leases of l's Owner that the grant g of l proves to be lost.
func (r *request) lostBefore(l *Lease, g grant) []*Lease {
	switch {
	case r.state == nil || r.target.values != "" && g.values == "":
		return nil
	case r.target.values != "":
		gained := hold{client: r.client, target: &target{kind: l.target.kind, Lock: l.target.Lock, values: g.values}, state: r.state}
		return gained.otherLeases(l)
	}
	lost := slices.DeleteFunc(l.otherLeases(l), func(other *Lease) bool { return other.period == l.period })
	if g.count == 1 && r.target.kind.isWrite() { // no reader had the lock
		lost = append(lost, r.twins()...)
	}
	return lost
}

// twins returns the leases of r's Owner on the other half of a read-write lock.
func (r *request) twins() []*Lease {
	twin := r.target.kind.twin
	if twin == nil {
		return nil
	}
	return r.client.table.holdsOf(entryKey{twin, r.target.Name}, r.state.id+twin.Suffix, nil)
}

// loseHolds ends the leases of r's Owner after a refusal: an Owner who had the lock would have got a further hold. Each value of a group
// has a holder of its own.
func (r *request) loseHolds() {
	if !r.counted() {
		return
	}
	for _, lost := range append(r.otherLeases(nil), r.twins()...) {
		lost.revoke(Forced, nil)
	}
}

// withdraw removes an abandoned request from the server's queue, or retracts the announcement of its wait.
func (r *request) withdraw() {
	c := r.client
	if r.unsure {
		r.undo(c.now(), true)
	}
	c.leavePlace(r.target, r.place)
	queued := r.target.kind.queued()
	if queued {
		r.leaveQueue()
	}
	if !r.asked || !(queued && r.waits) && !r.announces() {
		return
	}
	leaving := r.acquire
	leaving.waits, leaving.latch = false, newLatch(r.target)
	c.cleanup.Take(cleanup.NewJob(newUndo(leaving, false), r.goneBy(time.Now()), false))
}
