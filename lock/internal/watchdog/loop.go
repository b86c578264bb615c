package watchdog

import (
	"maps"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/pubsub"
)

const (
	// gather is the divisor of the renewal period: a renewal may run early by Every/gather to share a script with others.
	gather = 10
	// clockTick is the interval of comparing the clocks while the client has leases.
	clockTick = time.Second
	// clockGap is the least difference between the clocks taken for a sleep of the machine or a change of the clock.
	clockGap = 250 * time.Millisecond
	// retryMin and retryMax bound the growing pauses after a failed renewal.
	retryMin, retryMax = 50 * time.Millisecond, 500 * time.Millisecond
	// limitMin is the least time limit of a renewal.
	limitMin = 50 * time.Millisecond
	// batchesAtOnce limits the renewal scripts sent to a server in a write. A slow server gets fewer.
	batchesAtOnce = 16
)

// Limit returns the time limit of a renewal of leases of a term.
func Limit(term time.Duration) time.Duration { return max(term/6, limitMin) }

// loop is the goroutine of the watchdog, from the first lease until Close. last is the time of its start.
func (w *Watchdog[L]) loop(last clock.Instant) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		timer.Reset(time.Until(w.wake))
		w.mu.Unlock()
		var news <-chan pubsub.Event
		if w.alarms.listening != nil {
			news = w.alarms.listening.Events()
		}
		select {
		case <-w.signal:
			if !w.alarms.raised.Load() {
				continue
			}
		case ev, ok := <-news:
			if !ok { // the client is closing
				w.alarms.listening = nil
				continue
			}
			w.takeForced(ev, news)
		case r := <-w.ended:
			w.end(r)
		case <-timer.C:
		case <-w.cfg.Life.Done():
			for w.running > 0 {
				w.end(<-w.ended)
			}
			return
		}
		at := w.cfg.Now()
		if gap := last.Asleep(at) - at.Time.Sub(last.Time); gap > clockGap || gap < -clockGap {
			w.clockJumped(at.Time)
		}
		last = at
		w.answerAlarm(at.Time)
		w.endDue(at.Time)
		w.begin(at.Time)
		w.listen()
		w.plan()
	}
}

// begin begins a round on each server with leases due, unless a round is under way there.
func (w *Watchdog[L]) begin(at time.Time) {
	w.mu.Lock()
	var rounds []*round[L]
	for _, s := range w.servers {
		if s.busy {
			continue
		}
		if r := w.takeLocked(s, at); r != nil {
			s.busy = true
			rounds = append(rounds, r)
		}
	}
	w.mu.Unlock()
	for _, r := range rounds {
		w.running++
		if len(r.due) > 0 {
			w.noteLateness(r)
		}
		w.wg.Go(func() {
			w.run(r)
			w.ended <- r
		})
	}
}

func (w *Watchdog[L]) noteLateness(r *round[L]) {
	w.Lateness.Store(int64(r.Lateness))
	w.MaxLateness.Store(max(w.MaxLateness.Load(), int64(r.Lateness)))
	if r.Lateness > w.cfg.Every/2 {
		w.cfg.Leases.Warn(r.due[0], nil, "renewals run late", "leases", len(r.due), "by", r.Lateness.Round(time.Millisecond))
	}
}

// end reports a round that has ended, if it had renewals, and lets the next one begin.
func (w *Watchdog[L]) end(r *round[L]) {
	w.running--
	w.mu.Lock()
	r.server.busy = false
	w.mu.Unlock()
	if w.cfg.Round != nil && r.begun {
		w.cfg.Round(r.Round)
	}
}

// plan sets the time of the next pass.
func (w *Watchdog[L]) plan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, tick, a := time.Now(), clockTick, &w.alarms
	w.wake = at.Add(time.Hour)
	if a.listening == nil && w.cfg.Listen != nil {
		tick = listenAfter
	} else if a.listening != nil {
		w.wake = at.Add(clockTick)
	}
	if a.raised.Load() {
		w.wake = clock.Earlier(w.wake, a.last.Add(alarmPause))
	}
	for to, s := range w.servers {
		switch {
		case s.busy: // the end of its round wakes the loop
		case len(s.renewals)+len(s.toCheck) == 0:
			delete(w.servers, to)
		default:
			w.wake = s.nextLocked(w.wake, at.Add(tick))
		}
	}
	if len(w.endings) > 0 {
		w.wake = clock.Earlier(w.wake, clock.Earlier(w.endings[0].due, at.Add(tick)))
	}
	if len(w.watched) > 0 {
		w.wake = clock.Earlier(w.wake, at.Add(clockTick))
	}
}

// clockJumped makes every watched lease check its end, and makes all renewals due at once, also of leases being asked for, because
// the remaining times of the leases are no longer known.
func (w *Watchdog[L]) clockJumped(at time.Time) {
	w.mu.Lock()
	leases := slices.Collect(maps.Keys(w.watched))
	w.renewAllLocked(at)
	w.mu.Unlock()
	for _, l := range leases {
		w.cfg.Leases.Err(l)
		w.cfg.Leases.StopContexts(l)
	}
}

// endDue ends the expired leases and reschedules extended leases.
func (w *Watchdog[L]) endDue(at time.Time) {
	var over []L
	w.mu.Lock()
	for len(w.endings) > 0 && !w.endings[0].due.After(at) {
		over = append(over, w.endings.take().lease)
	}
	w.mu.Unlock()
	for _, l := range over {
		if w.cfg.Leases.Err(l) != nil {
			continue
		}
		until := w.cfg.Leases.ValidUntil(l)
		w.mu.Lock()
		if r := w.cfg.Leases.Record(l); !r.ended {
			w.pushLocked(r, until)
		}
		w.mu.Unlock()
	}
}
