package lock

import (
	"math"
	"slices"
	"time"
)

// Option changes one Lock or TryLock. Create an Option with [For], [AtMost], [AtLeast], [StopBefore],
// [As], [WaitForSetup], [Forever] or [Standby].
type Option struct {
	lease      time.Duration
	hasLease   bool
	owner      *ownerState
	hasOwner   bool
	setup      bool
	forever    bool
	standby    bool
	limit      limit
	limitValue time.Duration
}

// limit is a limit of a lease besides its term.
type limit uint8

const (
	noLimit    limit = iota // of an Option that sets none
	atMost                  // see AtMost
	atLeast                 // see AtLeast
	stopBefore              // see StopBefore
)

// limits has the limits of a lease. 0 is none.
type limits [stopBefore + 1]time.Duration

// For sets a fixed lease: the lock is free after d even if the holder never releases it, and no watchdog extends the
// lease. d counts in whole milliseconds, from [MinLease] to 50 years.
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
	case o.forever && (!k.permits || k.unowned()):
		return invalidf("Forever for a kind other than PermitSemaphore")
	case (o.hasLease || o.limit != noLimit) && k.unowned():
		return invalidf("a lease for a kind without leases")
	case o.keeps() && k.Keep == nil:
		return invalidf("AtLeast for a kind whose locks do not outlast their release")
	case o.hasOwner && (k.permits || k.unowned()):
		return invalidf("an Owner for a kind without owners")
	}
	return nil
}

// checkLease rejects a lease that no lock can have.
func (o Option) checkLease() error {
	if o.forever {
		return nil
	}
	return checkTerm("lease", o.lease)
}

// keeps reports whether o asks for a lock that outlasts its release.
func (o Option) keeps() bool { return o.limit == atLeast && o.limitValue != 0 }

// MinLease is the shortest lease that a caller may ask for. A shorter lease would end before its holder could use it.
const MinLease = 10 * time.Millisecond

// maxLease is the longest lease: sums of a few such times do not overflow.
const maxLease = 50 * 365 * 24 * time.Hour

// checkTerm rejects a lease of a length too short to be used, or too long for sums.
func checkTerm(what string, d time.Duration) error {
	switch {
	case d < MinLease:
		return invalidf("%s of %v, less than %v", what, d, MinLease)
	case d > maxLease:
		return invalidf("%s of %v, more than %v", what, d, maxLease)
	}
	return nil
}

// AtMost limits a hold of the lock: after d the lease is lost with the reason [HeldTooLong], whatever renewals or
// [Lease.Extend] would add. Renewal stops, so the server frees the lock by the end of its lease, or at Unlock. d counts
// from the grant, for a lease with Members from the grant of each member, and must be at least [MinLease]. 0 is no
// limit, also if Config.AtMost is set: [Forever] requires it then.
func AtMost(d time.Duration) Option { return Option{limit: atMost, limitValue: d} }

// StopBefore ends the contexts of the lease d before [Lease.ValidUntil], to leave time to stop a child process or a
// request while the lock is certainly held. The cause of such a context is a [*LostError] with the reason [Ending].
// The lock itself is not lost: Err, Lost and Unlock are not affected, and a later renewal keeps the lock for new
// contexts. 0 is no time.
//
// d must be shorter than the lease, and for a lease under the watchdog shorter than the part of the lease that is left
// when a renewal is due; always shorter than a limit set by [AtMost]. For a lease with Members, d counts for each
// member, as does the Config.StopBefore of its Client.
func StopBefore(d time.Duration) Option { return Option{limit: stopBefore, limitValue: d} }

// check rejects limits that cannot work with a lease of the given term, renewed every so often; 0 is never.
func (l limits) check(term, every time.Duration) error {
	switch {
	case l[atMost] < 0 || l[atMost] > 0 && l[atMost] < MinLease:
		return invalidf("AtMost of %v, less than %v", l[atMost], MinLease)
	case l[atMost] > 0 && term == forever:
		return invalidf("AtMost with Forever")
	case l[atLeast] < 0:
		return invalidf("AtLeast of %v", l[atLeast])
	case l[atLeast] > term && every == 0:
		return invalidf("AtLeast of %v with a lease of %v", l[atLeast], term)
	case l[atMost] > 0 && l[atLeast] > l[atMost]:
		return invalidf("AtLeast of %v with AtMost of %v", l[atLeast], l[atMost])
	case l[stopBefore] < 0:
		return invalidf("StopBefore of %v", l[stopBefore])
	case l[stopBefore] > 0 && l[stopBefore] >= validity(term)-every:
		return invalidf("StopBefore of %v with a lease certain for no more than %v", l[stopBefore], validity(term)-every)
	case l[atMost] > 0 && l[stopBefore] >= l[atMost]:
		return invalidf("StopBefore of %v with AtMost of %v", l[stopBefore], l[atMost])
	}
	return nil
}

// validity returns how long a lease of the given term is certain, counted from its start: the term less 1 % and 2 ms. The
// margin covers clocks of different rates and the millisecond in which a key expires.
func validity(term time.Duration) time.Duration { return term - term/100 - 2*time.Millisecond }
