package watchdog

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

const (
	// listenAfter is the minimum age of a held lock before the client listens for forced unlocks.
	listenAfter = 250 * time.Millisecond
	// alarmPause is the minimum interval between alarms, since connections may be lost repeatedly.
	alarmPause = time.Second
	// mostNews limits the events that share a round of renewals.
	mostNews = 1000
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
	w.alarmed = time.Now() // after the alarm: at may be before
	w.raised = w.alarmed
	w.renewAllLocked(at)
	for _, r := range w.endings {
		w.checkLocked(r.lease, at)
	}
}

// checkLocked has the server asked for a lease without renewal at the time at.
func (w *Watchdog[L]) checkLocked(l L, at time.Time) {
	w.unchecked[l] = struct{}{}
	w.checkAt = at
}

// hearAll handles an event of the channel for forced unlocks, together with the events in news, and returns the leases concerned: one search
// through all leases of the client, and one round of renewals, serve all events.
func (w *Watchdog[L]) hearAll(ev pubsub.Event, news <-chan pubsub.Event) []L {
	forced := make(map[string]bool) // the names of locks
	for n, ok := 1, true; ok; n++ {
		switch ev.Kind {
		case pubsub.Resumed, pubsub.Lagged: // messages may have been missed
			w.Raise()
		case pubsub.Message:
			forced[ev.Payload] = true
		}
		ok = false
		if n < mostNews {
			select {
			case ev, ok = <-news: // the loop sees a closed channel, too
			default:
			}
		}
	}
	if len(forced) == 0 {
		return nil
	}
	w.mu.Lock()
	w.alarmed = time.Now() // after all events and before the search, so a lease added meanwhile is not missed
	w.mu.Unlock()
	return w.cfg.Named(forced)
}

// ask has the servers asked for leases whose locks others may have forced.
func (w *Watchdog[L]) ask(leases []L) {
	var renewed, others []L
	w.mu.Lock()
	for _, l := range leases {
		switch r := w.cfg.Leases.Record(l); {
		case !r.added || r.ended:
		case !r.renewed:
			others = append(others, l)
		case r.index < 0:
			r.news = true
		default:
			heap.Remove(&w.renewals, r.index)
			renewed = append(renewed, l)
		}
	}
	w.mu.Unlock()
	w.renew(renewed)
	w.checkAll(others)
}

// listen starts listening if a lock has been held for a while, and stops if no lock is held.
func (w *Watchdog[L]) listen() {
	a := &w.alarms
	w.mu.Lock()
	var held *Record[L]
	for _, s := range []schedule[L]{w.renewals, w.endings} {
		if len(s) > 0 {
			held = s[0]
		}
	}
	stays := a.candidate != nil && !a.candidate.ended
	w.mu.Unlock()
	switch {
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

// news returns the events for the loop; nil without a subscription, and while too many questions have no answer.
func (w *Watchdog[L]) news() <-chan pubsub.Event {
	if w.alarms.listening == nil || w.asking >= mostAsked {
		return nil
	}
	return w.alarms.listening.Events()
}

// check asks the servers for the leases without renewal, unless further renewals are due.
func (w *Watchdog[L]) check(at time.Time) {
	w.mu.Lock()
	if len(w.unchecked) == 0 || w.checkAt.After(at) || len(w.renewals) > 0 && !w.renewals[0].due.After(at) {
		w.mu.Unlock()
		return
	}
	leases := slices.Collect(maps.Keys(w.unchecked))
	clear(w.unchecked)
	w.mu.Unlock()
	w.checkAll(leases)
}

func (w *Watchdog[L]) checkAll(leases []L) {
	remote.Beside(remote.ByServer(w.cfg.Server, leases, w.cfg.Leases.Name), w.checkOn)
}

// checkOn asks a single server. Leases without an answer are checked again.
func (w *Watchdog[L]) checkOn(leases []L) {
	if len(leases) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.cfg.Life, Limit(w.cfg.Term))
	defer cancel()
	answers, _ := w.cfg.Ask(ctx, leases, true)
	var again []L
	for _, n := range answers {
		switch {
		case n.Err != nil && !remote.Final(n.Err):
			again = append(again, n.Lease)
		case n.Err == nil && n.Outcome <= 0:
			w.cfg.Leases.Denied(n.Lease, n.Outcome < 0)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unchecked) == 0 { // else others are to be asked for sooner
		w.checkAt = time.Now().Add(retryMax)
	}
	for _, l := range again {
		if !w.cfg.Leases.Record(l).ended {
			w.unchecked[l] = struct{}{}
		}
	}
}
