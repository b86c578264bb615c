package lock

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// loop is the goroutine of the watchdog, from the first lease until Close. last is when it was started.
func (w *watchdog) loop(last instant) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		timer.Reset(time.Until(w.wake))
		w.mu.Unlock()
		select {
		case <-w.signal:
			continue
		case <-timer.C:
		case <-w.client.done:
			return
		}
		at := w.client.now()
		if gap := last.asleep(at) - at.t.Sub(last.t); gap > clockGap || gap < -clockGap {
			w.clockJumped()
		}
		last = at
		w.endDue(at.t)
		for due := w.takeDue(at.t); len(due) > 0 && !w.client.isClosed(); due = w.takeDue(time.Now()) {
			w.renew(due)
		}
		w.plan()
	}
}

// plan sets when to look next.
func (w *watchdog) plan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	w.wake = at.Add(time.Hour)
	for _, s := range []schedule{w.renewals, w.endings} {
		if len(s) > 0 {
			w.wake = earlier(w.wake, earlier(s[0].due, at.Add(clockTick)))
		}
	}
	if len(w.watched) > 0 {
		w.wake = earlier(w.wake, at.Add(clockTick))
	}
}

// clockJumped has every lease that is watched look at the clock, and renews the others at once: how long they still have is
// not what it was thought to be.
func (w *watchdog) clockJumped() {
	w.mu.Lock()
	leases := make([]*Lease, 0, len(w.watched))
	for l := range w.watched {
		leases = append(leases, l)
	}
	at := time.Now()
	for _, r := range w.renewals {
		r.due = earlier(r.due, at)
	}
	heap.Init(&w.renewals)
	w.mu.Unlock()
	for _, l := range leases {
		l.Err()
	}
}

// endDue forgets the leases whose time is up. One that has been extended has more of it.
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

// takeDue takes the renewals that are due out of the schedule, with those that soon will be. It returns none if nothing is
// due yet.
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
		w.client.warn("renewals run late", "by", lateness)
	}
	return due
}

// renew runs one round of renewals, of several servers beside each other.
func (w *watchdog) renew(due []*Lease) {
	leases := due[:0]
	for _, l := range due {
		if l.beginRenewal() {
			leases = append(leases, l)
		}
	}
	start := w.client.now()
	name := func(l *Lease) string { return l.target.name }
	beside(byServer(w.client, leases, name), func(leases []*Lease) { w.renewOn(leases, start) })
}

// renewOn renews leases of one server.
func (w *watchdog) renewOn(leases []*Lease, start instant) {
	for len(leases) > 0 {
		// Kinds differ in their scripts: each round takes the leases of one script.
		renew := leases[0].target.kind.renew
		var same, rest []*Lease
		for _, l := range leases {
			if l.target.kind.renew == renew {
				same = append(same, l)
			} else {
				rest = append(rest, l)
			}
		}
		w.renewKind(renew, same, start)
		leases = rest
	}
}

// renewKind renews leases that the same script is for: batches of it in one go.
func (w *watchdog) renewKind(renew *script.Script, leases []*Lease, start instant) {
	batches, calls := w.client.renewals(renew, leases)
	ctx, cancel := context.WithTimeout(w.client.life, max(w.client.cfg.Lease/6, renewMin))
	defer cancel()
	replies, err := script.RunBatch(w.client.patient(ctx), w.client.server, calls)
	if err != nil && !w.client.isClosed() {
		w.client.warn("renewal", "leases", len(leases), "error", err)
	}
	w.pace(err == nil, ctx.Err() != nil)
	for i, batch := range batches {
		for j, l := range batch {
			failure, outcome := err, int64(0)
			if failure == nil {
				outcome, failure = renewalOutcome(replies[i], j)
			}
			w.renewed(l, start, outcome, failure)
		}
	}
}

// pace sets how much to ask for at once from what came of the last time.
func (w *watchdog) pace(done, late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case done:
		w.round = min(w.round+1, batchesAtOnce)
	case late: // that may have been too much
		w.round = max(w.round/2, 1)
	}
}

// renewals are the calls of a script that renew leases of one term, each with the leases that it is about.
func (c *Client) renewals(renew *script.Script, leases []*Lease) (batches [][]*Lease, calls []script.Call) {
	for _, part := range c.bySlot(leases) {
		size := 0
		for i, l := range part {
			if size += l.size(); i == 0 || size > c.cfg.RenewBatch {
				batches, size = append(batches, nil), l.size()
			}
			last := &batches[len(batches)-1]
			*last = append(*last, l)
		}
	}
	for _, batch := range batches {
		calls = append(calls, renewCall(renew, batch, batch[0].term.Milliseconds()))
	}
	return batches, calls
}

// size is how many locks or permits the lease has.
func (l *Lease) size() int {
	if l.target.kind.parted {
		return len(l.owner) / permitSize
	}
	return 1
}

// lookOnly is the lease with which a renewal changes nothing, since none is shorter: PTTL is -2 where there is no key.
const lookOnly = -2

func renewCall(renew *script.Script, leases []*Lease, ms int64) script.Call {
	keys := make([]string, len(leases))
	args := make([]any, 1, 1+len(leases))
	args[0] = ms
	for i, l := range leases {
		keys[i] = l.target.name
		args = append(args, l.owner)
	}
	return renew.Call(keys, args...)
}

var errRenewal = errors.New("lock: unexpected reply to renewal")

// renewalOutcome is what the script says about its i-th lock: 1 renewed, 0 gone, -1 somebody else's.
func renewalOutcome(reply resp.Value, i int) (int64, error) {
	if err := reply.Err(); err != nil {
		return 0, err
	}
	if i >= reply.Len() {
		return 0, errRenewal
	}
	return reply.At(i).Int()
}

// renewed takes note of the outcome of one renewal.
func (w *watchdog) renewed(l *Lease, start instant, outcome int64, failure error) {
	if failure != nil {
		w.client.counters.renewalErrors.Add(1)
	} else if outcome == 1 {
		w.client.counters.renewals.Add(1)
		l.extend(start)
	}
	l.endRenewal(failure)
	if failure == nil && outcome == 0 {
		l.denied(Forced)
	} else if failure == nil && outcome < 0 {
		l.denied(Taken)
	}
	if l.Err() == nil {
		w.again(l, start, failure)
	}
}

// again schedules the next renewal of a lease: a period after the last one, and sooner after one that failed.
func (w *watchdog) again(l *Lease, start instant, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &l.watch
	if r.ended {
		return
	}
	if failure == nil {
		r.pause = 0
		w.pushLocked(r, start.t.Add(w.client.cfg.RenewEvery))
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

// endRenewal ends the renewal under way. failure is what went wrong with it, to be told if the lease ends before another one succeeds.
func (l *Lease) endRenewal(failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.renewal)
	l.renewal = nil
	if failure != nil {
		l.failure = failure
	}
}
