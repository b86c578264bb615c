package lock

import (
	"time"
)

// MinLease is the shortest lease that a caller may ask for. A shorter lease would end before its holder could use it.
const MinLease = 10 * time.Millisecond

// limits are the limits of a lease besides its term. A nil pointer is no limit.
type limits struct {
	most  time.Duration // see AtMost; 0 for none
	least time.Duration // see AtLeast
	stop  time.Duration // see StopBefore
}

// AtMost limits a hold of the lock: after d the lease is lost with the reason [HeldTooLong], whatever renewals or
// [Lease.Extend] would add. Renewal stops, so the server frees the lock by the end of its lease, or at Unlock. d
// counts from the grant, for a lease with Members from the grant of each member, and must be at least [MinLease]. 0
// is no limit.
func AtMost(d time.Duration) Option { return Option{limit: limitMost, limited: d} }

// StopBefore ends the contexts of the lease d before [Lease.ValidUntil], to leave time to stop a child process or a
// request while the lock is certainly held. The cause of such a context is a [*LostError] with the reason [Ending].
// The lock itself is not lost: Err, Lost and Unlock are not affected, and a later renewal keeps the lock for new
// contexts. 0 is no time.
//
// d must be shorter than the lease, and for a lease under the watchdog shorter than the part of the lease that is
// left when a renewal is due.
func StopBefore(d time.Duration) Option { return Option{limit: limitStop, limited: d} }

// newLimits returns limits as of AtMost and StopBefore, nil for none.
func newLimits(most, stop time.Duration) *limits {
	if most == 0 && stop == 0 {
		return nil
	}
	return &limits{most: most, stop: stop}
}

// with returns l changed by an option. The receiver stays the same and may be nil.
func (l *limits) with(which limit, d time.Duration) *limits {
	var changed limits
	if l != nil {
		changed = *l
	}
	switch which {
	case limitMost:
		changed.most = d
	case limitLeast:
		changed.least = d
	case limitStop:
		changed.stop = d
	}
	return &changed
}

// check rejects limits that cannot work with a lease of the given term, renewed every so often; 0 is never.
func (l *limits) check(term, every time.Duration) error {
	switch {
	case l == nil:
		return nil
	case l.most < 0 || l.most > 0 && l.most < MinLease:
		return invalidf("AtMost of %v, less than %v", l.most, MinLease)
	case l.most > 0 && term == forever:
		return invalidf("AtMost with Forever")
	case l.least < 0:
		return invalidf("AtLeast of %v", l.least)
	case l.least > term && every == 0:
		return invalidf("AtLeast of %v with a lease of %v", l.least, term)
	case l.most > 0 && l.least > l.most:
		return invalidf("AtLeast of %v with AtMost of %v", l.least, l.most)
	case l.stop < 0:
		return invalidf("StopBefore of %v", l.stop)
	case l.stop > 0 && l.stop >= validity(term)-every:
		return invalidf("StopBefore of %v with a lease of %v renewed every %v", l.stop, term, every)
	case l.most > 0 && l.stop >= l.most:
		return invalidf("StopBefore of %v with AtMost of %v", l.stop, l.most)
	}
	return nil
}

// validity returns how long a lease of the given term is certain, counted from its start: the term less 1 % and 2 ms. The
// margin covers clocks of different rates and the millisecond in which a key expires.
func validity(term time.Duration) time.Duration { return term - term/100 - 2*time.Millisecond }
