package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/lock/internal/bounds"
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
	if l.settled {
		return l.outcome
	}
	lost, left := l.markReleased()
	if lost == nil {
		l.warnHeld()
	}
	most := min(max(left, bounds.Min), bounds.Max)
	var done func()
	if task {
		ctx, done = l.client.bounds.TaskContext(ctx, most)
	} else {
		ctx, done = l.client.bounds.Context(ctx, most)
	}
	defer done()
	if l.repeats != nil {
		return l.awaitRepeats(ctx)
	}
	if l.latch == "" && l.relay() {
		return l.settle(nil)
	}
	l.awaitRenewal(ctx)
	if lost != nil && (lost.Reason == Taken || lost.Reason == Forced) && !l.target.kind.divisible {
		return l.settle(l.notHeld())
	}
	if l.latch == "" {
		l.latch = l.firstLatch()
	}
	return l.release(ctx)
}

// markReleased marks the lease as released. It returns the loss, if the lease was lost before, and the remaining time of the lease.
func (l *Lease) markReleased() (*LostError, time.Duration) {
	l.lockNow()
	left, lost := l.leftLocked(), l.lost
	var contexts map[*derived]struct{}
	if l.phase == held {
		l.phase = released
		contexts = l.disarmLocked()
	}
	l.mu.Unlock()
	for d := range contexts {
		d.cancel(ErrReleased)
	}
	l.notifyWhole()
	return lost, left
}

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

// errDoubted is the cause of a release left to the background without a request.
var errDoubted = errors.New("an earlier request has no answer")

// release runs the release script, and a second time if the first request had no answer.
func (l *Lease) release(ctx context.Context) error {
	turn, err := l.state.take(ctx, l.target.name, nil, nil) // also after Close
	if err != nil {
		return l.repeat(nil, err)
	}
	if !l.mayBeHeld() {
		turn.give()
		return l.settle(l.notHeld())
	}
	if l.mayReleaseTwice() { // an earlier Unlock has had no answer, and its repeats have been given up
		if err := l.repeat(turn, errDoubted); l.repeats == nil {
			return err
		}
		return l.awaitRepeats(ctx)
	}
	sent := l.client.now()
	v, err := l.giveBack(ctx)
	if l.unsure(sent, err) && ctx.Err() == nil && !l.mayReleaseTwice() {
		v, err = l.runRelease(ctx)
		l.unsure(sent, err)
	}
	var outcome error
	switch {
	case err == nil:
		if outcome, err = l.answered(v); err != nil {
			l.noteUnsure(sent, false)
		}
	case remote.Hopeless(err) && (turn == nil || !l.unanswered || l.state.singleUse):
		outcome, err = l.client.about(l.target.name, refusedWork(err)), nil
	}
	if err != nil {
		return l.repeat(turn, err)
	}
	l.client.table.forget(l) // within the turn: a listed lease of a group counts as a hold
	turn.give()
	return l.settle(outcome)
}

// giveBack hands the lock over, or releases the lock.
func (l *Lease) giveBack(ctx context.Context) (resp.Value, error) {
	if next := l.claimNext(func(*request) bool { return l.target.kind.HandOver != nil && !l.client.replicas.On() }); next != nil {
		if v, err := l.handOver(ctx, next); err == nil || remote.Uncertain(err) {
			l.notePassedOn(err == nil)
			l.client.leavePlace(l.target, l.place) // the script does not end it, and the waiter has its own
			l.place = nil
			return v, err
		}
	}
	return l.runRelease(ctx)
}

// answered records the server's reply to the release and returns the result for the holder, or an error for an
// unexpected reply.
func (l *Lease) answered(v resp.Value) (outcome, err error) {
	count, err := v.Int()
	switch {
	case v.IsNull() && l.unanswered && (l.maybeNoLatch || l.latchMayBeGone()):
		outcome = l.releasedLate()
	case v.IsNull(), l.lostToAnother():
		outcome = l.notHeld()
	case v.Kind() != resp.Integer || err != nil || !l.validReply(count):
		return nil, fmt.Errorf("lock: unexpected reply to release, of kind %v", v.Kind())
	default:
		l.confirmed(count)
	}
	l.finishLatch(outcome == nil)
	l.recordEnd(outcome == nil && count == 0)
	return outcome, nil
}

// confirmed records a release confirmed by the reply count.
func (l *Lease) confirmed(count int64) {
	c := l.client
	if l.single() {
		l.awaited = l.whole.Load() != nil && c.table.awaited(l.target, waiting(count))
	}
	if l.limits.atLeast == 0 {
		l.place = nil // the server has ended it
	}
	l.keepReleased()
	if count == 0 {
		l.target.announceShorterLease(c, time.Until(l.serverEnd()), l.leaseOfOtherHolds(), kinds.ShorterMessage)
	}
}

// lostToAnother reports whether l is a lost lease of a group, and other leases of its Owner have some of the values: the server cannot tell
// the holds of an owner apart.
func (l *Lease) lostToAnother() bool {
	if l.state == nil || l.target.values == "" {
		return false
	}
	return l.now().lost != nil && len(l.client.table.otherLeases(l.target, l.state, l)) > 0
}

// validReply reports whether count is a valid reply to a release: a waiting if the lock is free, or 0 if the owner has further holds.
func (l *Lease) validReply(count int64) bool {
	switch waiting(count) {
	case 0:
		return !l.single()
	case nobodyWaits, nobodyListens:
		return l.single()
	}
	return waiting(count) == someoneWaits || waiting(count) == visitorsWait
}

// recordEnd takes the hold out of the tally after its end on the server. partial: the owner's other holds go on; else they have ended too.
func (l *Lease) recordEnd(partial bool) {
	if l.state == nil || l.target.values != "" || partial && l.leftTally {
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
	return l.state == nil || l.leftTally || l.own().tally(l.target.storedKind()).period == l.period
}

// leaveTally takes the hold of a release without an outcome out of the tally, in the turn: with a tally larger than the server's count,
// the next grant would end the Owner's other leases. If the server still counts the hold, it ends with the last of the others.
func (l *Lease) leaveTally() {
	if l.unanswered && !l.settled && !l.leftTally && l.otherHolds() > 0 && l.mayBeHeld() {
		l.recordEnd(true)
		l.leftTally = true
	}
}

// releasedLate returns the outcome of a release whose earlier request may have freed the lock, or may have found it lost.
func (l *Lease) releasedLate() error {
	l.client.counters.released.Add(1)
	return l.client.about(l.target.name, fmt.Errorf("%w: it is released now, and may have been lost before", ErrUncertain))
}

// notHeld returns the outcome of a release that found no hold: ErrNotHeld, with the loss if the client knows of a loss.
func (l *Lease) notHeld() error {
	lost := l.now().lost
	if lost == nil {
		return l.client.about(l.target.name, ErrNotHeld)
	}
	return fmt.Errorf("%w: %w", ErrNotHeld, lost) // which names the lock
}

// unconfirmed returns the outcome of a release that the server has not confirmed.
func (l *Lease) unconfirmed(cause error) error {
	return l.client.about(l.target.name, fmt.Errorf("%w: %w", ErrUncertain, cause))
}

// settle makes err the final result of Unlock, and forgets the hold, which the client counts as long as the server may.
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
