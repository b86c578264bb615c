package watchdog

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
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
	// batchesAtOnce limits the renewal scripts sent in a write. A slow server gets fewer.
	batchesAtOnce = 16
	// mostAsked limits the questions about news under way at a time. Further news wait only if a server hangs and as many are about its locks.
	mostAsked = 16
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
		var told []L
		news := w.news()
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
			if told = w.hearAll(ev, news); w.listens() {
				w.askBeside(told)
				told = nil
			}
		case <-w.answered:
			w.asking--
		case <-timer.C:
		case <-w.cfg.Life.Done():
			for ; w.asking > 0; w.asking-- {
				<-w.answered
			}
			return
		}
		at := w.cfg.Now()
		if gap := last.Asleep(at) - at.Time.Sub(last.Time); gap > clockGap || gap < -clockGap {
			w.clockJumped()
		}
		last = at
		w.answerAlarm(at.Time)
		w.endDue(at.Time)
		w.attend(told, w.takeDue(at.Time))
		if w.asking == 0 { // otherwise there are leases in no schedule
			w.listen()
		}
		w.plan()
	}
}

// attend asks for the leases told of, for those due and for those unchecked, and reports the renewals as a round. In a cluster it asks
// for all at the same time, and a server that hangs holds up the next renewals on the others for that time only.
func (w *Watchdog[L]) attend(told, due []L) {
	start := time.Now()
	requests := []func(){func() { w.check(start) }}
	if len(told)+len(due) > 0 {
		requests = []func(){func() { w.ask(told) }, func() { w.renew(due) }, requests[0]}
	}
	if w.listens() {
		w.listenWhile(requests)
	} else {
		for _, request := range requests {
			request()
		}
	}
	w.report(start)
}

// report reports the renewals since the last report as a round. It began at start, or with the first question about news if earlier.
func (w *Watchdog[L]) report(start time.Time) {
	so, last := totals{w.begun.Load(), w.Renewals.Load(), w.Errors.Load(), w.gone.Load()}, w.reported
	if w.asking > 0 { // what has been sent is not all answered
		last.begun = so.begun
	}
	if w.cfg.Round == nil || so == last {
		return
	}
	w.reported = so
	if !w.asked.IsZero() {
		start, w.asked = clock.Earlier(start, w.asked), time.Time{}
	}
	w.cfg.Round(Round{Renewed: int(so.renewals - last.renewals), Failed: int(so.failures - last.failures), Gone: int(so.gone - last.gone),
		Lateness: time.Duration(w.Lateness.Load()), Elapsed: time.Since(start)})
}

// listens reports whether the loop listens to news while requests are under way: of several servers one may hang.
func (w *Watchdog[L]) listens() bool { return w.cfg.Server.Spread != nil && w.alarms.listening != nil }

// listenWhile runs requests, and asks for the leases that news are about meanwhile. It returns when the requests have ended.
func (w *Watchdog[L]) listenWhile(requests []func()) {
	left, ended := len(requests), make(chan struct{})
	for _, request := range requests {
		begin(request, ended)
	}
	for left > 0 {
		news := w.news()
		select {
		case <-ended:
			left--
		case <-w.answered:
			w.asking--
		case ev, ok := <-news:
			if !ok { // the client is closing
				w.alarms.listening = nil
				continue
			}
			w.askBeside(w.hearAll(ev, news))
		}
	}
}

// askBeside asks for leases that news are about, while the loop goes on.
func (w *Watchdog[L]) askBeside(told []L) {
	if len(told) > 0 {
		if w.asking++; w.asked.IsZero() {
			w.asked = time.Now()
		}
		begin(func() { w.ask(told) }, w.answered)
	}
}

// begin runs fn in a goroutine, which reports the end.
func begin(fn func(), ended chan<- struct{}) {
	go func() {
		fn()
		ended <- struct{}{}
	}()
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
	if len(w.unchecked) > 0 {
		w.wake = clock.Earlier(w.wake, w.checkAt)
	}
	if a.raised.Load() {
		w.wake = clock.Earlier(w.wake, a.last.Add(alarmPause))
	}
	for _, s := range []schedule[L]{w.renewals, w.endings} {
		if len(s) > 0 {
			w.wake = clock.Earlier(w.wake, clock.Earlier(s[0].due, at.Add(tick)))
		}
	}
	if len(w.watched) > 0 {
		w.wake = clock.Earlier(w.wake, at.Add(clockTick))
	}
}

// clockJumped makes every watched lease check its end, and makes all renewals due at once, because the remaining times of
// the leases are no longer known.
func (w *Watchdog[L]) clockJumped() {
	w.mu.Lock()
	leases := slices.Collect(maps.Keys(w.watched))
	w.renewAllLocked(time.Now())
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
		over = append(over, w.endings.takeLocked())
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

// takeDue removes the due renewals from the schedule and returns their leases, together with renewals due soon. It returns
// nil if no renewal is due.
func (w *Watchdog[L]) takeDue(at time.Time) []L {
	w.mu.Lock()
	if len(w.renewals) == 0 || w.renewals[0].due.After(at) {
		w.mu.Unlock()
		return nil
	}
	lateness := at.Sub(w.renewals[0].due)
	soon := at.Add(w.cfg.Every / gather)
	var due []L
	for len(w.renewals) > 0 && !w.renewals[0].due.After(soon) && len(due) < w.round*w.cfg.Batch {
		due = append(due, w.renewals.takeLocked())
	}
	w.mu.Unlock()
	w.Lateness.Store(int64(lateness))
	w.MaxLateness.Store(max(w.MaxLateness.Load(), int64(lateness)))
	if lateness > w.cfg.Every/2 {
		w.cfg.Leases.Warn(due[0], nil, "renewals run late", "leases", len(due), "by", lateness.Round(time.Millisecond))
	}
	return due
}

// renew renews leases, concurrently on all servers concerned.
func (w *Watchdog[L]) renew(due []L) {
	leases := due[:0]
	for _, l := range due {
		if w.cfg.Leases.Begin(l) {
			leases = append(leases, l)
		}
	}
	w.begun.Add(uint64(len(leases)))
	start := w.cfg.Now()
	remote.Beside(remote.ByServer(w.cfg.Server, leases, w.cfg.Leases.Name), func(leases []L) { w.renewOn(leases, start) })
}

// renewOn renews leases of a single server, in a single write.
func (w *Watchdog[L]) renewOn(leases []L, start clock.Instant) {
	if len(leases) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.cfg.Life, Limit(w.cfg.Term))
	defer cancel()
	answers, err := w.cfg.Ask(ctx, leases, false)
	failed := len(leases)
	if err == nil {
		failed, err = refusals(answers)
	}
	if err != nil && w.cfg.Life.Err() == nil {
		w.cfg.Leases.Warn(leases[0], err, "renewals fail, and are tried again", "leases", failed)
	}
	w.pace(err == nil, ctx.Err() != nil)
	late := start.Elapsed(w.cfg.Now()) > AnsweredLate
	for _, a := range answers {
		w.renewed(a, start, late)
	}
}

// refusals returns the number of leases that the server has not renewed for an error, and the first error.
func refusals[L comparable](answers []Answer[L]) (n int, first error) {
	for _, a := range answers {
		if a.Err != nil {
			n++
			first = cmp.Or(first, a.Err)
		}
	}
	return n, first
}

// pace adapts the size of the next round to the result of the last round.
func (w *Watchdog[L]) pace(done, late bool) {
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

// renewed records the outcome of a renewal. After a late answer or a failed renewal, a success may come from a server that
// hung and was replaced in the meantime. Unless replicas acknowledged the renewal, the success counts only if a second
// renewal, sent after the answer, succeeds too.
func (w *Watchdog[L]) renewed(a Answer[L], start clock.Instant, late bool) {
	l, failure := a.Lease, a.Err
	r := w.cfg.Leases.Record(l)
	done := failure == nil && a.Outcome == 1
	if done && !w.cfg.Acked() && r.trust != confirming && (late || r.trust == doubted) {
		failure = errUnconfirmed
	}
	switch {
	case failure == errUnconfirmed:
		r.trust = confirming
	case failure != nil:
		r.trust = doubted
		w.Errors.Add(1)
	case done:
		r.trust = trusted
		w.Renewals.Add(1)
		w.cfg.Leases.Extend(l, start)
	}
	w.cfg.Leases.End(l, failure)
	if failure == nil && a.Outcome <= 0 {
		w.gone.Add(1)
		w.cfg.Leases.Denied(l, a.Outcome < 0)
	}
	if w.cfg.Leases.Err(l) == nil {
		w.again(l, start, failure)
	}
}

// again schedules the next renewal of a lease: a period after a success, sooner after a failure, at once if unconfirmed.
func (w *Watchdog[L]) again(l L, start clock.Instant, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.cfg.Leases.Record(l)
	if r.ended {
		return
	}
	if failure == errUnconfirmed {
		w.pushLocked(r, time.Now())
		return
	}
	if failure == nil {
		due := w.cfg.Leases.Due(l, start.Time.Add(w.cfg.Every))
		if r.news || start.Time.Before(w.raised) {
			due = time.Now()
		}
		r.pause, r.news = 0, false
		w.pushLocked(r, due)
		return
	}
	r.pause = min(max(2*r.pause, retryMin), retryMax)
	w.pushLocked(r, time.Now().Add(r.pause))
}
