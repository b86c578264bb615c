package lock

import (
	"context"
	"time"
)

// Trace holds callbacks for traces, metrics and logs of locks. A nil callback costs nothing. The commands sent for a
// lock are reported to conn.Trace, under the contexts returned by the callbacks of this Trace.
//
// Several goroutines may run callbacks at once. The call that caused the event waits for the callback, and so do
// renewals. A callback must be quick. It must not take, release or check a lock of the Client, and must not close the
// Client.
type Trace struct {
	// AcquireStart is called when Lock, TryLock, Acquire, TryAcquire or Wait begins, with the context of the caller.
	// The call goes on under the returned context, which must be derived from ctx. A call with invalid arguments is
	// not reported.
	AcquireStart func(ctx context.Context, start AcquireStart) context.Context

	// AcquireEnd is called when the call returns, with the context from AcquireStart.
	AcquireEnd func(ctx context.Context, end AcquireEnd)

	// ReleaseStart is called when the first Unlock of a lease begins, and for Release of a semaphore and CountDown of a
	// latch. The call goes on under the returned context, which must be derived from ctx.
	ReleaseStart func(ctx context.Context, start ReleaseStart) context.Context

	// ReleaseEnd is called when the call returns, with the context from ReleaseStart.
	ReleaseEnd func(ctx context.Context, end ReleaseEnd)

	// Lost is called once for each lost lease, no later than ReleaseEnd; Unlock is reported nevertheless. Close of the
	// Client loses every lease still held, with the reason ClientClosed.
	Lost func(LossInfo)

	// Renewal is called after each round of renewals.
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
	OutcomeCancelled Outcome = "cancelled" // the context ended before the lock was acquired
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
	Attempts       int           // requests to the server
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
	Renewed  int           // leases renewed
	Failed   int           // leases without an answer, to be renewed again soon
	Gone     int           // leases that ended before, or that the server does not have
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

var reasonLabels = [...]string{
	Expired:      "expired",
	Taken:        "taken",
	Forced:       "forced",
	Unreachable:  "unreachable",
	ClockJump:    "clock_jump",
	ClientClosed: "client_closed",
	PartLost:     "part_lost",
	HeldTooLong:  "held_too_long",
	Ending:       "ending",
}

// Label returns the reason as a word for metrics, such as "expired".
func (r Reason) Label() string {
	if r < Expired || int(r) >= len(reasonLabels) {
		return "unknown"
	}
	return reasonLabels[r]
}
