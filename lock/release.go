package lock

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/resp"
)

const (
	// latchLife is how long the server remembers the outcome of a release, for its repeats. Redisson's is 16 to 20 s.
	latchLife = 20 * time.Second
	// releaseMin and releaseMax bound how long Unlock waits; in between it is what is left of the lease.
	releaseMin, releaseMax = time.Second, 10 * time.Second
)

// Unlock gives the hold back. It works under a cancelled context too: it keeps the values of ctx and nothing else, and waits
// for as long as the lease lasts, but between 1 and 10 s. Contexts of the lease end, and renewal stops, before the
// release is sent.
//
// It returns nil when this hold is released, or the next caller in line of the process has it (see Config.HandOvers); [ErrNotHeld] when there was nothing to release, since the lock had been
// lost; [ErrUncertain], wrapped together with the reason, when the server did not confirm, in which case the release goes
// on being repeated in the background until it is confirmed or the lease has ended. Calling it again returns the same, or
// asks again where it was uncertain: the server knows a repeat by its request id and does nothing twice.
//
// A lease with Members gives all of them back, each as it would be alone, and returns what is said at [Multi] or [Redlock].
func (l *Lease) Unlock(ctx context.Context) error {
	if l.group != nil {
		return l.group.unlock(ctx)
	}
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.settled {
		return l.outcome
	}
	lost, left := l.giveUp()
	ctx, done := l.client.bound(ctx, min(max(left, releaseMin), releaseMax))
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

// settle makes err what Unlock returns from now on. Until then the server may count this hold, and so does the client.
func (l *Lease) settle(err error) error {
	l.settled, l.outcome = true, err
	switch n := &l.client.counters; {
	case err == nil:
		n.released.Add(1)
	case err == ErrNotHeld: // else the loss that explains it has been counted
		n.lost.Add(1)
	}
	l.client.forget(l)
	return err
}

// repeat leaves the release to the background. turn says that the owner's turn goes with it.
func (l *Lease) repeat(turn bool, cause error) error {
	l.repeats = &job{lease: l, turn: turn, since: time.Now(), until: l.end(), done: make(chan struct{})}
	if !l.client.cleanup.add(l.repeats) {
		l.repeats = nil
		l.client.forget(l)
		if turn {
			l.state.give()
		}
	}
	return fmt.Errorf("%w: %w", ErrUncertain, cause)
}

// awaitRepeats waits for the background to get an answer to the release.
func (l *Lease) awaitRepeats(ctx context.Context) error {
	repeats := l.repeats
	l.releasing.Unlock()
	defer l.releasing.Lock()
	select {
	case <-repeats.done:
		return repeats.outcome
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUncertain, context.Cause(ctx))
	}
}

// giveUp marks the lease as over for its holder and returns why it is lost, if so, and how long it would have lasted.
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

// awaitRenewal waits for the renewal that is under way, if any. The watchdog starts no other: the lease is over.
func (l *Lease) awaitRenewal(ctx context.Context) {
	l.client.watchdog.remove(l)
	l.mu.Lock()
	renewal := l.renewal
	l.mu.Unlock()
	if renewal == nil {
		return
	}
	select {
	case <-renewal:
	case <-ctx.Done():
	}
}

// release runs the release script, and once more if it had no answer.
func (l *Lease) release(ctx context.Context) error {
	if l.state != nil {
		if err := l.state.take(ctx); err != nil {
			return l.repeat(false, err)
		}
	}
	if !l.counted() {
		l.state.give()
		return l.settle(l.notHeld())
	}
	v, err := l.giveBack(ctx)
	if err != nil && uncertain(err) {
		l.repeated = true
		if ctx.Err() == nil {
			v, err = l.runRelease(ctx)
		}
	}
	if err != nil && !final(err) {
		return l.repeat(l.state != nil, err)
	}
	var outcome error
	if err != nil {
		outcome = serverError(err)
	} else if outcome, err = l.answered(v); err != nil {
		l.repeated = true
		return l.repeat(l.state != nil, err)
	}
	if l.state != nil {
		l.state.give()
	}
	return l.settle(outcome)
}

func (l *Lease) runRelease(ctx context.Context) (resp.Value, error) {
	c, t := l.client, l.target
	if !l.single() {
		return c.runInTime(ctx, t, l.releaseCall)
	}
	ctx = c.dividing(ctx) // and else as run, but that this makes nothing for the heap
	v, err := t.kind.single.Run(ctx, c.server, t.with(l.latch), 0, l.owner, c.publishing(t), latchLife.Milliseconds(), l.repeated)
	if refused(err) {
		return c.divide(ctx, c.server, l.releaseCall(0), err)
	}
	return v, err
}

// single reports whether the release is that of a kind's script of this name: its owner had one hold, and never another one.
func (l *Lease) single() bool { return l.state == nil && l.target.kind.single != nil }

func (l *Lease) resting() int64 { return l.client.restingLease(l.target.hold(), l.state, l.owner, l) }

// releaseCall is what runRelease runs, good until last. That of single needs no such time: its owner never comes back.
func (l *Lease) releaseCall(last int64) *call {
	c, t := l.client, l.target
	x := &call{script: t.kind.release, target: t, keys: t.of(l.owner, l.state, l.latch), leaves: true, tells: true, apart: &l.unlatched, owner: l.owner}
	if l.single() {
		x.script = t.kind.single
		x.args = []any{0, l.owner, c.publishing(t), latchLife.Milliseconds(), l.repeated}
		return x
	}
	if x.state = l.state; l.state != nil {
		x.holds = l.state.tallies[t.hold()].count
	}
	x.args = []any{l.resting(), l.owner, c.publishing(t), latchLife.Milliseconds(), l.repeated && l.state != nil, last, c.countsListeners(t)}
	if !t.kind.queued {
		x.args = x.args[:len(x.args)-1]
	}
	return x
}

// lateReleaseCall takes the place of a repeat that comes too late for the latch to tell it from the request that it repeats:
// it goes back to the hold count that there is to be.
func (l *Lease) lateReleaseCall() *call {
	t := l.target
	before := int64(0)
	if l.state != nil {
		before = l.state.tallies[t.hold()].count - 1
	}
	r := request{target: t, lease: l.term, owner: l.owner, state: l.state}
	args := l.client.args(&r, l.resting(), l.owner, l.client.publishing(t), before, l.client.last(t.name))
	return &call{script: t.kind.undo, target: t, keys: t.of(l.owner, l.state, l.latch), args: args, leaves: true, tells: true, state: l.state}
}

// answered takes note of what the server said to the release and returns what that means for the holder, or an error if it
// means nothing.
func (l *Lease) answered(v resp.Value) (outcome, err error) {
	count, err := v.Int()
	switch {
	case v.IsNull() && l.repeated && l.unlatched:
		outcome = fmt.Errorf("%w: it is released now, and may have been lost before", ErrUncertain)
	case v.IsNull():
		outcome = l.notHeld()
	case v.Kind() != resp.Integer || err != nil || !l.sensible(count):
		return nil, fmt.Errorf("lock: unexpected reply to release, of kind %v", v.Kind())
	case count > 1:
		l.client.told(l.target, int(count-1))
	}
	l.letLatchGo(outcome == nil)
	l.tally(outcome == nil && count == 0)
	return outcome, nil
}

// sensible reports whether a release can be answered so: 1 when the lock is free, by single with the listeners added, and 0 when
// the owner has further holds.
func (l *Lease) sensible(count int64) bool {
	if l.single() {
		return count >= 1
	}
	return count == 0 || count == 1
}

// letLatchGo is for when the outcome of the release is known. set says that the server remembers it.
func (l *Lease) letLatchGo(set bool) {
	u := &l.client.cleanup
	switch {
	case l.single():
		u.keepLatch(l.target.name, l.latch)
	case set && (l.state == nil || !l.repeated): // otherwise an earlier request may still come, and has to find it
		u.addLatch(l.target.name, l.latch)
	}
}

// tally takes note that the server does not have the hold any more, and of the others only if partial.
func (l *Lease) tally(partial bool) {
	if l.state == nil {
		return
	}
	if partial {
		l.state.ungrant(l.target.hold())
		return
	}
	delete(l.state.tallies, l.target.hold())
	l.denied(Forced, nil)
}

// counted reports whether the server can still have the hold: if not, what it has of the owner was taken later. The
// caller has the owner's turn.
func (l *Lease) counted() bool {
	return l.state == nil || l.state.tallies[l.target.hold()].term == l.tallied
}

// notHeld is the outcome of a release that found nothing, with the loss that explains it if there was one.
func (l *Lease) notHeld() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		return ErrNotHeld
	}
	return fmt.Errorf("%w: %w", ErrNotHeld, l.lost)
}

// end is when the server's lease ends, after which there is nothing left to release.
func (l *Lease) end() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start.t.Add(l.term)
}

// newLatch returns the key for the outcome of the release. As that of single names the owner, its key may have served before.
func (l *Lease) newLatch() string {
	if l.single() {
		if key := l.client.cleanup.spareLatch(l.target.name); key != "" {
			return key
		}
	}
	return newLatch(l.target)
}

// newLatch returns the key under which the server remembers the outcome of one release: the request id at its end is 16
// random bytes in hexadecimal, as Redisson's are.
func newLatch(t *target) string {
	var id [16]byte // nobody gains by guessing it
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	var buf [128]byte
	return string(hex.AppendEncode(appendLatch(buf[:0], t.name), id[:]))
}
