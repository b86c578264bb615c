package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/callback"
)

// Trace holds callbacks for traces, metrics and logs of locks. A nil callback costs nothing. The commands sent for a
// lock are reported to conn.Trace, under the contexts returned by the callbacks of this Trace.
//
// Several goroutines may run callbacks at once. The call that caused the event waits for the callback, and so do
// renewals. A callback must be quick. It must not take, release or check a lock of the Client, and must not close the
// Client.
type Trace struct {
	// AcquireStart is called when Lock, TryLock, Acquire, TryAcquire or Wait begins, with the context of the caller.
	// The call goes on under the returned context, which must be derived from ctx. A call with invalid arguments, or for
	// 0 permits, is not reported. Downgrade is reported as a TryLock of the read lock and the first Unlock of the write lock.
	AcquireStart func(ctx context.Context, start AcquireStart) context.Context

	// AcquireEnd is called when the call returns, with the context from AcquireStart.
	AcquireEnd func(ctx context.Context, end AcquireEnd)

	// ReleaseStart is called when the first Unlock of a lease begins, and for Release of a semaphore of either kind and
	// CountDown of a latch. The call goes on under the returned context, which must be derived from ctx.
	ReleaseStart func(ctx context.Context, start ReleaseStart) context.Context

	// ReleaseEnd is called when the call returns, with the context from ReleaseStart.
	ReleaseEnd func(ctx context.Context, end ReleaseEnd)

	// Lost is called once for each lost lease, no later than ReleaseEnd; Unlock is reported nevertheless. Close of the
	// Client loses every lease still held, with the reason ClientClosed.
	Lost func(LossInfo)

	// Renewal is called after each round of renewals. In a cluster each server has rounds of its own, and so has a slot that
	// migrates.
	Renewal func(RenewalInfo)

	// Background is called when the client leaves an unconfirmed change to the background, and again at its end.
	Background func(BackgroundInfo)
}

// AcquireStart describes a call that wants a lock.
type AcquireStart struct {
	Client  *Client       // of a Multi or Redlock the client of the first member
	Kind    string        // "reentrant", "fair", "read", "write", "permits", "semaphore", "latch", "multi", "redlock" ...
	Name    string        // of a Multi or Redlock the name of the first member
	Try     bool          // the call does not wait
	Lease   time.Duration // length of the lease; 0 for kinds without leases, and for Forever
	Renewed bool          // the watchdog renews the lease
	Permits int           // number of permits of a semaphore, else 0
	Members int           // number of locks of a Multi, or of servers of a Redlock, else 0
	Part    bool          // the lock is a member of a Multi, which is reported too
	Standby bool          // the call waits to take over, for however long: see the option [Standby]
}

// Outcome is the result of an acquire or a release, as a word for labels.
type Outcome string

const (
	OutcomeAcquired  Outcome = "acquired"
	OutcomeRefused   Outcome = "refused"   // somebody else has the lock, and the call does not wait
	OutcomeCancelled Outcome = "cancelled" // the context ended before the lock was acquired; a deadline without any answer of the server is "error"
	OutcomeLateGrant Outcome = "lost"      // the grant arrived after the end of its lease: see ErrLost
	OutcomeFailed    Outcome = "error"     // any other error

	OutcomeReleased    Outcome = "released"
	OutcomeNotHeld     Outcome = "not_held"    // the lock had been lost
	OutcomeUnconfirmed Outcome = "unconfirmed" // the server has not confirmed: see ErrUncertain
)

// AcquireEnd describes the end of a call that wanted a lock.
type AcquireEnd struct {
	AcquireStart
	Outcome        Outcome
	Err            error         // nil if acquired
	Elapsed        time.Duration // duration of the call
	InLine         time.Duration // part of Elapsed behind other callers of this process
	Attempts       int           // requests to the server; of a Redlock each to all servers is one, of a Multi 0: its parts have their own
	HandedOver     bool          // the previous holder, of this process, passed the lock on
	Unacknowledged bool          // granted without replicas although Config.Acks wants acknowledgements
	Held           *Lease        // nil unless acquired, and for kinds without leases; for identity, Owner and Token
}

// ReleaseStart describes a hold about to end, or permits or a count given back without a lease.
type ReleaseStart struct {
	Client *Client
	Held   *Lease // nil without a lease
	Kind   string
	Name   string
	Part   bool
	Age    time.Duration // time since the lock was acquired; 0 without a lease
}

// ReleaseEnd describes the end of a release.
type ReleaseEnd struct {
	ReleaseStart
	Outcome    Outcome // OutcomeReleased, OutcomeNotHeld, OutcomeUnconfirmed or OutcomeFailed
	Err        error   // result of Unlock
	Elapsed    time.Duration
	HandedOver bool // the lock went to the next caller of this process
	Lost       bool // Lost was called for the lease before
}

// LossInfo describes a lost lease.
type LossInfo struct {
	Client *Client
	Held   *Lease
	Kind   string
	Name   string
	Part   bool
	Age    time.Duration // time since the lock was acquired
	Reason Reason
	Err    error // of the last renewal, if any
}

// RenewalInfo describes a round of renewals.
type RenewalInfo struct {
	Client   *Client
	Renewed  int           // leases renewed. A renewal answered late is renewed again at once, and counts then
	Failed   int           // leases without an answer, to be renewed again soon
	Gone     int           // leases that the server does not have
	Lateness time.Duration // delay of the round, for lack of CPU or because the process was stopped
	Lease    time.Duration // Config.Lease, to compare with Lateness
	Elapsed  time.Duration // duration of the round
}

// Change is the kind of a change in the background.
type Change string

const (
	BackgroundRelease Change = "release" // an Unlock returned ErrUncertain
	BackgroundUndo    Change = "undo"    // an acquire without an answer, or that came too late
	BackgroundChange  Change = "change"  // of a semaphore or latch
)

// BackgroundInfo describes a change that the background repeats until the server confirms it.
type BackgroundInfo struct {
	Client *Client
	Change Change
	Kind   string
	Name   string
	Done   bool          // the background has ended the change
	Age    time.Duration // time since the background has the change; 0 at the beginning
	Err    error         // once done: nil after the server's answer, else why the change is given up or has failed
}

// acquiring gathers what AcquireEnd reports. The calls of one acquire run one after the other. A nil acquiring is not
// traced.
type acquiring struct {
	begin time.Time
	end   AcquireEnd
	hold  holding // of the lease, if the acquire makes one
}

// beginAcquire begins an acquire for the Trace. It returns nil without a Trace.
func (t *Trace) beginAcquire(ctx context.Context, start AcquireStart) (context.Context, *acquiring) {
	if t == nil {
		return ctx, nil
	}
	start.Part = ctx.Value(partOf{}) != nil
	a := &acquiring{begin: time.Now(), end: AcquireEnd{AcquireStart: start}}
	a.hold.trace = t
	if t.AcquireStart != nil {
		ctx = t.AcquireStart(ctx, start)
	}
	return ctx, a
}

// partOf is the key of a context value: the acquire is a part of a Multi.
type partOf struct{}

// beginTrace begins an acquire of r.
func (r *request) beginTrace(ctx context.Context, try bool) context.Context {
	c := r.client
	start := AcquireStart{Client: c, Kind: r.target.kind.Name, Name: r.target.Name, Try: try, Permits: r.permits, Standby: r.standby}
	if !r.target.kind.unowned() {
		start.Renewed = r.renewed
		if start.Lease = r.lease; r.lease == forever {
			start.Lease = 0
		}
	}
	ctx, r.traced = c.cfg.Trace.beginAcquire(ctx, start)
	return ctx
}

// note changes what is reported of the acquire.
func (a *acquiring) note(change func(end *AcquireEnd)) {
	if a != nil {
		change(&a.end)
	}
}

// leftLine records the end of the wait behind other callers of the process.
func (a *acquiring) leftLine(since time.Time) {
	a.note(func(end *AcquireEnd) { end.InLine = time.Since(since) })
}

// asked counts a request to the server.
func (a *acquiring) asked() {
	a.note(func(end *AcquireEnd) { end.Attempts++ })
}

// done ends the acquire, with the lease if it has one.
func (a *acquiring) done(ctx context.Context, l *Lease, err error) {
	if a == nil {
		return
	}
	if t := a.hold.trace; t.AcquireEnd != nil {
		a.end.Outcome, a.end.Err = acquireOutcome(ctx, err), err
		a.end.Elapsed, a.end.Held = time.Since(a.begin), l
		t.AcquireEnd(ctx, a.end)
	}
	if l == nil {
		return
	}
	a.hold.part = a.end.Part
	l.traced.Store(&a.hold)
	if l.now().lost != nil { // before the Store
		l.traceLoss()
	}
}

func acquireOutcome(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return OutcomeAcquired
	case errors.Is(err, ErrLost):
		return OutcomeLateGrant
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && (errors.Is(err, ErrNotAcquired) || ctx.Err() == context.Canceled):
		return OutcomeCancelled
	case errors.Is(err, ErrNotAcquired):
		return OutcomeRefused
	}
	return OutcomeFailed
}

// holding is what a Trace knows of a lease.
type holding struct {
	trace    *Trace
	part     bool
	ended    atomic.Bool // Unlock has begun
	lost     atomic.Bool // reported as lost
	over     atomic.Bool // Unlock has returned
	passedOn atomic.Bool // to the next caller of the process
}

// notePassedOn records for the Trace whether the lock went to the next caller of the process, and returns the same.
func (l *Lease) notePassedOn(passed bool) bool {
	if h := l.traced.Load(); h != nil && passed {
		h.passedOn.Store(true)
	}
	return passed
}

// traceLoss reports the loss of the lease, once.
func (l *Lease) traceLoss() {
	h := l.traced.Load()
	if h == nil || h.over.Load() || !h.lost.CompareAndSwap(false, true) || h.trace.Lost == nil {
		return
	}
	lost := l.now().lost
	if lost == nil { // found by Unlock
		lost = &LostError{Reason: Forced}
	}
	h.trace.Lost(LossInfo{
		Client: l.client, Held: l, Kind: l.Kind(), Name: l.Name(), Part: h.part, Age: l.age(), Reason: lost.Reason, Err: lost.Err,
	})
}

// releasing is a release under way.
type releasing struct {
	trace *Trace
	begin time.Time
	start ReleaseStart
}

// beginRelease reports a release that begins at begin. The caller must call end. Without a Trace both do nothing.
func (t *Trace) beginRelease(ctx context.Context, begin time.Time, start ReleaseStart) (context.Context, releasing) {
	if t != nil && t.ReleaseStart != nil {
		ctx = t.ReleaseStart(ctx, start)
	}
	return ctx, releasing{t, begin, start}
}

// end reports the end of the release with the context of beginRelease.
func (r *releasing) end(ctx context.Context, end ReleaseEnd) {
	if r.trace != nil && r.trace.ReleaseEnd != nil {
		end.ReleaseStart, end.Outcome, end.Elapsed = r.start, releaseOutcome(end.Err), time.Since(r.begin)
		r.trace.ReleaseEnd(ctx, end)
	}
}

// beginRelease reports the release of l.
func (h *holding) beginRelease(ctx context.Context, begin time.Time, l *Lease) (context.Context, releasing) {
	return h.trace.beginRelease(ctx, begin, ReleaseStart{Client: l.client, Held: l, Kind: l.Kind(), Name: l.Name(), Part: h.part, Age: begin.Sub(l.grantedAt.Time)})
}

func releaseOutcome(err error) Outcome {
	switch {
	case err == nil:
		return OutcomeReleased
	case errors.Is(err, ErrUncertain):
		return OutcomeUnconfirmed
	case errors.Is(err, ErrNotHeld):
		return OutcomeNotHeld
	}
	return OutcomeFailed
}

// JoinTraces returns a Trace that calls the callbacks of all traces, in their order; an End in the reverse order. Nil
// traces are left out. JoinTraces returns nil if no trace is left.
func JoinTraces(traces ...*Trace) *Trace { return callback.Join(traces, (*Trace).join) }

// join returns a Trace that calls t and then inner, whose contexts are derived from those of t.
func (t *Trace) join(inner *Trace) *Trace {
	return &Trace{
		AcquireStart: callback.Start(t.AcquireStart, inner.AcquireStart),
		AcquireEnd:   callback.End(t.AcquireEnd, inner.AcquireEnd),
		ReleaseStart: callback.Start(t.ReleaseStart, inner.ReleaseStart),
		ReleaseEnd:   callback.End(t.ReleaseEnd, inner.ReleaseEnd),
		Lost:         callback.Event(t.Lost, inner.Lost),
		Renewal:      callback.Event(t.Renewal, inner.Renewal),
		Background:   callback.Event(t.Background, inner.Background),
	}
}
