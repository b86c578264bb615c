// Package watchdog keeps the leases of a client. It renews leases in rounds, ends leases whose time is up, and does both
// sooner if locks may have been lost.
//
//	watchdog.go  the Watchdog, and its record of a lease
//	schedule.go  leases by the time at which they are due
//	server.go    the leases that are due on a server
//	loop.go      the goroutine
//	round.go     a round of requests to a server
//	alarms.go    reasons to look sooner
//
// The watchdog knows a lease only by Leases, and the server only by the functions of Config. Invariants:
//
//   - A lease is in a schedule, or has a renewal under way, or has ended.
//   - A server has a round under way at most, and so has a slot with leases that the server leads elsewhere. No round waits for another.
//   - The answer of a server that may have been replaced never extends a lease.
package watchdog

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// AnsweredLate is the round-trip time above which an answer is late. Every failover takes longer.
const AnsweredLate = remote.WitnessAge

// Config is what a Watchdog needs of its client. Only Listen and Round may be nil.
type Config[L comparable] struct {
	Leases Leases[L]
	Term   time.Duration // of a lease under renewal
	Every  time.Duration // the period of renewals
	Batch  int           // locks in a script
	Life   context.Context
	Now    func() clock.Instant
	Server *remote.Server
	Acked  bool // replicas acknowledge renewals

	// Ask renews leases on a single server; with check, Ask only asks whether the leases could be renewed. It returns an
	// answer per lease, in any order.
	Ask func(ctx context.Context, leases []L, check bool) []Answer[L]

	Named  func(names map[string]bool) []L      // the leases on locks of these names
	Listen func() (*pubsub.Subscription, error) // to the names of forced locks; nil for never
	Round  func(Round)                          // called after each round of renewals; nil for none
}

// Leases has the operations on a lease.
type Leases[L comparable] struct {
	Record       func(L) *Record[L]
	Name         func(L) string                                 // of the lock
	Warn         func(l L, err error, text string, args ...any) // logs a trouble of l and others; err may be nil
	Err          func(L) error                                  // ends the lease if its time is up; nil while the lease is held
	ValidUntil   func(L) time.Time
	Due          func(l L, at time.Time) time.Time // at, or the end of the lease if earlier
	StopContexts func(L)                           // ends contexts whose time is up
	Begin        func(L) bool                      // begins a renewal; false if the lease is over
	Extend       func(l L, start clock.Instant)    // by a renewal sent at start
	End          func(l L, failure error)          // ends the renewal
	Denied       func(l L, taken bool)             // ends the lease: the server has no such hold; taken: but another one
}

// Answer is the server's answer about a lease, or the error.
type Answer[L comparable] struct {
	Lease   L
	Outcome int64 // 1 renewed, 0 gone, -1 held by another owner
	Err     error
}

// Round describes a round of renewals on a server.
type Round struct {
	Renewed, Failed, Gone int           // leases; the server does not have those gone. A renewal to be confirmed, or redirected, is none of these
	Lateness, Elapsed     time.Duration // delay and duration of the round
}

// Counters count renewals and the delays of rounds, in nanoseconds.
type Counters struct {
	Renewals, Errors      atomic.Uint64
	Lateness, MaxLateness atomic.Int64
}

// Watchdog keeps leases in a single goroutine, and in a goroutine for each round. The first goroutine starts with the first lease.
type Watchdog[L comparable] struct {
	Counters

	cfg     Config[L]
	wg      sync.WaitGroup
	signal  chan struct{} // buffered, 1: signalled when an event is due earlier than the loop's timer
	alarms  alarms[L]
	running int            // rounds under way; owned by the loop
	ended   chan *round[L] // rounds that have ended, for the loop

	mu         sync.Mutex // guards the following, and the Record of each lease; taken after a lease's own
	started    bool
	closed     bool
	servers    map[lane]*server[L] // with leases to renew or to check, or a round under way
	endings    schedule[L]         // leases without renewal
	wake       time.Time           // time of the loop's next pass
	watched    map[L]struct{}      // leases with a deadline timer, which stands still while the machine sleeps
	alarmed    time.Time           // of the last alarm, message or jump of the clocks: leases requested before it are asked for at once
	renewAllAt time.Time           // of the last alarm or jump for which all leases became due: renewals sent before it are repeated
}

// New returns a Watchdog without leases.
func New[L comparable](cfg Config[L]) *Watchdog[L] {
	return &Watchdog[L]{cfg: cfg, signal: make(chan struct{}, 1), ended: make(chan *round[L]), servers: make(map[lane]*server[L]),
		watched: make(map[L]struct{})}
}

// Add schedules a new lease for renewal at due, or for its end at due if the lease is not renewed. asked is the time of the
// request for the lease: an alarm since then may be about the lease, so the server is asked at once.
func (w *Watchdog[L]) Add(l L, renewed bool, asked, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.cfg.Leases.Record(l)
	if r.ended {
		return
	}
	r.lease, r.added, r.renewed = l, true, renewed
	if asked.Before(w.alarmed) {
		if now := time.Now(); renewed {
			due = clock.Earlier(due, now)
		} else {
			w.checkLocked(r, now)
		}
	}
	w.pushLocked(r, due)
}

// Remove unschedules an ended lease. It does not wait for a renewal under way.
func (w *Watchdog[L]) Remove(l L) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.cfg.Leases.Record(l)
	if r.added && r.index >= 0 {
		heap.Remove(w.scheduleOf(r), r.index)
	}
	r.ended = true
	delete(w.watched, l)
	if r.server != nil {
		delete(r.server.toCheck, l)
	}
}

// WatchClock adds the lease to the leases checked after a sleep of the machine, because timers stand still during a sleep.
func (w *Watchdog[L]) WatchClock(l L) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched[l] = struct{}{}
	w.wakeLocked(time.Now().Add(clockTick))
}

// Raise makes all leases due for renewal soon, because the server may have lost its data. Raise does not block.
func (w *Watchdog[L]) Raise() {
	w.alarms.raised.Store(true)
	netfail.Signal(w.signal)
}

// Idle reports whether the watchdog has no lease.
func (w *Watchdog[L]) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		if len(s.renewals) > 0 {
			return false
		}
	}
	return len(w.endings) == 0 && len(w.watched) == 0
}

// Close waits for the loop to end. The loop ends with Config.Life.
func (w *Watchdog[L]) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}

// wakeLocked ensures a pass of the loop at due or earlier, and starts the loop if necessary.
func (w *Watchdog[L]) wakeLocked(due time.Time) {
	if w.closed {
		return
	}
	due = clock.Earlier(due, time.Now().Add(listenAfter))
	if !w.started {
		w.started = true
		w.wake = due
		seen := w.cfg.Now()
		w.wg.Go(func() { w.loop(seen) })
		return
	}
	if due.Before(w.wake) {
		w.wake = due
		netfail.Signal(w.signal)
	}
}
