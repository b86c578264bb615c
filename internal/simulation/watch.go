package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tick is how often everything is looked at.
const tick = 50 * time.Millisecond

// watch looks at everything until ticks is closed.
func (w *world) watch(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(tick):
		}
		w.judge()
		w.judgeCalls()
		calm := w.calmStart()
		if !calm.IsZero() && time.Since(calm) > settleTime {
			w.judgeIdle()
		}
		if !calm.IsZero() && time.Since(calm) > undoTime {
			w.judgeOrphans()
		}
	}
}

// waiting are the calls that have not returned, of processes that live.
func (w *world) waiting() []call {
	var all []call
	for _, p := range w.processes() {
		for _, k := range p.workers {
			k.mu.Lock()
			if k.call.what != "" {
				c := k.call
				c.what = k.name + ": " + c.what
				all = append(all, c)
			}
			k.mu.Unlock()
		}
	}
	return all
}

// judgeCalls fails for calls that should have returned.
func (w *world) judgeCalls() {
	for _, p := range w.processes() {
		for _, k := range p.workers {
			k.mu.Lock()
			c := k.call
			late := !c.limit.IsZero() && time.Now().After(c.limit)
			if late {
				k.call.limit = time.Time{}
			}
			k.mu.Unlock()
			if late {
				w.violate(c.object, "%s: %s has not returned after %v", k.name, c.what, time.Since(c.since))
			}
		}
	}
}

// judgeIdle fails for objects that nobody has and somebody waits for.
func (w *world) judgeIdle() {
	waited := map[*object]string{}
	for _, c := range w.waiting() {
		if c.waits && (c.limit.IsZero() || time.Until(c.limit) > w.slack) && time.Since(c.since) > tick {
			waited[c.object] = c.what
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		free := w.srv.Do("EXISTS", o.name) == any(int64(0))
		if o.family != exclusive && o.family != plain && o.family != readWrite || waited[o] == "" || !free {
			o.idle = time.Time{}
			continue
		}
		if o.idle.IsZero() {
			o.idle = time.Now()
		}
		if idle := time.Since(o.idle); idle > o.patience {
			w.violate(o, "nobody has had it for %v, and %s waits", idle, waited[o])
			o.idle = time.Now().Add(time.Hour)
		}
	}
}

const (
	// undoTime is after how long without faults all is taken back that had to be.
	undoTime = 2 * time.Second
	// orphanTime is for how long the server may have an owner that nobody is, when nothing is wrong.
	orphanTime = 2 * time.Second
)

// judgeOrphans fails for owners in exclusive locks that no call has returned and none is asking for. What arrives late takes no
// lock, but a fair one.
func (w *world) judgeOrphans() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		late := o.patience >= fairPatience
		if o.family != exclusive || late && time.Since(w.calmSince) < settleTime {
			continue
		}
		fields, _ := w.srv.Do("HKEYS", o.name).([]any)
		for owner := range o.orphans {
			if !slices.Contains(fields, any(owner)) {
				delete(o.orphans, owner)
			}
		}
		for _, field := range fields {
			owner := field.(string)
			if w.claimedLocked(o, owner) {
				delete(o.orphans, owner)
				continue
			}
			known, seen := o.orphans[owner]
			if !seen {
				o.orphans[owner] = orphan{time.Now()}
				continue
			}
			if age := time.Since(known.since); age > orphanTime {
				w.violate(o, "%s has it for %v, and nobody is that: %s", owner, age, w.state(o))
				o.orphans[owner] = orphan{time.Now().Add(time.Hour)}
			}
		}
	}
}

// claimedLocked reports whether a worker has the lock as that owner, or had it when its process ended.
func (w *world) claimedLocked(o *object, owner string) bool {
	if !slices.ContainsFunc(w.living, func(p *process) bool { return strings.HasPrefix(owner, p.client.ID()) }) {
		return true
	}
	return slices.ContainsFunc(o.live, func(h *hold) bool {
		if strings.Contains(h.lease.Owner(), owner) {
			return true
		}
		for _, member := range h.lease.Members() {
			if member.Owner() == owner {
				return true
			}
		}
		return false
	})
}

// joinWorkers waits for the workers of all processes to end.
func (w *world) joinWorkers() {
	done := make(chan struct{})
	w.wg.Go(func() {
		for _, p := range w.processes() {
			p.wg.Wait()
		}
		close(done)
	})
	select {
	case <-done:
	case <-time.After(endLimit):
		for _, c := range w.waiting() {
			w.violate(c.object, "%s has not returned %v after the end", c.what, endLimit)
		}
	}
}

// closeAll closes all processes in order.
func (w *world) closeAll() {
	for _, p := range w.processes() {
		p.close()
	}
}

// judgeRemains fails for what is left on the server when all is over: nothing but permits, tokens and the dead in queues.
func (w *world) judgeRemains() {
	if n := len(w.srv.Conns()); n > 0 {
		w.violate(nil, "%d connections are left", n)
	}
	may := map[string]bool{}
	for _, o := range w.objects {
		switch o.family {
		case exclusive:
			may["redisson_lock_token:{"+o.name+"}"] = true
			may["redisson_lock_queue:{"+o.name+"}"] = true // who has died in it is found by the next who looks
			may["redisson_lock_timeout:{"+o.name+"}"] = true
		case countdown:
			for _, r := range o.rounds {
				may[r.name] = true
			}
		case semaphore:
			may[o.name] = true
			w.judgePermits(o, o.total-o.missing)
		case permits:
			may[o.name], may[permitsKey(o.name)] = true, true
			w.judgePermits(o, o.total)
		}
	}
	for _, key := range w.srv.Do("KEYS", "*").([]any) {
		if !may[key.(string)] {
			w.violate(nil, "%s is left: %v, %v ms", key, w.srv.Do("TYPE", key.(string)), w.srv.Do("PTTL", key.(string)))
		}
	}
	if n := w.srv.Do("PUBSUB", "NUMPAT"); n != any(int64(0)) {
		w.violate(nil, "%v subscriptions are left", n)
	}
}

// judgePermits fails unless all permits are free again, or least where some may be missing.
func (w *world) judgePermits(o *object, least int) {
	if o.lossSince(w.start) != nil {
		return
	}
	free := 0
	fmt.Sscan(fmt.Sprint(w.srv.Do("GET", o.name)), &free)
	if o.family == permits {
		taken, ok := w.srv.Do("ZCARD", permitsKey(o.name)).(int64)
		if !ok {
			w.violate(o, "the permits that are taken: %v", w.srv.Do("ZCARD", permitsKey(o.name)))
		}
		free += int(taken) // whose leases are over
	}
	if free < least || free > o.total {
		w.violate(o, "%d permits are free in the end, want %d to %d", free, least, o.total)
	}
}
