package lock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/script"
)

const (
	// listenAfter is the minimum age of a held lock before the client listens for forced unlocks.
	listenAfter = 250 * time.Millisecond
	// alarmPause is the minimum interval between alarms, since connections may be lost repeatedly.
	alarmPause = time.Second
)

// alarms notifies the watchdog of leases that may have been lost early: the server was unreachable and may have lost
// its data, or another client has forced a lock. The watchdog then renews the affected leases at once, and checks the
// affected leases without renewal.
type alarms struct {
	raised atomic.Bool // for all leases

	// Owned by the loop.
	last      time.Time // the time of the last alarm that renewed all leases
	looks     []*Lease  // leases without renewal, to be checked
	lookAt    time.Time // the time of the next check
	listening *pubsub.Subscription
	candidate *Lease // listening starts if still held at the next call
	unused    bool   // no lease existed at the last call
}

// raise makes all leases due for renewal soon. raise does not block.
func (w *watchdog) raise() {
	w.alarms.raised.Store(true)
	notify(w.signal)
}

// onLoss registers raise with the server, and returns a function to unregister.
func (w *watchdog) onLoss(s Server) (stop func()) {
	if l, ok := find[interface {
		OnLoss(fn func()) (stop func())
	}](s); ok {
		return l.OnLoss(w.raise)
	}
	return func() {}
}

// answerAlarm makes all leases due after an alarm, at most once per alarmPause.
func (w *watchdog) answerAlarm(at time.Time) {
	a := &w.alarms
	if at.Sub(a.last) < alarmPause || !a.raised.Swap(false) {
		return
	}
	a.last = at
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewAllLocked(at)
	for _, r := range w.endings {
		a.looks = append(a.looks, r.lease)
	}
	a.lookAt = at
}

// hear handles an event of the channel for forced unlocks.
func (w *watchdog) hear(ev pubsub.Event, at time.Time) {
	a := &w.alarms
	switch ev.Kind {
	case pubsub.Resumed, pubsub.Lagged: // messages may have been missed
		w.raise()
	case pubsub.Message:
		leases := w.client.table.leasesNamed(ev.Payload)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, l := range leases {
			switch {
			case l.watch.lease == nil || l.watch.ended || l.watch.index < 0:
			case l.renewed:
				w.dueLocked(&l.watch, at)
			default:
				a.looks, a.lookAt = append(a.looks, l), at
			}
		}
	}
}

// listen starts listening if a lock has been held for a while, and stops if no lock is held.
func (w *watchdog) listen() {
	a := &w.alarms
	w.mu.Lock()
	var held *Lease
	for _, s := range []schedule{w.renewals, w.endings} {
		if len(s) > 0 {
			held = s[0].lease
		}
	}
	stays := a.candidate != nil && !a.candidate.watch.ended
	w.mu.Unlock()
	switch {
	case held == nil && a.listening != nil && a.unused:
		_ = a.listening.Close()
		a.listening, a.unused = nil, false
	case held == nil:
		a.unused = a.listening != nil
	case a.listening == nil && stays && !w.client.deaf:
		a.listening, _ = w.client.events.Listen(kinds.ForcedChannel) // an error means a closed client
	}
	if a.candidate = held; held != nil {
		a.unused = false
	}
}

// news returns the events for the loop; nil without a subscription.
func (a *alarms) news() <-chan pubsub.Event {
	if a.listening == nil {
		return nil
	}
	return a.listening.Events()
}

// look asks the server for the leases without renewal. Leases without an answer are checked again.
func (w *watchdog) look(at time.Time) {
	a := &w.alarms
	if len(a.looks) == 0 || a.lookAt.After(at) {
		return
	}
	leases := a.looks
	a.looks = nil
	ctx, cancel := context.WithTimeout(w.client.life, max(w.client.cfg.Lease/6, renewMin))
	defer cancel()
	byScript := func(l *Lease) *script.Script { return l.target.kind.Renew }
	for _, part := range remote.Partition(leases, byScript) {
		answers, _ := w.askRenewals(ctx, part, true)
		for _, n := range answers {
			switch {
			case n.err != nil && !remote.Final(n.err):
				a.looks = append(a.looks, n.lease)
			case n.err == nil && n.outcome == 0:
				n.lease.denied(Forced, nil)
			case n.err == nil && n.outcome < 0:
				n.lease.denied(Taken, nil)
			}
		}
	}
	a.lookAt = time.Now().Add(retryMax)
}
