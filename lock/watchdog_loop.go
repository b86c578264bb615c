package lock

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// loop is the goroutine of the watchdog, from the first lease until Close. last is the time of its start.
func (w *watchdog) loop(last clock.Instant) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		timer.Reset(time.Until(w.wake))
		w.mu.Unlock()
		select {
		case <-w.signal:
			if !w.alarms.raised.Load() {
				continue
			}
		case ev, ok := <-w.alarms.news():
			if !ok { // the client is closing
				w.alarms.listening = nil
				continue
			}
			w.hear(ev, time.Now())
		case <-timer.C:
		case <-w.client.done:
			return
		}
		at := w.client.now()
		if gap := last.Asleep(at) - at.Time.Sub(last.Time); gap > clockGap || gap < -clockGap {
			w.clockJumped()
		}
		last = at
		w.answerAlarm(at.Time)
		w.endDue(at.Time)
		for due := w.takeDue(at.Time); len(due) > 0 && !w.client.isClosed(); due = w.takeDue(time.Now()) {
			w.renew(due)
		}
		w.look(time.Now())
		w.listen()
		w.plan()
	}
}

// plan sets the time of the next pass.
func (w *watchdog) plan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, tick, a := time.Now(), clockTick, &w.alarms
	w.wake = at.Add(time.Hour)
	if a.listening == nil && !w.client.deaf {
		tick = listenAfter
	} else if a.listening != nil {
		w.wake = at.Add(clockTick)
	}
	if len(a.looks) > 0 {
		w.wake = earlier(w.wake, a.lookAt)
	}
	if a.raised.Load() {
		w.wake = earlier(w.wake, a.last.Add(alarmPause))
	}
	for _, s := range []schedule{w.renewals, w.endings} {
		if len(s) > 0 {
			w.wake = earlier(w.wake, earlier(s[0].due, at.Add(tick)))
		}
	}
	if len(w.watched) > 0 {
		w.wake = earlier(w.wake, at.Add(clockTick))
	}
}

// clockJumped makes every watched lease check its end, and makes all renewals due at once, because the remaining times of
// the leases are no longer known.
func (w *watchdog) clockJumped() {
	w.mu.Lock()
	leases := make([]*Lease, 0, len(w.watched))
	for l := range w.watched {
		leases = append(leases, l)
	}
	w.renewAllLocked(time.Now())
	w.mu.Unlock()
	for _, l := range leases {
		l.Err()
		l.stopContexts()
	}
}

// renewAllLocked makes all renewals due.
func (w *watchdog) renewAllLocked(at time.Time) {
	for _, r := range w.renewals {
		r.due = earlier(r.due, at)
	}
	heap.Init(&w.renewals)
	w.wakeLocked(at)
}

// dueLocked makes the renewal r due.
func (w *watchdog) dueLocked(r *renewal, at time.Time) {
	r.due = earlier(r.due, at)
	heap.Fix(&w.renewals, r.index)
	w.wakeLocked(at)
}

// endDue ends the expired leases and reschedules extended leases.
func (w *watchdog) endDue(at time.Time) {
	var over []*Lease
	w.mu.Lock()
	for len(w.endings) > 0 && !w.endings[0].due.After(at) {
		over = append(over, heap.Pop(&w.endings).(*renewal).lease)
	}
	w.mu.Unlock()
	for _, l := range over {
		if l.Err() == nil {
			w.endLater(l)
		}
	}
}

func (w *watchdog) endLater(l *Lease) {
	until := l.ValidUntil()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !l.watch.ended {
		w.pushLocked(&l.watch, until)
	}
}

// takeDue removes the due renewals from the schedule and returns their leases, together with renewals due soon. It returns
// nil if no renewal is due.
func (w *watchdog) takeDue(at time.Time) []*Lease {
	w.mu.Lock()
	if len(w.renewals) == 0 || w.renewals[0].due.After(at) {
		w.mu.Unlock()
		return nil
	}
	lateness := at.Sub(w.renewals[0].due)
	soon := at.Add(w.client.cfg.RenewEvery / gather)
	var due []*Lease
	for len(w.renewals) > 0 && !w.renewals[0].due.After(soon) && len(due) < w.round*w.client.cfg.RenewBatch {
		due = append(due, heap.Pop(&w.renewals).(*renewal).lease)
	}
	w.mu.Unlock()
	w.client.counters.late(lateness)
	if lateness > w.client.cfg.RenewEvery/2 {
		w.client.log.Warn("renewals run late", "lock", w.client.log.Name(due[0].target.name), "leases", len(due), "by", lateness)
	}
	return due
}

// renew runs a round of renewals, concurrently on all servers concerned.
func (w *watchdog) renew(due []*Lease) {
	leases := due[:0]
	for _, l := range due {
		if l.beginRenewal() {
			leases = append(leases, l)
		}
	}
	start := w.client.now()
	name := func(l *Lease) string { return l.target.name }
	done := w.traceRound(len(leases), start.Time)
	remote.Beside(remote.ByServer(w.client.remote, leases, name), func(leases []*Lease) { w.renewOn(leases, start) })
	done()
}

// renewOn renews leases of a single server, in a single write.
func (w *watchdog) renewOn(leases []*Lease, start clock.Instant) {
	if len(leases) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.client.life, max(w.client.cfg.Lease/6, renewMin))
	defer cancel()
	answers, err := w.askRenewals(ctx, leases, false)
	if err != nil && !w.client.isClosed() {
		w.client.log.Warn("renewal", "lock", w.client.log.Name(leases[0].target.name), "leases", len(leases), "error", err)
	}
	w.pace(err == nil, ctx.Err() != nil)
	late := start.Elapsed(w.client.now()) > answeredLate
	for _, a := range answers {
		w.renewed(a.lease, start, late, a.outcome, a.err)
	}
}

// pace adapts the size of the next round to the result of the last round.
func (w *watchdog) pace(done, late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case done:
		w.round = min(w.round+1, batchesAtOnce)
	case late: // the round may have been too large
		w.round = max(w.round/2, 1)
	}
}

// errUnconfirmed marks a successful renewal awaiting confirmation by a second renewal.
var errUnconfirmed = errors.New("lock: renewed late or after a failure, and not confirmed")

// answeredLate is the round-trip time above which an answer is late. Every failover takes longer.
const answeredLate = remote.WitnessAge

// renewed records the outcome of a renewal. After a late answer or a failed renewal, a success may come from a server that
// hung and was replaced in the meantime. Unless replicas acknowledged the renewal, the success counts only if a second
// renewal, sent after the answer, succeeds too.
func (w *watchdog) renewed(l *Lease, start clock.Instant, late bool, outcome int64, failure error) {
	trust := &l.watch.trust
	done := failure == nil && outcome == 1
	if done && !w.client.replicas.On() && *trust != confirming && (late || *trust == doubted) {
		failure = errUnconfirmed
	}
	switch {
	case failure == errUnconfirmed:
		*trust = confirming
	case failure != nil:
		*trust = doubted
		w.client.counters.renewalErrors.Add(1)
	case done:
		*trust = trusted
		w.client.counters.renewals.Add(1)
		l.extend(start)
		l.warnHeld()
	}
	l.endRenewal(failure)
	if failure == nil && outcome == 0 {
		l.denied(Forced, nil)
	} else if failure == nil && outcome < 0 {
		l.denied(Taken, nil)
	}
	if l.Err() == nil {
		w.again(l, start, failure)
	}
}

// again schedules the next renewal of a lease: a period after a success, sooner after a failure, at once if unconfirmed.
func (w *watchdog) again(l *Lease, start clock.Instant, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &l.watch
	if r.ended {
		return
	}
	if failure == errUnconfirmed {
		w.pushLocked(r, time.Now())
		return
	}
	if failure == nil {
		r.pause = 0
		w.pushLocked(r, l.dueBy(start.Time.Add(w.client.cfg.RenewEvery)))
		return
	}
	r.pause = min(max(2*r.pause, retryMin), retryMax)
	w.pushLocked(r, time.Now().Add(r.pause))
}

// beginRenewal marks a renewal as under way. It reports false if the lease is over.
func (l *Lease) beginRenewal() bool {
	if l.Err() != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != held {
		return false
	}
	l.renewal = make(chan struct{})
	return true
}

// endRenewal ends the renewal under way. The lease reports failure as the cause if it ends before the next success.
func (l *Lease) endRenewal(failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.renewal)
	l.renewal = nil
	if failure != nil {
		l.failure = failure
	}
}
