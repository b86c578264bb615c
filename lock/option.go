package lock

import (
	"math"
	"slices"
	"time"
)

// Option changes one Lock or TryLock. Create an Option with [For], [AtMost], [AtLeast], [StopBefore],
// [As], [WaitForSetup], [Forever] or [Standby].
type Option struct {
	lease    time.Duration
	hasLease bool
	owner    *ownerState
	hasOwner bool
	permits  int
	setup    bool
	forever  bool
	standby  bool
	limit    limit
	limited  time.Duration // by limit
}

// limit is the kind of limit that an Option sets.
type limit uint8

const (
	noLimit limit = iota
	limitMost
	limitLeast
	limitStop
)

// For sets a fixed lease: the lock is free after d even if the holder never releases it, and no watchdog extends the
// lease. d counts in whole milliseconds and must be at least [MinLease].
func For(d time.Duration) Option { return Option{lease: d, hasLease: true} }

// As takes the lock as owner. If owner already has the lock, Lock takes a further hold at once. Without As, each
// Lease has an owner of its own.
func As(owner Owner) Option { return Option{owner: owner.state, hasOwner: true} }

// WaitForSetup makes Acquire wait until somebody has set up the permits of the semaphore, instead of returning
// [ErrNotSet]. TryAcquire then treats a semaphore without setup as a semaphore without a free permit.
func WaitForSetup() Option { return Option{setup: true} }

// Forever takes permits of a [PermitSemaphore] without a lease, like Redisson's acquire without a lease. Only a
// release returns the permits. If their holder dies, the permits are lost until somebody releases them by id.
func Forever() Option { return Option{lease: forever, hasLease: true, forever: true} }

// Standby marks a call that waits to take over from the holder, for days if need be, as leader.Run does. Its wait and its
// hold are not reported by Config.WarnAfter, and metrics count the call apart from those that want the lock soon:
// [AcquireStart].Standby is true. Nothing else changes.
func Standby() Option { return Option{standby: true} }

// standsBy reports whether one of opts is Standby.
func standsBy(opts []Option) bool {
	return slices.ContainsFunc(opts, func(o Option) bool { return o.standby })
}

// forever is the lease of permits without one, in whole milliseconds.
const forever = math.MaxInt64 / time.Millisecond * time.Millisecond

// check rejects options that have no meaning for kind k.
func (o Option) check(k *kind) error {
	switch {
	case o.setup && !k.permits:
		return invalidf("WaitForSetup for a kind without permits")
	case o.forever && (!k.permits || k.unowned):
		return invalidf("Forever for a kind other than PermitSemaphore")
	case (o.hasLease || o.limit != noLimit) && k.unowned:
		return invalidf("a lease for a kind without leases")
	case o.keeps() && k.Keep == nil:
		return invalidf("AtLeast for a kind whose locks do not outlast their release")
	case o.hasOwner && (k.permits || k.unowned):
		return invalidf("an Owner for a kind without owners")
	}
	return nil
}

// keeps reports whether o asks for a lock that outlasts its release.
func (o Option) keeps() bool { return o.limit == limitLeast && o.limited != 0 }
