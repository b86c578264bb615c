package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Lease is one holding of a lock, from the Lock or TryLock that returned it until Unlock. Its methods may be called by
// any number of goroutines at once, and by others than the one that locked.
type Lease struct {
	// Constant.
	client  *Client
	target  *target
	owner   string
	state   *ownerState // of the Owner that was passed, else nil
	term    time.Duration
	renewed bool  // by the watchdog
	tallied int64 // the term of the tally it is in, if it has a state
	token   int64
	series  series // of hand-overs that it belongs to
	group   parts  // of a lease that is made up of others, whose first one gives it client, target and owner; else nil

	whole atomic.Pointer[Lease] // the lease that it is a part of; nil if there is none

	// Guarded by Client.mu.
	next, prev *Lease
	listed     bool

	watch renewal // guarded by the watchdog's mu

	releasing sync.Mutex // held by the Unlock that is under way; guards the following
	latch     string     // of the release, the same when it is repeated
	repeats   *job       // the release, while it is repeated in the background
	repeated  bool       // a request for it had no answer, and may come yet
	unlatched bool       // a request for it may have left no latch
	settled   bool       // outcome is final
	outcome   error

	mu       sync.Mutex // guards the following
	phase    phase
	start    instant // before the request that the server counts the lease from
	lost     *LostError
	failure  error         // of the last renewal
	renewal  chan struct{} // closed when the renewal under way has ended; nil if there is none
	lostc    chan struct{}
	contexts map[*derived]struct{}
	timer    *time.Timer
}

type phase uint8

const (
	held     phase = iota
	released       // given up by its holder; the release may still be on its way
	gone           // lost
)

// parts is what a lease does otherwise when it is made up of others. The one there is, group, is linked into a program only
// with what makes such leases.
type parts interface {
	members() []*Lease
	join(part *Lease) bool
	validUntil() time.Time
	look()
	armLocked()
	count(cause *LostError)
	check(ctx context.Context) error
	unlock(ctx context.Context) error
}

type derived struct{ cancel context.CancelCauseFunc }

func newLease(c *Client, r *request, start instant) *Lease {
	l := &Lease{client: c, target: r.target, owner: r.owner, state: r.state, term: r.lease, renewed: r.renewed, start: start}
	if l.series = r.series; l.series.length == 0 {
		l.series.since = start.t
	}
	return l
}

// validity is how long after its start a lease may be relied on: 1 % and 2 ms less than the server grants, for clocks
// that run at different rates and for the millisecond in which a key expires.
func validity(term time.Duration) time.Duration { return term - term/100 - 2*time.Millisecond }

// Owner returns the owner of the lease as it stands in the lock's hash, which callers of one process to whom the lock goes one after
// the other have in common; of a [PermitSemaphore] the ids of its permits, with
// commas between them; of a lease with Members that of the first.
func (l *Lease) Owner() string {
	if show := l.target.kind.show; show != nil {
		return show(l.owner)
	}
	return l.owner
}

// ValidUntil returns the instant until which the lock is held for certain, unless somebody forces it. Every renewal
// moves it. It is measured from before the request was sent, and lies 1 % of the lease and 2 ms before its end on the server.
// Of a lease with Members it is the instant until which enough of them are held: it comes earlier when one is lost.
func (l *Lease) ValidUntil() time.Time {
	if l.group != nil {
		return l.group.validUntil()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.client.now()
	return at.t.Add(validity(l.term) - l.start.elapsed(at))
}

// Err returns nil while the lock is held, a [*LostError] once it is lost, and [ErrReleased] after Unlock. It looks at the clock
// and asks nobody.
func (l *Lease) Err() error {
	if l.group != nil {
		l.group.look()
	}
	l.mu.Lock()
	if l.group == nil && l.phase == held && l.leftLocked() <= 0 {
		l.mu.Unlock()
		l.expire()
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	switch l.phase {
	case gone:
		return l.lost
	case released:
		return ErrReleased
	}
	return nil
}

// Lost returns a channel that is closed when the lock is lost. It stays open when the lock is released in time.
func (l *Lease) Lost() <-chan struct{} {
	l.Err() // takes note if time is up
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostc == nil {
		l.lostc = make(chan struct{})
		if l.phase == gone {
			close(l.lostc)
		}
		l.armLocked()
	}
	return l.lostc
}

// Context returns a context derived from parent that ends when the lock is lost, with the [*LostError] as its
// [context.Cause], or released, with [ErrReleased] as its cause, before the release is sent. Calling cancel frees what
// the context holds on to; do so when the work is done.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)
	d := &derived{cause}
	l.Err() // takes note if time is up
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.phase {
	case gone:
		cause(l.lost)
	case released:
		cause(ErrReleased)
	default:
		if l.contexts == nil {
			l.contexts = make(map[*derived]struct{})
		}
		l.contexts[d] = struct{}{}
		l.armLocked()
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.contexts, d)
		l.mu.Unlock()
		cause(context.Canceled)
	}
}

// Check asks the server whether the lock is still held, in one round trip that changes nothing. It returns nil if so, and
// what Err returns if the lease is over: a [*LostError], that is [ErrWrongType] too if the key holds something that is not
// this kind of lock. An error of another kind says that the server could not be asked.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.group != nil {
		return l.group.check(ctx)
	}
	t := l.target
	v, err := t.kind.renew.Run(l.client.patient(ctx), l.client.server, l.appendReadLeases([]string{t.lease}), lookOnly, l.owner)
	if err != nil {
		return serverError(err)
	}
	outcome, err := renewalOutcome(v, 0)
	switch {
	case err != nil:
		return err
	case outcome < 0:
		l.denied(Taken, l.strange(ctx))
	case outcome == 0 && t.kind.permits: // whose lease is not under the name of the lock
		l.denied(Forced, l.strange(ctx))
	case outcome == 0:
		l.denied(Forced, nil)
	}
	return l.Err()
}

// strange returns an [ErrWrongType] if the key of a lock that its owner does not have any more holds no lock of its kind, else nil.
func (l *Lease) strange(ctx context.Context) error {
	if _, err := l.client.info(ctx, l.target); errors.Is(err, ErrWrongType) {
		return err
	}
	return nil
}

// Token returns the fencing token of a lock that was taken [Client.Fenced], and 0 of any other, also of one that is made up of
// such locks: each of its Members has a token of its own.
func (l *Lease) Token() int64 { return l.token }

// leftLocked is how long the lease may still be relied on.
func (l *Lease) leftLocked() time.Duration { return validity(l.term) - l.start.elapsed(l.client.now()) }

// leaseLeft is how long the server has to keep the lock for this lease: not at all once it is over, but for as long as it
// lasts while its release is under way.
func (l *Lease) leaseLeft() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.phase == gone && l.lost.Reason != ClientClosed, l.phase == held && l.leftLocked() <= 0:
		return 0
	case l.phase == held && l.renewed:
		return l.term
	}
	return max(0, l.term-l.start.elapsed(l.client.now()))
}

// extend moves the lease after a renewal that was asked for at start. A lease that is over stays over.
func (l *Lease) extend(start instant) {
	l.mu.Lock()
	over := l.phase == held && l.leftLocked() <= 0
	if l.phase == held && !over {
		l.start, l.failure = start, nil
	}
	l.mu.Unlock()
	if over {
		l.expire()
	}
}

// expire ends the lease because its time is up.
func (l *Lease) expire() {
	l.mu.Lock()
	reason, cause := Expired, l.failure
	switch at := l.client.now(); {
	case at.t.Sub(l.start.t) < validity(l.term):
		reason = ClockJump
	case cause != nil:
		reason = Unreachable
	}
	l.mu.Unlock()
	l.lose(reason, cause)
}

// denied ends the lease because the server says that the lock is not its owner's, and with it the owner's other holds of
// that time. What the owner has taken since is not meant.
func (l *Lease) denied(reason Reason, cause error) {
	l.lose(reason, cause)
	if l.state == nil {
		return
	}
	for _, other := range l.client.holdsOf(l.target.hold(), l.owner, l) {
		if other.tallied == l.tallied {
			other.lose(reason, cause)
		}
	}
}

// lose tells everybody concerned that the lock is lost. It does nothing if the lease is over already.
func (l *Lease) lose(reason Reason, cause error) {
	l.mu.Lock()
	if l.phase != held {
		l.mu.Unlock()
		return
	}
	l.phase = gone
	l.lost = &LostError{Name: l.target.name, Reason: reason, Err: cause}
	if l.lostc != nil {
		close(l.lostc)
	}
	contexts := l.disarmLocked()
	l.mu.Unlock()
	for d := range contexts {
		d.cancel(l.lost)
	}
	l.client.watchdog.remove(l)
	if reason != ClientClosed { // which says nothing about the server
		l.client.forget(l)
	}
	l.client.counters.lost.Add(1)
	l.client.warn("lease lost", "reason", reason.String(), "error", cause)
	l.tellWhole()
}

// armLocked starts the deadline timer if there is something for it to do. The timer is the lease's own, so that it fires
// whatever the network does.
func (l *Lease) armLocked() {
	if l.group != nil {
		l.group.armLocked()
		return
	}
	if l.timer != nil || l.phase != held {
		return
	}
	l.client.timers.Add(1)
	l.timer = time.AfterFunc(max(0, l.leftLocked()), l.deadline)
	l.client.watchdog.watchClock(l)
}

// deadline runs when the timer fires: it ends the lease, or goes on if that has been renewed meanwhile.
func (l *Lease) deadline() {
	l.mu.Lock()
	if l.phase == held {
		if left := l.leftLocked(); left > 0 {
			l.timer.Reset(left)
			l.mu.Unlock()
			return
		}
	}
	l.mu.Unlock()
	l.expire()
	l.client.timers.Done()
}

// disarmLocked stops the timer and returns the contexts to cancel.
func (l *Lease) disarmLocked() map[*derived]struct{} {
	if l.timer != nil && l.timer.Stop() {
		l.client.timers.Done()
	}
	contexts := l.contexts
	l.contexts = nil
	return contexts
}
