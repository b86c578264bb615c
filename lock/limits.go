package lock

import (
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

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

// limit is the kind of limit that an Option sets.
type limit uint8

const (
	noLimit limit = iota
	limitMost
	limitLeast
	limitStop
)

// limitsOf returns the limits of a Config, nil for none.
func limitsOf(cfg *Config) *limits {
	if cfg.AtMost == 0 && cfg.StopBefore == 0 {
		return nil
	}
	return &limits{most: cfg.AtMost, stop: cfg.StopBefore}
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

// checkLimits rejects limits that cannot work with the lease of r.
func (r *request) checkLimits() error {
	c := r.client
	if r.limits == nil || r.target.kind.unowned {
		return nil
	}
	if r.limits.least != 0 && r.state != nil {
		return invalidf("AtLeast with an Owner, who could take the lock again")
	}
	if r.renewed {
		return r.limits.check(r.lease, c.cfg.RenewEvery)
	}
	return r.limits.check(r.lease, 0)
}

// stopBefore returns the time between the end of contexts and the end of the lease.
func (l *Lease) stopBefore() time.Duration {
	if l.limits == nil {
		return 0
	}
	return l.limits.stop
}

// most returns how long the lease may still be held by AtMost; limited is false without a limit.
func (l *Lease) most(at clock.Instant) (left time.Duration, limited bool) {
	if l.limits == nil || l.limits.most == 0 {
		return 0, false
	}
	return l.limits.most - l.since.Elapsed(at), true
}

// dueBy returns due, or the end by AtMost if earlier.
func (l *Lease) dueBy(due time.Time) time.Time {
	if l.limits == nil || l.limits.most == 0 {
		return due
	}
	return earlier(due, l.since.Time.Add(l.limits.most))
}

// remaining returns the limits for a lease that continues l.
func (l *Lease) remaining() *limits {
	left, limited := l.most(l.client.now())
	if !limited {
		return l.limits
	}
	return l.limits.with(limitMost, max(left, MinLease))
}

// ending returns the cause for the end of contexts if StopBefore requires their end now, else nil.
func (l *Lease) ending() *LostError {
	stop := l.stopBefore()
	if stop == 0 || time.Until(l.ValidUntil()) > stop {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostLocked(Ending, l.failure)
}

// stopContexts ends the contexts of the lease, and of the lease with Members that contains the lease, if StopBefore
// requires it now.
func (l *Lease) stopContexts() {
	if cause := l.ending(); cause != nil {
		l.mu.Lock()
		contexts := l.contexts
		l.contexts = nil
		l.mu.Unlock()
		for d := range contexts {
			d.cancel(cause)
		}
	}
	if whole := l.whole.Load(); whole != nil {
		whole.stopContexts()
	}
}
