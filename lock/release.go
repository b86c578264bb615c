package lock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// Unlock releases the hold. Unlock works under a cancelled context too: it uses the values of ctx and ignores its end. It
// waits for the rest of the lease, at least 1 s and at most 10 s. Contexts of the lease end, and renewal stops, before
// the release is sent.
//
// Unlock returns:
//
//   - nil after the release of this hold, or after its hand-over to the next caller of the process (see Config.HandOvers)
//   - [ErrNotHeld] if the lock had been lost before
//   - [ErrUncertain], wrapped together with the reason, if the server did not confirm; the client then repeats the release
//     in the background until the server confirms or the lease ends
//
// A second Unlock returns the same result; after ErrUncertain it waits for the repeats or asks again. The server recognizes
// a repeat by its request id and releases only once.
//
// Unlock of a lease with Members releases every member; [Multi] and [Redlock] describe the result.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.unlockAs(ctx, false)
}

// unlockAs is Unlock. A task of the client leaves the release to the background if Close is under way.
func (l *Lease) unlockAs(ctx context.Context, task bool) error {
	if h := l.traced.Load(); h != nil {
		return l.unlockTraced(ctx, h, task)
	}
	return l.unlock(ctx, task)
}

// unlock is unlockAs without a Trace.
func (l *Lease) unlock(ctx context.Context, task bool) error {
	if l.group != nil {
		return l.group.unlock(ctx)
	}
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.settled {
		return l.outcome
	}
	lost, left := l.giveUp()
	if lost == nil {
		l.warnHeld()
	}
	most := min(max(left, bounds.Min), bounds.Max)
	bound := (*bounds.Bounds).Context
	if task {
		bound = (*bounds.Bounds).TaskContext
	}
	ctx, done := bound(l.client.bounds, ctx, most)
	defer done()
	if l.repeats != nil {
		return l.awaitRepeats(ctx)
	}
	if l.latch == "" && l.relay() {
		return l.settle(nil)
	}
	l.awaitRenewal(ctx)
	if lost != nil && (lost.Reason == Taken || lost.Reason == Forced) && !l.target.kind.parted {
		return l.settle(l.notHeld())
	}
	if l.latch == "" {
		l.latch = l.newLatch()
	}
	return l.release(ctx)
}

// settle makes err the final result of Unlock. Until then the server may count this hold, and so does the client.
func (l *Lease) settle(err error) error {
	l.settled, l.outcome = true, err
	l.client.leavePlace(l.target, l.place)
	switch n := &l.client.counters; {
	case err == nil:
		n.released.Add(1)
	case unnamed(err) == ErrNotHeld: // with a LostError it is counted already
		n.lost.Add(1)
		l.traceLoss()
	}
	l.client.table.forget(l)
	return err
}

// repeat leaves the release to the background. If turn is set, the job takes over the owner's turn.
func (l *Lease) repeat(turn bool, cause error) error {
	l.warn("release not confirmed, and repeated in the background", "error", cause)
	l.repeats = cleanup.NewJob(&repeat{lease: l, since: time.Now()}, l.serverEnd(), turn)
	if !l.client.cleanup.Add(l.repeats) {
		l.repeats = nil
		l.client.table.forget(l)
		if turn {
			l.state.give(l.target.name)
		}
	}
	return l.unconfirmed(cause)
}

// unconfirmed returns the outcome of a release that the server has not confirmed.
func (l *Lease) unconfirmed(cause error) error {
	return l.client.about(l.target.name, fmt.Errorf("%w: %w", ErrUncertain, cause))
}

// awaitRepeats waits for the background to get an answer to the release.
func (l *Lease) awaitRepeats(ctx context.Context) error {
	repeats := l.repeats
	l.releasing.Unlock()
	defer l.releasing.Lock()
	select {
	case <-repeats.Done():
		return repeats.Outcome()
	case <-ctx.Done():
		return l.unconfirmed(context.Cause(ctx))
	}
}

// giveUp marks the lease as released. It returns the loss, if the lease was lost before, and the remaining time of the lease.
func (l *Lease) giveUp() (*LostError, time.Duration) {
	l.mu.Lock()
	left := l.leftLocked()
	if l.group == nil && l.phase == held && left <= 0 {
		l.mu.Unlock()
		l.expire()
		l.mu.Lock()
	}
	lost := l.lost
	var contexts map[*derived]struct{}
	if l.phase == held {
		l.phase = released
		contexts = l.disarmLocked()
	}
	l.mu.Unlock()
	for d := range contexts {
		d.cancel(ErrReleased)
	}
	l.tellWhole()
	return lost, left
}

// countsTwice reports whether a repeat of the release may take a further hold of the Owner: an earlier request has left no latch.
func (l *Lease) countsTwice() bool { return l.state != nil && l.unlatched }

// awaitRenewal waits for a renewal under way. The watchdog starts no further renewal of a removed lease.
func (l *Lease) awaitRenewal(ctx context.Context) {
	l.client.watchdog.Remove(l)
	renewal := l.now().renewal
	if renewal == nil {
		return
	}
	select {
	case <-renewal:
	case <-ctx.Done():
	}
}

// release runs the release script, and a second time if the first request had no answer.
func (l *Lease) release(ctx context.Context) error {
	if err := l.state.take(ctx, l.target.name, nil); err != nil {
		return l.repeat(false, err)
	}
	if !l.counted() {
		l.state.give(l.target.name)
		return l.settle(l.notHeld())
	}
	v, err := l.giveBack(ctx)
	if err != nil && remote.Uncertain(err) {
		l.repeated = true
		if ctx.Err() == nil && !l.countsTwice() {
			v, err = l.runRelease(ctx)
		}
	}
	if err != nil && !remote.Final(err) {
		return l.repeat(l.state != nil, err)
	}
	var outcome error
	if err != nil {
		outcome = l.client.refused(l.target.name, err)
	} else if outcome, err = l.answered(v); err != nil {
		l.repeated = true
		return l.repeat(l.state != nil, err)
	}
	l.client.table.forget(l) // within the turn: a listed lease of a group counts as a hold
	l.state.give(l.target.name)
	return l.settle(outcome)
}

// giveBack hands the lock over, or releases the lock.
func (l *Lease) giveBack(ctx context.Context) (resp.Value, error) {
	if next := l.claimNext(func(*request) bool { return l.target.kind.HandOver != nil && !l.client.replicas.On() }); next != nil {
		if v, err := l.handOver(ctx, next); err == nil || remote.Uncertain(err) {
			l.notePassedOn(err == nil)
			return v, err
		}
	}
	return l.runRelease(ctx)
}

func (l *Lease) runRelease(ctx context.Context) (resp.Value, error) {
	c, t := l.client, l.target
	if l.rest() > 0 {
		return c.scripts.RunInTime(ctx, t.name, l.releaseCall)
	}
	way := l.givingWay()
	defer l.gaveWay(way)
	if !l.single() {
		return c.scripts.RunInTime(ctx, t.name, l.releaseCall)
	}
	ctx = remote.Dividing(ctx) // the same steps as Runner.Run, without allocations
	args := []any{latchLife.Milliseconds(), l.owner, c.channels.Publishing(t.kind.silent), c.channels.ListenersKnown(t.kind.silent), way.place, way.stand, l.repeated}
	if way.stand == standsApart && !l.repeated {
		args = args[:4]
	}
	v, err := t.kind.Single.Run(ctx, c.server, t.lined(append(t.keys(), l.latch)), args...)
	if remote.Refused(err) {
		if !l.repeated { // the latch of an earlier release may be on another node than the lock
			c.cleanup.DeleteLatch(t.name, l.latch)
			l.latch = newLatch(t)
		}
		return c.scripts.Divide(ctx, c.server, l.singleCall(), err)
	}
	return v, err
}

// single reports whether the release runs the script kind.Single, made for owners with exactly one hold.
func (l *Lease) single() bool { return l.state == nil && l.target.kind.Single != nil }

func (l *Lease) outerLease() int64 {
	return l.client.table.outerLease(l.target, l.state, l)
}

// releaseCall returns the call of runRelease, good until last.
func (l *Lease) releaseCall(last int64) *remote.Call {
	if rest := l.rest(); rest > 0 {
		return l.keepCall(rest, last)
	}
	if l.single() {
		return l.singleCall()
	}
	return l.countedCall(last)
}

// singleCall returns the call of the script single. It is good at any time: its owner never comes back.
func (l *Lease) singleCall() *remote.Call {
	c, t := l.client, l.target
	x, way := l.callOf(t.kind.Single), l.givingWay()
	x.Args = []any{latchLife.Milliseconds(), l.owner, c.channels.Publishing(t.kind.silent), c.channels.ListenersKnown(t.kind.silent), way.place, way.stand, l.repeated}
	return x
}

// countedCall returns the call of the script release, which counts the holds of the owner.
func (l *Lease) countedCall(last int64) *remote.Call {
	c, t := l.client, l.target
	x, way := l.callOf(t.kind.Release), l.givingWay()
	x.MayCome, x.Holds = l.state.mayComeOf(t.name), l.state.tally(t.hold()).count
	if (l.state == nil || l.state.once) && !l.repeated {
		last = 0 // the owner never comes back, and nothing has been sent before
	}
	x.Less = l.lessOf(x)
	x.Args = []any{t.kept(c, l.state, l), l.owner, c.channels.Publishing(t.kind.silent), latchLife.Milliseconds(), l.repeated && l.state != nil, last}
	switch {
	case t.line != "":
		x.Args = append(x.Args, c.channels.ListenersKnown(t.kind.silent), c.id, way.place, way.stand)
	case t.kind.queued:
		x.Args = append(x.Args, c.channels.CountsListeners(t.kind.silent))
	}
	return x
}

// callOf returns a call of a script that releases l, without arguments.
func (l *Lease) callOf(release *script.Script) *remote.Call {
	t := l.target
	return &remote.Call{Script: release, Lock: t.remote(), Keys: l.state.keys(t, l.owner, l.latch), Leaves: true, Tells: true,
		Apart: &l.unlatched, Owner: l.owner}
}

// lessOf returns the release x of l for keys on two nodes. Permits are marked as ended, for the next client that asks to put them back.
// Any other lock is released alone: a queue is not told, and other readers keep the lock for as long as it would last.
func (l *Lease) lessOf(x *remote.Call) func(context.Context) *remote.Call {
	t := l.target
	return func(ctx context.Context) *remote.Call {
		switch {
		case t.kind.permits:
			return &remote.Call{Script: t.kind.More["end"], Lock: t.remote(), Keys: []string{t.lease}, Args: []any{l.owner}}
		case t.kind.isRead() && !l.outerReadsLast(ctx):
			return nil
		}
		return x.Sparing()
	}
}

// outerReadsLast extends the leases of the outer holds of a reader, which the script cannot do without their keys. It reports whether the
// outer holds last.
func (l *Lease) outerReadsLast(ctx context.Context) bool {
	outer := l.outerLease()
	if l.state == nil || outer <= 0 {
		return true
	}
	alive := false
	for _, key := range kinds.ReadLeases(l.target.name, l.owner, l.state.tally(l.target.hold()).count-1) {
		v, err := l.target.kind.Hold.Run(ctx, l.client.server, []string{key}, outer, readHold)
		renewed, bad := renewalOutcome(v, 0)
		if cmp.Or(err, bad) != nil {
			return false
		}
		alive = alive || renewed == 1
	}
	return alive
}

// lateReleaseCall replaces a repeat sent so late that the latch of the first request may have expired. The call sets the hold
// count to the known result instead of counting down.
func (l *Lease) lateReleaseCall() *remote.Call {
	t := l.target
	if rest := l.rest(); rest > 0 {
		return l.keepCall(rest, l.client.clocks.Last(t.name))
	}
	before := int64(0)
	if l.state != nil {
		before = l.state.tally(t.hold()).count - 1
	}
	r := request{client: l.client, target: t, lease: l.term, owner: l.owner, state: l.state}
	args := r.args(t.kept(l.client, l.state, l), l.owner, l.client.channels.Publishing(t.kind.silent), before, l.client.clocks.Last(t.name))
	return &remote.Call{Script: t.kind.Undo, Lock: t.remote(), Keys: l.state.keys(t, l.owner, l.latch), Args: t.lineArgs(l.client, args),
		Leaves: true, Tells: true, MayCome: l.state.mayComeOf(t.name)}
}

// answered records the server's reply to the release and returns the result for the holder, or an error for an
// unexpected reply.
func (l *Lease) answered(v resp.Value) (outcome, err error) {
	count, err := v.Int()
	switch {
	case v.IsNull() && l.repeated && l.unlatched:
		outcome = fmt.Errorf("%w: it is released now, and may have been lost before", ErrUncertain)
	case v.IsNull(), l.lostToAnother():
		outcome = l.notHeld()
	case v.Kind() != resp.Integer || err != nil || !l.sensible(count):
		return nil, fmt.Errorf("lock: unexpected reply to release, of kind %v", v.Kind())
	case l.single():
		// a server with replicas, or of a cluster, does not know all who wait
		sole := l.client.remote.Spread == nil && l.client.remote.Failover == nil
		l.client.table.noteAlone(l.target.key(), sole && count > 1)
		l.awaited = l.whole.Load() != nil && l.client.table.awaited(l.target, count)
	}
	if outcome == nil && (l.limits == nil || l.limits.least == 0) {
		l.place = nil // the server has ended it
	}
	l.letLatchGo(outcome == nil)
	if outcome == nil && count == 0 {
		l.target.tellShortened(l.client, time.Until(l.serverEnd()), l.outerLease())
	}
	l.recordEnd(outcome == nil && count == 0)
	return outcome, nil
}

// lostToAnother reports whether the Owner of a lost lease of a group has some of the values by other leases: the server cannot tell
// the holds of an owner apart.
func (l *Lease) lostToAnother() bool {
	if l.state == nil || l.target.values == "" {
		return false
	}
	return l.now().lost != nil && len(l.client.table.besides(l.target, l.state, l)) > 0
}

// sensible reports whether count is a valid reply to a release: 1 for a free lock, from the single script 2 with one listener at
// most and 3 without, 0 if the owner has further holds.
func (l *Lease) sensible(count int64) bool {
	if l.single() {
		return count >= 1 && count <= 3
	}
	return count == 0 || count == 1
}

// letLatchGo disposes of the latch after the outcome of the release is known. set: the server has the latch.
func (l *Lease) letLatchGo(set bool) {
	u := l.client.cleanup
	if l.unlatched && l.state == nil { // the script may have left the lease of a reader on another node
		for _, key := range l.readLeases() {
			u.DeleteLatch(l.target.name, key)
		}
	}
	switch {
	case l.single():
		u.KeepLatch(l.target.name, l.latch)
	case set && (l.state == nil || !l.repeated): // an earlier request may still arrive and must find the latch
		u.DeleteLatch(l.target.name, l.latch)
	}
}

// recordEnd records the end of the hold on the server. Unless partial is set, the owner's other holds have ended too.
func (l *Lease) recordEnd(partial bool) {
	if l.state == nil || l.target.values != "" {
		return
	}
	if partial {
		l.state.ungrant(l.target.hold())
		return
	}
	l.state.forget(l.target.hold())
	l.denied(Forced, nil)
}

// counted reports whether the server may still have the hold. If not, the owner's holds on the server are later ones. The
// caller has the owner's turn.
func (l *Lease) counted() bool {
	return l.state == nil || l.state.tally(l.target.hold()).period == l.period
}

// notHeld returns the outcome of a release that found no hold: ErrNotHeld, with the loss if the client knows of a loss.
func (l *Lease) notHeld() error {
	lost := l.now().lost
	if lost == nil {
		return l.client.about(l.target.name, ErrNotHeld)
	}
	return fmt.Errorf("%w: %w", ErrNotHeld, lost) // which names the lock
}

// newLatch returns the key for the outcome of the release. The latch of a single release names the owner, so a key may be reused.
func (l *Lease) newLatch() string {
	if l.single() {
		if key := l.client.cleanup.SpareLatch(l.target.name); key != "" {
			return key
		}
	}
	return newLatch(l.target)
}

// unlockTraced is unlock for the Trace of the lease.
func (l *Lease) unlockTraced(ctx context.Context, h *holding, task bool) error {
	if !h.ended.CompareAndSwap(false, true) {
		return l.unlock(ctx, task)
	}
	ctx, end := h.beginRelease(ctx, time.Now(), l)
	err := l.unlock(ctx, task)
	h.over.Store(true)
	end(ReleaseEnd{Err: err, HandedOver: h.passedOn.Load(), Lost: h.lost.Load()})
	return err
}

// repeat is the work of repeating a release.
type repeat struct {
	lease *Lease
	since time.Time // the time of the first release
	stale bool      // the last request was a late release
}

func (p *repeat) Name() string       { return p.lease.target.name }
func (p *repeat) Rank() cleanup.Rank { return cleanup.Release }
func (p *repeat) Size() int          { return p.lease.size() }
func (p *repeat) background() (Change, *kind) {
	return BackgroundRelease, p.lease.target.kind
}
func (p *repeat) Turn() chan struct{} { return p.lease.state.turnOf(p.Name()) }

// Needed ends a late release if the server has none of its owner's holds of that time.
func (p *repeat) Needed() (left bool, outcome error) {
	if p.lease.counted() {
		return true, nil
	}
	return false, p.settle(p.lease.notHeld())
}

// Call returns the release. Its latch may have expired, or may expire before a reply arrives, or an earlier request has left none
// and would be counted twice. A late release keeps the same latch: earlier requests may still arrive.
func (p *repeat) Call() *remote.Call {
	p.stale = p.stale || time.Since(p.since) > latchLife/2 || p.lease.countsTwice()
	if p.stale {
		return p.lease.lateReleaseCall()
	}
	return p.lease.releaseCall(p.lease.client.clocks.Last(p.Name()))
}

func (p *repeat) Answered(v resp.Value, _ bool) cleanup.Result {
	l := p.lease
	if p.stale {
		l.recordEnd(l.outerLease() > 0)
		l.client.counters.released.Add(1)
		return cleanup.Result{Done: true, Outcome: p.settle(fmt.Errorf("%w: it is released now, and may have been lost before", ErrUncertain))}
	}
	outcome, err := l.answered(v)
	if err != nil {
		return cleanup.Result{Failure: err}
	}
	return cleanup.Result{Done: true, Outcome: p.settle(outcome)}
}

// settle makes outcome the result of Unlock, and returns it.
func (p *repeat) settle(outcome error) error {
	p.lease.releasing.Lock()
	defer p.lease.releasing.Unlock()
	return p.lease.settle(outcome)
}

func (p *repeat) Unsure() {
	if !p.stale {
		p.lease.repeated = true
	}
}

func (p *repeat) Finish(error) {
	p.lease.releasing.Lock()
	p.lease.repeats = nil
	p.lease.releasing.Unlock()
	p.lease.client.table.forget(p.lease)
}

func (p *repeat) Count(g *cleanup.Abandoned) {
	g.Releases++
	if p.lease.target.kind.permits {
		g.Permits += p.lease.size()
	}
}
