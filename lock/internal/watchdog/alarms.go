package watchdog

import (
	"container/heap"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/pubsub"
)

const (
	// listenAfter is the minimum age of a held lock before the client listens for forced unlocks.
	listenAfter = 250 * time.Millisecond
	// alarmPause is the minimum interval between alarms, since connections may be lost repeatedly.
	alarmPause = time.Second
	// mostEvents limits the events that share a round of renewals.
	mostEvents = 1000
)

// alarms notifies the watchdog of leases that may have been lost early: the server was unreachable and may have lost
// its data, or another client has forced a lock. The watchdog then renews the affected leases at once, and checks the
// affected leases without renewal.
type alarms[L comparable] struct {
	raised atomic.Bool // for all leases

	// Owned by the loop.
	last      time.Time // the time of the last alarm that renewed all leases
	listening *pubsub.Subscription
	candidate *Record[L] // listening starts if still held at the next call
	unused    bool       // no lease existed at the last call
}

// answerAlarm makes all leases due after an alarm, at most once per alarmPause.
func (w *Watchdog[L]) answerAlarm(at time.Time) {
	a := &w.alarms
	if at.Sub(a.last) < alarmPause || !a.raised.Swap(false) {
		return
	}
	a.last = at
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewAllLocked(at)
	for _, r := range w.endings {
		w.checkLocked(r, at)
	}
}

// takeForced handles an event of the channel for forced unlocks, together with the events waiting in news: all of them need one search
// through the client's leases, and one round of renewals.
func (w *Watchdog[L]) takeForced(ev pubsub.Event, news <-chan pubsub.Event) {
	forced := make(map[string]bool) // the names of locks
	for n, ok := 1, true; ok; n++ {
		switch ev.Kind {
		case pubsub.Resumed, pubsub.Lagged: // messages may have been missed
			w.Raise()
		case pubsub.Message:
			forced[ev.Payload] = true
		}
		ok = false
		if n < mostEvents {
			select {
			case ev, ok = <-news: // the loop sees a closed channel, too
			default:
			}
		}
	}
	if len(forced) > 0 {
		w.Forced(forced)
	}
}

// Forced renews or checks at once the leases on locks of the given names, which have been forced.
func (w *Watchdog[L]) Forced(names map[string]bool) {
	w.mu.Lock()
	w.alarmed = time.Now() // after all events and before the search, so a lease added meanwhile is not missed
	w.mu.Unlock()
	w.renewFirst(w.cfg.Named(names))
}

// renewFirst renews or checks leases at once, before others, because their locks may have been forced.
func (w *Watchdog[L]) renewFirst(leases []L) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, l := range leases {
		switch r := w.cfg.Leases.Record(l); {
		case !r.added || r.ended:
		case !r.renewed:
			w.checkLocked(r, now)
		case r.index < 0:
			r.maybeForced = true
		default:
			heap.Remove(&r.server.renewals, r.index)
			r.maybeForced = true
			w.pushLocked(r, now)
		}
	}
}

// listen starts listening if a lock has been held for a while, and stops if no lock is held.
func (w *Watchdog[L]) listen() {
	a := &w.alarms
	w.mu.Lock()
	var held *Record[L]
	if len(w.endings) > 0 {
		held = w.endings[0]
	}
	for _, s := range w.servers {
		if len(s.renewals) > 0 {
			held = s.renewals[0]
		}
	}
	stays := a.candidate != nil && !a.candidate.ended
	w.mu.Unlock()
	switch {
	case held == nil && w.running > 0: // there may be leases in no schedule
		return
	case held == nil && a.listening != nil && a.unused:
		_ = a.listening.Close()
		a.listening, a.unused = nil, false
	case held == nil:
		a.unused = a.listening != nil
	case a.listening == nil && stays && w.cfg.Listen != nil:
		a.listening, _ = w.cfg.Listen() // an error means a closed client
	}
	if a.candidate = held; held != nil {
		a.unused = false
	}
}
