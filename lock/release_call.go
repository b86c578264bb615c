package lock

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/lock/internal/course"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// single reports whether the release runs the script kind.Single, made for owners with exactly one hold.
func (l *Lease) single() bool { return l.state == nil && l.target.kind.Single != nil }

// finishLatch ends the use of the latch, as the outcome is known. released: a request has set the latch. Of a single release it names the owner,
// so the next release can use it. Otherwise it is deleted or, for an Owner whose earlier request may still arrive, expires.
func (l *Lease) finishLatch(released bool) {
	u, name := l.client.cleanup, l.target.Name
	if l.course.NoLatch() && l.state == nil { // the script may have left the lease of a reader on another node
		for _, key := range l.readLeases() {
			u.DeleteLatch(name, key)
		}
	}
	switch {
	case l.single():
		u.KeepLatch(name, l.course.Latch)
	case released && (l.state == nil || !l.course.MayRun()):
		u.DeleteLatch(name, l.course.Latch)
	}
}

// runRelease sends the release, and again if the request came too late. It records who else waits for the lock.
func (l *Lease) runRelease(ctx context.Context) (v resp.Value, err error) {
	c, at := l.client, l.releasePosition()
	defer l.endStalePlace(at)
	if l.single() && l.keepFor() == 0 {
		v, err = l.runSingle(ctx, at)
	} else {
		v, err = c.scripts.RunInTime(ctx, l.target.Name, func(last int64) *remote.Call {
			if l.course.MustUndo(c.now()) { // the machine has slept since the first request
				return nil
			}
			return l.releaseCall(at, last)
		})
	}
	if count, bad := v.Int(); err == nil && bad == nil && count > 0 {
		reply := waiting(count)
		if reply != visitorsWait && (c.remote.Spread != nil || c.remote.Failover != nil) { // such a server does not know all listeners
			reply = someoneWaits
		}
		c.table.mu.Lock()
		defer c.table.mu.Unlock()
		if e := c.table.entries[l.target.awaitedAs()]; e != nil {
			e.elsewhere = reply
		}
	}
	return v, err
}

// runSingle runs the script single. The steps are those of Runner.Run, without allocations.
func (l *Lease) runSingle(ctx context.Context, at position) (resp.Value, error) {
	c, t := l.client, l.target
	ctx = remote.Dividing(ctx)
	publish, known := c.publishing(t), c.listenersKnown(t)
	args, needed := l.singleArgs(publish, known, at), 6
	switch usual := publish == remote.PlainPublish && known == 1; {
	case at.stand != standsNowhere || l.course.MayRun():
	case usual: // an argument costs the server more than 1 % of a Lock and Unlock
		needed = 1
	default:
		needed = 3
	}
	v, err := t.kind.Single.Run(ctx, c.server, t.withLine(append(t.baseKeys(), l.course.Latch)), args[:needed]...)
	if !remote.TryAgain(err) {
		return v, err
	}
	if !l.course.MayRun() { // the spare latch may be on another node than the lock
		c.cleanup.DeleteLatch(t.Name, l.course.Latch)
		l.course.Latch = newLatch(t)
	}
	return c.scripts.RunMigrating(ctx, l.releaseCall(at, 0), err)
}

// releaseCall returns the call that releases l, with the last moment last, by one of three scripts. All use the latch in the same way, so that a
// repeat may be another one:
//
//   - keep, while AtLeast keeps the lock taken
//   - single, for owners with exactly one hold. It has no last moment: its owner never holds the lock again, so a late one does no harm
//   - release, which counts the holds of the owner
func (l *Lease) releaseCall(at position, last int64) *remote.Call {
	c, t := l.client, l.target
	x := &remote.Call{Lock: t.Lock, Keys: l.ownerKeys(l.course.Latch),
		Apart: remote.Apart{OnSource: true, MayFree: true, Ran: &l.course.RanApart}}
	if rest := l.keepFor(); rest > 0 {
		ms := (rest-1)/time.Millisecond + 1 // rounded up, without overflow
		x.Script, x.Keys = t.kind.Keep, append(t.baseKeys(), l.course.Latch)
		x.Args = append(l.releaseArgs(int64(ms), l.course.MayRun(), last), l.successor())
		return x
	}
	if l.single() {
		args := l.singleArgs(c.publishing(t), c.listenersKnown(t), at)
		x.Script, x.Args = t.kind.Single, args[:]
		return x
	}
	x.Script = t.kind.Release
	x.Apart.MayRunUntil, x.Apart.ForTwoNodes = l.own().mayRun(), l.changeForTwoNodes
	x.Apart.Owner, x.Apart.Holds = l.owner, l.tally().count
	if !l.course.Reused && !l.course.MayRun() {
		last = 0 // none is needed: the owner never holds the lock again, and this is the first request
	}
	repeat := l.course.MayRun() && l.state != nil
	if x.Args = t.lineArgs(c, l.releaseArgs(l.keptByOwner(l), repeat, last)); t.Line != "" {
		x.Args = append(x.Args, at.place, at.stand)
	}
	return x
}

// singleArgs returns the ARGV of the script single.
func (l *Lease) singleArgs(publish string, known int, at position) [6]any {
	return [...]any{l.owner, publish, known, at.place, at.stand, l.course.MayRun()}
}

// releaseArgs returns the first ARGV of the scripts release and keep. kept is the lease that remains, or what a group keeps.
func (l *Lease) releaseArgs(kept any, repeat bool, last int64) []any {
	return append(make([]any, 0, 10), kept, l.owner, l.client.publishing(l.target), course.LatchLife.Milliseconds(), repeat, last)
}

// changeForTwoNodes changes x, the release of l, while the keys are on two nodes:
//
//   - Permits are marked as ended; the next client that asks puts them back.
//   - Of any other lock only its own key is released: the waiters of a queue get no message, and other readers keep the lock's lease.
func (l *Lease) changeForTwoNodes(ctx context.Context, x *remote.Call) bool {
	switch t := l.target; {
	case t.kind.permits:
		*x = remote.Call{Script: t.kind.More["end"], Lock: t.Lock, Keys: []string{t.renewKey}, Args: []any{l.owner}}
	case t.kind.isRead() && !l.extendOtherReads(ctx):
		return false
	default:
		x.Apart.LockOnly = true
	}
	return true
}

// extendOtherReads extends the leases of a reader's other holds, whose keys the script cannot use, to what the lock needs for them. It
// reports whether a hold is left.
func (l *Lease) extendOtherReads(ctx context.Context) bool {
	outer := l.leaseOfOthers(l)
	if l.state == nil || outer <= 0 {
		return true
	}
	alive := false
	for _, key := range kinds.ReadLeases(l.target.Name, l.owner, l.tally().count-1) {
		v, err := l.target.kind.RenewRead.Run(ctx, l.client.server, []string{key}, outer, readHold)
		renewed, err := renewalOutcome(v, err, 0)
		if err != nil {
			return false
		}
		alive = alive || renewed == 1
	}
	return alive
}

// otherHolds returns the number of holds in the tally without the hold of l; 0 if no other lease is alive.
func (l *Lease) otherHolds() int64 {
	if l.leaseOfOthers(l) == 0 {
		return 0
	}
	count := l.tally().count
	if l.course.State() == course.Uncounted {
		return count
	}
	return count - 1
}
