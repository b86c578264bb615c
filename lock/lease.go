package lock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/claim"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/course"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/lock/internal/watchdog"
)

// Lease is one hold of a lock, from the return of Lock or TryLock until Unlock. Any goroutine may call its methods, and
// many goroutines may call them at once.
type Lease struct {
	// Constant.
	hold
	renewed   bool // by the watchdog
	standby   bool // see Standby
	limits    limits
	grantedAt clock.Instant // the time of the grant
	period    int64         // of the tally that counts this hold; 0 without an Owner
	token     int64
	series    claim.Series            // the series of hand-overs this lease belongs to
	traced    atomic.Pointer[holding] // for the Trace; nil if not traced
	group     parts                   // nil unless the lease has Members; then client, target and owner are the first member's

	whole atomic.Pointer[Lease] // the lease with Members that contains this lease; nil for none

	at int // index in entry.leases, guarded by table.mu

	record watchdog.Record[*Lease] // guarded by the watchdog's mu

	releasing sync.Mutex    // held by the running Unlock; guards repeats and, while repeats is nil, the following
	repeats   *cleanup.Job  // the release, while it is repeated in the background, and is not settled
	course    course.Course // of the release
	place     any           // a place in the server's line for the release to leave; nil for none
	awaited   bool          // of a part: when it was released, other clients were waiting

	mu sync.Mutex // guards the following
	leaseState
	lostc    chan struct{}
	overc    chan struct{} // both are nil until somebody asks: see Lost and over
	contexts contexts
	timer    *time.Timer
}

// leaseState is the part of a lease that changes until its release.
type leaseState struct {
	phase      phase
	term       time.Duration
	extendedTo time.Time     // until then the server may have the lock by requests of which start and term do not tell; zero for none
	extending  time.Duration // by an Extend under way; 0 for none
	start      clock.Instant // taken just before sending the last request that granted or extended the lease
	lost       *LostError
	failure    error         // of the last renewal
	renewal    chan struct{} // closed when the renewal under way has ended; nil without a renewal under way
}

// now returns the present state of the lease.
func (l *Lease) now() leaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaseState
}

type phase uint8

const (
	held     phase = iota
	released       // given up by its holder; the release may still be on its way
	gone           // lost
)

// parts is the behaviour of a lease with Members. The only implementation is group. The interface keeps group out of
// programs without Multi and Redlock.
type parts interface {
	members() []*Lease
	join(ctx context.Context, part *Lease) bool
	validUntil() time.Time
	checkClocks()
	armLocked()
	mustStopContexts() bool
	checkQuorum(cause *LostError)
	check(ctx context.Context) error
	extend(ctx context.Context, d time.Duration) error
	name() string
	unlock(ctx context.Context) error
}

// contexts are those of a lease that have not ended, by what ends each.
type contexts map[*context.CancelCauseFunc]struct{}

func (c contexts) end(cause error) {
	for end := range c {
		(*end)(cause)
	}
}

func newLease(r *request, g grant) *Lease {
	l := &Lease{hold: r.hold, renewed: r.renewed, token: g.token}
	l.term, l.start = r.lease, g.start
	l.limits, l.standby = r.limits, r.standby
	l.course.Owned, l.course.Reused = r.state != nil, r.state != nil && !r.state.singleUse
	if l.series = g.series; l.series.Length == 0 {
		l.series.Since = g.start.Time
	}
	return l
}

// Owner returns the owner of the lease as stored in the lock's hash. After a hand-over without asking the server (see
// Config.HandOvers) the next lease has the same owner.
//
//   - For a [PermitSemaphore], Owner returns the ids of the permits, separated by commas.
//   - For a lease with Members, Owner returns the first member's owner.
func (l *Lease) Owner() string { return l.shownOwner() }

func (l *Lease) age() time.Duration { return l.grantedAt.Elapsed(l.client.now()) }

// Name returns the name of the lock. For a lease with Members, Name returns the first member's name.
func (l *Lease) Name() string { return l.target.Name }

// Kind returns the kind of the lock: reentrant, nonreentrant, spin, fenced, fair, nonreentrantfair, read, write, fastermulti,
// plain or permits; for a lease with Members multi or redlock.
func (l *Lease) Kind() string {
	if l.group != nil {
		return l.group.name()
	}
	return l.target.kind.Name
}

// ValidUntil returns the instant until which the lock is certainly held, unless somebody forces the lock. Every renewal
// moves the instant, up to the limit set by [AtMost]. The client counts from before the request was sent and subtracts 1 %
// of the lease and 2 ms. For a lease by [Forever] the instant is centuries away.
//
// For a lease with Members, ValidUntil returns the instant until which enough members are held. The loss of a member
// may bring the instant forward.
func (l *Lease) ValidUntil() time.Time {
	if l.group != nil {
		return l.group.validUntil()
	}
	until, _ := l.alive()
	return until
}

// alive reports whether the lease is held, and until when. An expired lease is not yet reported as lost.
func (l *Lease) alive() (until time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.client.now()
	left := l.leftAtLocked(at)
	return at.Time.Add(left), l.phase == held && left > 0
}

// Err returns nil while the lock is held, a [*LostError] after its loss, and [ErrReleased] after Unlock. Err reads the
// clock and does not ask the server.
func (l *Lease) Err() error {
	if l.group != nil {
		l.group.checkClocks()
	}
	l.lockNow()
	defer l.mu.Unlock()
	switch l.phase {
	case gone:
		return l.lost
	case released:
		return ErrReleased
	}
	return nil
}

// lockNow locks mu, and ends the lease before if its time is up.
func (l *Lease) lockNow() {
	l.mu.Lock()
	if l.group == nil && l.phase == held && l.leftLocked() <= 0 {
		l.mu.Unlock()
		l.expire()
		l.mu.Lock()
	}
}

// Lost returns a channel closed on the loss of the lock. The channel stays open if the lock is released in time.
func (l *Lease) Lost() <-chan struct{} {
	l.Err() // ends the lease if its time is up
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.channelLocked(&l.lostc, l.phase == gone)
}

// over returns a channel closed at the end of the hold, by loss or release.
func (l *Lease) over() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.channelLocked(&l.overc, l.phase != held)
}

// channelLocked makes a channel for the end of the lease at its first use.
func (l *Lease) channelLocked(c *chan struct{}, ended bool) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
		if ended {
			close(*c)
		}
		l.armLocked()
	}
	return *c
}

// Context returns a context derived from parent. The context ends with the lease, and its [context.Cause] is:
//
//   - the [*LostError] after a loss
//   - [ErrReleased] after Unlock, which ends the context before it sends the release
//   - a LostError with the reason [Ending] at the time set by [StopBefore]
//
// [LeaseFrom] returns the lease of such a context.
//
// Call cancel when the work is done, to free the context's resources.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(leased{parent, l})
	l.Err() // ends the lease if its time is up
	ending := l.ending()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.phase == gone:
		end(l.lost)
	case l.phase == released:
		end(ErrReleased)
	case ending != nil:
		end(ending)
	default:
		if l.contexts == nil {
			l.contexts = make(contexts)
		}
		l.contexts[&end] = struct{}{}
		l.armLocked()
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.contexts, &end)
		l.mu.Unlock()
		end(context.Canceled)
	}
}

// Token returns the fencing token of a lock from [Client.Fenced], and 0 for any other lock. A lease with Members returns 0;
// ask each member for its own token.
func (l *Lease) Token() int64 { return l.token }

// leftByAtMost returns how long the lease may still be held by AtMost.
func (l *Lease) leftByAtMost(at clock.Instant) time.Duration {
	if l.limits[atMost] == 0 {
		return math.MaxInt64
	}
	return l.limits[atMost] - l.grantedAt.Elapsed(at)
}

// leftLocked returns how long the lease is still certain.
func (l *Lease) leftLocked() time.Duration { return l.leftAtLocked(l.client.now()) }

func (l *Lease) leftAtLocked(at clock.Instant) time.Duration {
	return min(validity(l.term)-l.start.Elapsed(at), l.leftByAtMost(at))
}

// neededFor returns how long the server must keep the lock for this lease: the full term under renewal, 0 after a loss,
// otherwise the remaining term, also while the release is under way.
func (l *Lease) neededFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.phase == gone && l.lost.Reason != ClientClosed, l.phase == held && l.leftLocked() <= 0:
		return 0
	case l.phase == held && l.renewed:
		return l.term
	}
	return max(0, l.term-l.start.Elapsed(l.client.now()))
}

// serverEnd returns the end of the lease on the server. Afterwards nothing is left to release.
func (l *Lease) serverEnd() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clock.Later(l.start.Time.Add(l.term), l.extendedToLocked())
}

// extendedToLocked returns extendedTo, also for a renewal or an Extend under way.
func (l *Lease) extendedToLocked() time.Time {
	switch {
	case l.renewed && l.renewal != nil:
		return time.Now().Add(l.term)
	case l.extending > 0:
		return clock.Later(time.Now().Add(l.extending), l.extendedTo)
	}
	return l.extendedTo
}

// mayLast notes that a request may have made the server keep the lock for term from now.
func (l *Lease) mayLast(term time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extendedTo = clock.Later(time.Now().Add(term), l.extendedTo)
}

// latestEnd returns the end of the lease on the server if every request without an answer has had its effect.
func (l *Lease) latestEnd() time.Time {
	if l.renewed {
		return time.Now().Add(l.now().term + remote.Arrival)
	}
	return l.serverEnd().Add(remote.Arrival)
}

// countFrom makes the lease last for term from start, when the server was asked to extend it, unless it lasts longer already. An ended lease
// stays ended.
func (l *Lease) countFrom(start clock.Instant, term time.Duration) {
	l.lockNow()
	defer l.mu.Unlock()
	at := l.client.now()
	if l.phase == held && validity(term)-start.Elapsed(at) >= validity(l.term)-l.start.Elapsed(at) {
		l.start, l.term, l.failure = start, term, nil
	}
}

// expire ends the lease because its time is up.
func (l *Lease) expire() {
	l.mu.Lock()
	reason, cause := Expired, l.failure
	at := l.client.now()
	switch {
	case l.leftByAtMost(at) <= 0 && l.start.Elapsed(at) < validity(l.term):
		reason, cause = HeldTooLong, nil
	case at.Time.Sub(l.start.Time) < validity(l.term):
		reason = ClockJump
	case cause != nil:
		reason = Unreachable
	}
	l.mu.Unlock()
	l.lose(reason, cause)
}

// denied ends the lease, and the owner's other leases of the same period, because the server says that the owner does not
// hold the lock. Later holds of the owner go on.
func (l *Lease) denied(reason Reason, cause error) {
	l.revoke(reason, cause)
	if !l.counted() { // has no period
		return
	}
	for _, other := range l.client.table.holdsOf(l.target.heldAs(), l.owner, l) {
		if other.period == l.period {
			other.revoke(reason, cause)
		}
	}
}

// revoke is lose after an answer of the server. A lease whose time was up before is lost for that reason.
func (l *Lease) revoke(reason Reason, cause error) {
	l.Err()
	l.lose(reason, cause)
}

// lose marks the lock as lost and notifies the contexts, the watchdog and the lease with Members. An ended lease is left alone.
func (l *Lease) lose(reason Reason, cause error) {
	if !l.markLost(func() *LostError { return l.lostLocked(reason, cause) }) {
		return
	}
	l.client.watchdog.Remove(l)
	l.own().noteLost(l.latestEnd())
	if reason != ClientClosed { // after Close the server may still count the hold
		l.client.table.forget(l)
	}
	l.client.counters.lost.Add(1)
	why := []any{"reason", reason.String()}
	if cause != nil {
		why = append(why, "error", cause)
	}
	l.warn("lease lost", why...)
	l.traceLoss()
	l.notifyWhole()
}

// markLost sets the loss of a held lease and ends its contexts. It reports false if the lease has ended before.
func (l *Lease) markLost(lostLocked func() *LostError) bool {
	l.mu.Lock()
	if l.phase != held {
		l.mu.Unlock()
		return false
	}
	l.phase = gone
	l.lost = lostLocked()
	if l.lostc != nil {
		close(l.lostc)
	}
	contexts := l.disarmLocked()
	l.mu.Unlock()
	contexts.end(l.lost)
	return true
}

// lostLocked returns the error for the loss of l, or for the end of its contexts. It does not call Config.ShowName, which may
// call methods of the lease; the text of the error does.
func (l *Lease) lostLocked(reason Reason, cause error) *LostError {
	e := &LostError{Name: l.target.Name, Kind: l.Kind(), Owner: l.Owner(), Age: l.age(), Reason: reason, Err: cause, log: l.client.log}
	if l.group == nil && reason != Taken && reason != Forced {
		e.Remaining = max(0, l.term-l.start.Elapsed(l.client.now()), time.Until(l.extendedToLocked()))
	}
	return e
}

// warn logs a trouble of the lease.
func (l *Lease) warn(text string, args ...any) {
	if !l.client.log.Silent() {
		l.client.log.WarnOf(l.target.Name, l.Kind(), l.Owner(), text, l.logged(args)...)
	}
}

// logged returns the attributes of a line of the log about the lease: the common ones, and then args.
func (l *Lease) logged(args []any) []any { return append([]any{"age", roughly(l.age())}, args...) }

// armLocked starts the deadline timer of a held lease, once. Each lease has its own timer, independent of the network.
func (l *Lease) armLocked() {
	if l.group != nil {
		l.group.armLocked()
		return
	}
	if l.phase != held {
		return
	}
	next := max(0, l.leftLocked()-l.limits[stopBefore])
	if l.timer != nil {
		if l.limits[stopBefore] > 0 && l.timer.Stop() { // it may be set for the end of a lease since renewed
			l.timer.Reset(next)
		}
		return
	}
	l.client.timers.Add(1)
	l.timer = time.AfterFunc(next, l.deadline)
	l.client.watchdog.WatchClock(l)
}

// deadline runs when the timer fires. It ends the lease, or its contexts by StopBefore, and resets the timer if the lease
// is still held.
func (l *Lease) deadline() {
	l.stopContexts()
	l.mu.Lock()
	if left, stop := l.leftLocked(), l.limits[stopBefore]; l.phase == held && left > 0 {
		if left > stop {
			left -= stop
		}
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.expire()
	l.client.timers.Done()
}

// ending returns the cause for the end of contexts if StopBefore requires their end now, else nil. The contexts of a lease whose
// time is up, as after a stop of the process, end with its loss.
func (l *Lease) ending() *LostError {
	stop, left := l.limits[stopBefore], time.Until(l.ValidUntil())
	stops := left <= stop
	if l.group != nil {
		stops = l.group.mustStopContexts()
	}
	if !stops || left <= 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leftByAtMost(l.client.now()) <= stop {
		e := l.lostLocked(Ending, nil)
		e.atMost = true
		return e
	}
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
		contexts.end(cause)
	}
	if whole := l.whole.Load(); whole != nil {
		whole.stopContexts()
	}
}

// disarmLocked stops the timer of a lease that ends, and returns its contexts for the caller to cancel without mu.
func (l *Lease) disarmLocked() contexts {
	if l.overc != nil {
		close(l.overc)
	}
	if l.timer != nil && l.timer.Stop() {
		l.client.timers.Done()
	}
	contexts := l.contexts
	l.contexts = nil
	return contexts
}

// leased is a context with a lease for LeaseFrom.
type leased struct {
	context.Context
	lease *Lease
}

type leaseKey struct{}

func (l leased) Value(key any) any {
	if key == (leaseKey{}) {
		return l.lease
	}
	return l.Context.Value(key)
}

// LeaseFrom returns the lease of a context that [Handle.Do] has passed to its function, or that [Lease.Context] has
// returned, also of a context derived from such a context. LeaseFrom returns nil for any other context. If leases are
// nested, LeaseFrom returns the innermost lease. Do not release the lease of Do.
func LeaseFrom(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// notifyWhole reports the end of l to the whole, if l is a part. Without l a whole that goes on may end sooner.
func (l *Lease) notifyWhole() {
	if whole := l.whole.Load(); whole != nil {
		whole.group.checkQuorum(l.now().lost)
		whole.stopContexts()
	}
}

// acquiredLate is the text about a lock that was acquired after a long wait.
const acquiredLate = "acquired after a long wait"

// waitsLong reports whether a wait is long enough for the log.
func (c *Client) waitsLong(waited time.Duration, standby bool) bool {
	after := c.cfg.WarnAfter
	return after > 0 && !standby && waited > after && !c.log.Silent()
}

// warnWaited reports a lock that was acquired after a long wait.
func (l *Lease) warnWaited(since time.Time) {
	if waited := l.grantedAt.Time.Sub(since); !since.IsZero() && l.client.waitsLong(waited, l.standby) {
		l.warn(acquiredLate, "waited", roughly(waited))
	}
}

func (l *Lease) warnHeld() {
	if after := l.client.cfg.WarnAfter; after > 0 && !l.standby && l.age() > after {
		l.warn("held for long")
	}
}
