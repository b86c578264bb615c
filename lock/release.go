package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/course"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Unlock releases the hold. Unlock works under a cancelled context too: it uses the values of ctx and ignores its end. It
// waits for the rest of the lease, at least 1 s and at most 10 s, and no longer than a Close of the client under way. Contexts of the
// lease end, and renewal stops, before the release is sent.
//
// Unlock returns:
//
//   - nil after the release of this hold, or after its hand-over to the next caller of the process (see Config.HandOvers); also for a
//     lease that was lost to its holder while the server still had the hold, as by [AtMost]
//   - [ErrNotHeld] if the lock had been lost before
//   - [ErrUncertain], wrapped together with the reason, if the server did not confirm; the client then repeats the release
//     in the background until the server confirms or the lease ends, unless the connection has been closed ([conn.ErrClosed])
//   - [ErrWrongType] if a key of the lock holds another type: what is left of the lock ends with the lease
//
// A second Unlock returns the same result; after ErrUncertain it waits for the repeats or asks again. The server recognizes
// a repeat by its request id and releases only once.
//
// Unlock of a lease with Members releases every member; [Multi] and [Redlock] describe the result.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.unlockAs(ctx, false)
}

// unlockAs is Unlock. With task, for a goroutine that Close waits for, a Close under way cuts the wait short: the release then goes on in
// the background.
func (l *Lease) unlockAs(ctx context.Context, task bool) error {
	h := l.traced.Load()
	if h == nil || !h.ended.CompareAndSwap(false, true) {
		return l.unlock(ctx, task)
	}
	ctx, release := h.beginRelease(ctx, time.Now(), l)
	err := l.unlock(ctx, task)
	h.over.Store(true)
	release.end(ctx, ReleaseEnd{Err: err, HandedOver: h.passedOn.Load(), Lost: h.lost.Load()})
	return err
}

// unlock is unlockAs without a Trace.
func (l *Lease) unlock(ctx context.Context, task bool) error {
	if l.group != nil {
		return l.group.unlock(ctx)
	}
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.repeats == nil {
		if outcome, ok := l.course.Settled(); ok {
			return outcome
		}
	}
	lost, left := l.markReleased()
	if lost == nil {
		l.warnHeld()
	}
	ctx, done := l.client.bounds.Context(ctx, min(max(left, bounds.Min), bounds.Max), task)
	defer done()
	if l.repeats != nil {
		return l.awaitRepeats(ctx)
	}
	if l.course.State() == course.Unsent && l.relay() {
		return l.settle(nil)
	}
	l.awaitRenewal(ctx)
	if lost != nil && (lost.Reason == Taken || lost.Reason == Forced) && !l.target.kind.divisible {
		return l.settle(l.notHeld())
	}
	return l.release(ctx)
}

// markReleased marks the lease as released. It returns the loss, if the lease was lost before, and the remaining time of the lease.
func (l *Lease) markReleased() (*LostError, time.Duration) {
	l.lockNow()
	left, lost := l.leftLocked(), l.lost
	var contexts contexts
	if l.phase == held {
		l.phase = released
		contexts = l.disarmLocked()
	}
	l.mu.Unlock()
	contexts.end(ErrReleased)
	l.notifyWhole()
	return lost, left
}

// awaitRenewal waits for a renewal under way. The watchdog starts no further renewal of a removed lease.
func (l *Lease) awaitRenewal(ctx context.Context) {
	l.client.watchdog.Remove(l)
	if renewal := l.now().renewal; renewal != nil {
		select {
		case <-renewal:
		case <-ctx.Done():
		}
	}
}

// errDoubted is the cause of a release left to the background without a request: an earlier Unlock has had no answer, and its repeats have been
// given up.
var errDoubted = errors.New("an earlier request has no answer")

// release asks the server, and once more without an answer. The rest is left to the background.
func (l *Lease) release(ctx context.Context) error {
	turn, err := l.state.take(ctx, l.target.Name, nil, nil) // also after Close
	if err != nil {
		return l.repeat(nil, err)
	}
	if !l.mayBeHeld() {
		turn.give()
		return l.settle(l.notHeld())
	}
	cause := errDoubted
	for range 2 {
		if undo := l.beginRequest(); undo { // in the background
			break
		}
		step, result := l.answered(l.giveBack(ctx))
		if step.Settles() {
			err = l.settle(result) // within the turn: a lease of a group in the table counts as a hold
			turn.give()
			return err
		}
		if cause = result; step == course.RepeatLater || ctx.Err() != nil {
			break
		}
	}
	if err = l.repeat(turn, cause); cause != errDoubted || l.repeats == nil {
		return err
	}
	return l.awaitRepeats(ctx)
}

// giveBack hands the lock over, or releases the lock.
func (l *Lease) giveBack(ctx context.Context) (resp.Value, error) {
	if l.target.kind.HandOver == nil || l.client.replicas.On() {
		return l.runRelease(ctx)
	}
	if next := l.claimNext(false); next != nil {
		if v, err := l.handOver(ctx, next); err == nil || remote.Uncertain(err) {
			l.notePassedOn(err == nil)
			l.client.leavePlace(l.target, l.place) // the script does not end it, and the waiter has its own
			l.place = nil
			return v, err
		}
	}
	return l.runRelease(ctx)
}

// beginRequest begins a request of the release, and reports whether the request must be an undo.
func (l *Lease) beginRequest() (undo bool) {
	if l.course.Latch == "" && l.single() {
		l.course.Latch = l.client.cleanup.SpareLatch(l.target.Name)
	}
	if l.course.Latch == "" {
		l.course.Latch = newLatch(l.target)
	}
	return l.course.Ask(l.client.now())
}

// answered takes the reply to the request, or its error. It returns what follows, with the outcome of a settled release or the reason to repeat.
func (l *Lease) answered(v resp.Value, err error) (course.Step, error) {
	count, bad := v.Int()
	alone := course.Released
	switch {
	case v.IsNull():
		alone = course.NotHeld
	case l.lostToAnother():
		alone = course.Lost
	case bad != nil || v.Kind() != resp.Integer || !l.validReply(count):
		alone = course.RepeatLater
	}
	step := l.course.Next(alone, err, l.client.now())
	switch step {
	case course.RepeatLater, course.RepeatNow:
		if err == nil && step == course.RepeatLater {
			err = fmt.Errorf("lock: unexpected reply to release, of kind %v", v.Kind())
		}
		return step, err
	case course.Refused:
		return step, l.client.about(l.target.Name, refusedWork(err))
	case course.Released:
		l.confirmed(count)
	case course.NotHeld, course.Lost:
		err = l.notHeld()
	case course.Uncertain, course.Undone:
		l.client.counters.released.Add(1)
		err = l.unconfirmed(errors.New("it is released now, and may have been lost before"))
	}
	l.finishLatch(step == course.Released)
	l.recordEnd(step == course.Undone || step == course.Released && count == 0)
	return step, err
}

// confirmed records a release confirmed by the reply count.
func (l *Lease) confirmed(count int64) {
	c := l.client
	if l.single() {
		l.awaited = waiting(count) == someoneWaits || waiting(count) == visitorsWait
	}
	if l.limits[atLeast] == 0 {
		l.place = nil                                     // the server has ended it
		if c.remote.Failover != nil && !l.course.Reused { // a replica that takes over may not know of the release
			c.cleanup.Keep(&undone{acquire{hold: l.hold, lease: l.term}, l.serverEnd()})
		}
	}
	if count == 0 {
		l.target.announceShorterLease(c, time.Until(l.serverEnd()), l.leaseOfOthers(l), kinds.ShorterMessage)
	}
}

// lostToAnother reports whether l is a lease of a group lost at the server, and other leases of its Owner have some of the values: the server
// cannot tell the holds of an owner apart.
func (l *Lease) lostToAnother() bool {
	if l.state == nil || l.target.values == "" {
		return false
	}
	switch lost := l.now().lost; {
	case lost == nil, (lost.Reason == HeldTooLong || lost.Reason == ClientClosed) && time.Now().Before(l.serverEnd()): // lost to the holder only
		return false
	}
	return len(l.otherLeases(l)) > 0
}

// validReply reports whether count is a valid reply to a release: a waiting if the lock is free, or 0 if the owner has further holds.
func (l *Lease) validReply(count int64) bool {
	switch waiting(count) {
	case someoneWaits, visitorsWait:
		return true
	case nobodyWaits, nobodyListens:
		return l.single()
	}
	return count == 0 && !l.single()
}

// recordEnd takes the hold out of the tally after its end on the server. partial: the owner's other holds go on; else they have ended too.
func (l *Lease) recordEnd(partial bool) {
	if !l.counted() || partial && l.course.State() == course.Uncounted {
		return
	}
	l.own().endHold(l.target.storedKind(), !partial)
	if !partial {
		l.denied(Forced, nil)
	}
}

// mayBeHeld reports whether the server may still have the hold. If not, a new period has begun, and a release would end a later hold. The
// caller has the owner's turn.
func (l *Lease) mayBeHeld() bool {
	return l.state == nil || l.course.State() == course.Uncounted || l.tally().period == l.period
}

// notHeld returns the outcome of a release that found no hold: ErrNotHeld, with the loss if the client knows of a loss.
func (l *Lease) notHeld() error {
	if lost := l.now().lost; lost != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, lost) // which names the lock
	}
	return l.client.about(l.target.Name, ErrNotHeld)
}

// unconfirmed returns the outcome of a release that the server has not confirmed.
func (l *Lease) unconfirmed(cause error) error {
	return l.client.about(l.target.Name, fmt.Errorf("%w: %w", ErrUncertain, cause))
}

// settle makes err the final result of Unlock, and forgets the hold, which the client counts as long as the server may.
func (l *Lease) settle(err error) error {
	l.course.Settle(err)
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

// repeat leaves the release to the background. The job takes over the turn of the Owner, if the caller has it.
func (l *Lease) repeat(turn *ownedLock, cause error) error {
	l.warn("release not confirmed, and repeated in the background", "error", cause)
	l.repeats = cleanup.NewJob(&repeat{lease: l}, l.serverEnd(), turn != nil)
	if l.course.MayRun() && cause != errDoubted { // while a request may arrive, the Owner takes no further hold
		l.repeats.NoteUnanswered()
	}
	if !l.client.cleanup.Add(l.repeats) {
		l.repeats = nil
		l.client.table.forget(l)
		turn.give()
	}
	return l.unconfirmed(cause)
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

// repeat is the work of a release in the background. It owns the course of the release meanwhile.
type repeat struct {
	lease   *Lease
	settles bool // the release has an outcome, and is not given up
}

func (p *repeat) Name() string                { return p.lease.target.Name }
func (p *repeat) Rank() cleanup.Rank          { return cleanup.Release }
func (p *repeat) Size() int                   { return p.lease.size() }
func (p *repeat) Turn() chan struct{}         { return p.lease.own().turnChannel() }
func (p *repeat) background() (Change, *kind) { return BackgroundRelease, p.lease.target.kind }

// Needed ends the repeats if the hold has ended with its period.
func (p *repeat) Needed() (left bool, outcome error) {
	if p.lease.mayBeHeld() {
		return true, nil
	}
	p.settles = true
	return false, p.lease.notHeld()
}

// Call returns the release. An undo in its place sets the Owner's hold count to that of the other holds, whether an earlier request has run or not.
func (p *repeat) Call() *remote.Call {
	l, last := p.lease, p.lease.client.clocks.LastMoment(p.Name())
	if !l.beginRequest() {
		return l.releaseCall(l.releasePosition(), last)
	}
	a := acquire{hold: l.hold, lease: l.term, latch: l.course.Latch, lastMoment: last}
	return a.undoCall(l, l.otherHolds())
}

func (p *repeat) Answered(v resp.Value, _ bool) (done bool, result error) {
	step, result := p.lease.answered(v, nil)
	p.settles = step.Settles()
	return p.settles, result
}

func (p *repeat) Unsure(err error) { p.lease.course.Next(0, err, p.lease.client.now()) }

// Finish takes the hold of a release given up without an outcome out of the tally: with a tally larger than the server's count, the next grant
// would end the Owner's other leases. If the server still counts the hold, it ends with the last of the others.
func (p *repeat) Finish(outcome error) {
	l := p.lease
	l.releasing.Lock()
	defer l.releasing.Unlock()
	l.repeats = nil
	switch {
	case p.settles:
		_ = l.settle(outcome)
	case l.course.GiveUp() && l.otherHolds() > 0 && l.mayBeHeld():
		l.recordEnd(true)
		l.course.Uncount()
	}
	l.client.table.forget(l)
}

func (p *repeat) Count(g *cleanup.Abandoned) {
	g.Releases++
	if p.lease.target.kind.permits {
		g.Permits += p.lease.size()
	}
}
