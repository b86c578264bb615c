package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// acquiring gathers what AcquireEnd reports. The calls of one acquire run one after the other. A nil acquiring is not
// traced.
type acquiring struct {
	trace *Trace
	begin time.Time
	end   AcquireEnd
}

// beginAcquire begins an acquire for the Trace. It returns nil without a Trace.
func (t *Trace) beginAcquire(ctx context.Context, start AcquireStart) (context.Context, *acquiring) {
	if t == nil {
		return ctx, nil
	}
	start.Part = ctx.Value(partOf{}) != nil
	a := &acquiring{trace: t, begin: time.Now(), end: AcquireEnd{AcquireStart: start}}
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
	start := AcquireStart{Client: c, Kind: r.target.kind.Name, Name: r.target.name, Try: try, Permits: r.permits, Standby: r.standby}
	if !r.target.kind.unowned {
		start.Renewed = r.renewed
		if start.Lease = r.lease; r.lease == forever {
			start.Lease = 0
		}
	}
	ctx, r.traced = c.cfg.Trace.beginAcquire(ctx, start)
	return ctx
}

// asked counts a request to the server.
func (a *acquiring) asked() {
	if a != nil {
		a.end.Attempts++
	}
}

// stood records the end of the wait behind other callers of the process.
func (a *acquiring) stood(since time.Time) {
	if a != nil {
		a.end.InLine = time.Since(since)
	}
}

// inherited records a hand-over.
func (a *acquiring) inherited(granted bool) {
	if a != nil {
		a.end.HandedOver = granted
	}
}

// bare records a grant without acknowledgement.
func (a *acquiring) bare() {
	if a != nil {
		a.end.Unacknowledged = true
	}
}

// done ends the acquire, with the lease if it has one.
func (a *acquiring) done(ctx context.Context, l *Lease, err error) {
	if a == nil {
		return
	}
	now := time.Now()
	if a.trace.AcquireEnd != nil {
		a.end.Outcome, a.end.Err = acquireOutcome(ctx, err), err
		a.end.Elapsed, a.end.Held = now.Sub(a.begin), l
		a.trace.AcquireEnd(ctx, a.end)
	}
	if l == nil {
		return
	}
	l.traced.Store(&holding{trace: a.trace, since: now, kind: a.end.Kind, name: a.end.Name, part: a.end.Part})
	if l.lossOf() != nil { // before the Store
		l.traceLoss()
	}
}

func acquireOutcome(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return OutcomeAcquired
	case errors.Is(err, ErrLost):
		return OutcomeLateGrant
	case ctx.Err() != nil && (errors.Is(err, ErrNotAcquired) || ctx.Err() == context.Canceled):
		return OutcomeCancelled
	case errors.Is(err, ErrNotAcquired):
		return OutcomeRefused
	}
	return OutcomeFailed
}

// holding is what a Trace knows of a lease.
type holding struct {
	trace    *Trace
	since    time.Time
	kind     string
	name     string
	part     bool
	ended    atomic.Bool // Unlock has begun
	lost     atomic.Bool // reported as lost
	over     atomic.Bool // Unlock has returned
	passedOn atomic.Bool // to the next caller of the process
}

// notePassedOn records that the lock went to the next caller of the process.
func (l *Lease) notePassedOn(to bool) bool {
	if h := l.traced.Load(); h != nil && to {
		h.passedOn.Store(true)
	}
	return to
}

// lossOf returns the loss of the lease, or nil.
func (l *Lease) lossOf() *LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// traceLoss reports the loss of the lease, once.
func (l *Lease) traceLoss() {
	h := l.traced.Load()
	if h == nil || h.over.Load() || !h.lost.CompareAndSwap(false, true) || h.trace.Lost == nil {
		return
	}
	lost := l.lossOf()
	if lost == nil { // found by Unlock
		lost = &LostError{Reason: Forced}
	}
	h.trace.Lost(LossInfo{
		Client: l.client, Held: l, Kind: h.kind, Name: h.name, Part: h.part, Age: time.Since(h.since), Reason: lost.Reason, Err: lost.Err,
	})
}

func (t *Trace) beginRelease(ctx context.Context, start ReleaseStart) context.Context {
	if t.ReleaseStart == nil {
		return ctx
	}
	return t.ReleaseStart(ctx, start)
}

func (t *Trace) endRelease(ctx context.Context, end ReleaseEnd) {
	if t.ReleaseEnd != nil {
		end.Outcome = releaseOutcome(end.Err)
		t.ReleaseEnd(ctx, end)
	}
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
