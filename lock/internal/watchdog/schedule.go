package watchdog

import (
	"container/heap"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Record is what the Watchdog knows of a lease. The zero Record is ready; the Watchdog's mu guards it.
type Record[L comparable] struct {
	lease       L             // constant once added
	added       bool          // the lease has been in a schedule
	renewed     bool          // otherwise the lease only ends; constant once added
	due         time.Time     // time of the renewal, or end of the lease
	pause       time.Duration // pause after the last failure; 0 without a failure
	index       int           // index in the schedule; -1 while the renewal is under way
	ended       bool          // the lease is over and must not be scheduled again
	maybeForced bool          // somebody may have forced the lock since the last renewal was sent
	server      *server[L]    // in which a lease is scheduled for renewal, or was to be checked last; otherwise nil or an earlier one
	detour      detour        // after a redirection

	trust trust // owned by the renewal under way
}

// trust tells how to judge the next successful renewal.
type trust uint8

const (
	trusted    trust = iota
	doubted          // the last renewal failed
	confirming       // the last renewal was unconfirmed; the next success confirms the lease
)

// detour tells where a lease is asked for after its server has named another one, until an answer.
type detour uint8

const (
	direct detour = iota
	moved         // on the server that has the slot by now
	apart         // in rounds of the slot, which migrates: its server leads to another one
)

// followLocked reports whether failure is a redirection for the lease to follow, which is no failure. A second one in a row is.
func (r *Record[L]) followLocked(failure error) bool {
	switch {
	case r.detour != apart && remote.Asks(failure):
		r.detour = apart
	case r.detour == direct && remote.Moved(failure):
		r.detour = moved
	default:
		return false
	}
	return true
}

// schedule is a heap of records, ordered by due. Records with maybeForced come first.
type schedule[L comparable] []*Record[L]

func (s schedule[L]) Len() int { return len(s) }

func (s schedule[L]) Less(i, j int) bool {
	if s[i].maybeForced != s[j].maybeForced {
		return s[i].maybeForced
	}
	return s[i].due.Before(s[j].due)
}

func (s schedule[L]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule[L]) Push(x any) {
	r := x.(*Record[L])
	r.index = len(*s)
	*s = append(*s, r)
}

func (s *schedule[L]) Pop() any {
	last := len(*s) - 1
	r := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	r.index = -1
	return r
}

// take removes the first lease.
func (s *schedule[L]) take() *Record[L] { return heap.Pop(s).(*Record[L]) }

func (w *Watchdog[L]) scheduleOf(r *Record[L]) *schedule[L] {
	if r.renewed {
		return &r.server.renewals
	}
	return &w.endings
}

func (w *Watchdog[L]) pushLocked(r *Record[L], due time.Time) {
	if r.due = due; r.renewed {
		if r.server = w.serverLocked(r); r.server.busy { // the end of its round wakes the loop
			due = time.Now().Add(listenAfter)
		}
	}
	heap.Push(w.scheduleOf(r), r)
	w.wakeLocked(due)
}

// renewAllLocked makes all renewals due at the time at of an alarm or a jump of the clocks, for the loop, which then takes them. Their order in the
// heap stays. Leases whose locks are on another server by now go there: the old one may hang.
func (w *Watchdog[L]) renewAllLocked(at time.Time) {
	w.alarmed = time.Now() // at may be before
	w.renewAllAt = w.alarmed
	var moved []*Record[L]
	for _, s := range w.servers {
		for _, r := range s.renewals {
			r.due = clock.Earlier(r.due, at)
			if w.serverLocked(r) != s {
				moved = append(moved, r)
			}
		}
	}
	for _, r := range moved {
		heap.Remove(&r.server.renewals, r.index)
		w.pushLocked(r, r.due)
	}
}
