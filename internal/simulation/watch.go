package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
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
		w.group.look()
		w.shards.look()
		w.judge()
		w.judgeCalls()
		w.judgeQueues()
		calm := w.calmStart()
		if !calm.IsZero() && time.Since(calm) > w.times.settle {
			w.judgeIdle()
		}
		if !calm.IsZero() && time.Since(calm) > w.times.undo {
			w.judgeOrphans()
		}
	}
}

// waiting are the pending calls of living processes.
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

// judgeCalls fails for overdue calls.
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

// judgeIdle fails for free objects with waiters.
func (w *world) judgeIdle() {
	waited, patience := map[*object]string{}, map[*object]time.Duration{}
	for _, c := range w.waiting() {
		if c.waits && (c.limit.IsZero() || time.Until(c.limit) > w.slack) && time.Since(c.since) > tick {
			own := max(c.patience, c.object.patience)
			if waited[c.object] == "" || own < patience[c.object] {
				waited[c.object], patience[c.object] = c.what, own
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		free := true
		for _, srv := range w.judged() {
			free = free && o.free(srv)
		}
		if o.family != exclusive && o.family != plain && o.family != readWrite && o.family != faster || waited[o] == "" || !free ||
			w.shards.moving(time.Now(), o) || w.shards.hesitates(o) { // a fenced lock needs its token, perhaps on a different node

			o.idle = time.Time{}
			continue
		}
		if o.idle.IsZero() {
			o.idle = time.Now()
		}
		if idle := time.Since(o.idle); idle > patience[o] {
			w.violate(o, "nobody has had it for %v, and %s waits", idle, waited[o])
			o.idle = time.Now().Add(time.Hour)
		}
	}
}

const (
	// orphanTime is for how long the server may have an owner that nobody is, when nothing is wrong.
	orphanTime = 2 * time.Second
)

// judgeOrphans fails for unknown owners in exclusive locks: owners returned by no call and wanted by no call. A late request
// takes no lock, except a fair lock.
func (w *world) judgeOrphans() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		late := o.patience >= fairPatience
		if o.family != exclusive && o.family != faster || late && time.Since(w.calmSince) < w.times.settle ||
			w.shards.moving(time.Now().Add(-orphanTime), o) || w.shards.hesitates(o) {

			clear(o.orphans)
			continue
		}
		var owners []string
		excused := map[string]bool{}
		for _, srv := range w.judged() {
			for _, owner := range o.owners(srv) {
				owners = append(owners, owner)
				excused[owner] = time.Now().Before(o.aged[owner]) || w.mayBeLate(srv, owner)
			}
		}
		for owner := range o.orphans {
			if !slices.Contains(owners, owner) {
				delete(o.orphans, owner)
			}
		}
		for _, owner := range owners {
			if w.claimedLocked(o, owner) || excused[owner] {
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

// mayBeLate reports whether a request held up until the end of the faults may have taken a lock for its lease. An undo is repeated
// until the request is too late by the process's clock, and the server's clock may be behind, by more than the lease.
func (w *world) mayBeLate(srv *fakeredis.Server, owner string) bool {
	i := slices.IndexFunc(w.living, func(p *process) bool { return p.redisson == nil && p.is(owner) })
	return i >= 0 && time.Since(w.calmSince) < longestLease+w.slack && w.living[i].routes[0].ahead-srv.Ahead() > orphanTime
}

// claimedLocked reports whether a worker has the lock as an owner, or had the lock at the end of its process.
func (w *world) claimedLocked(o *object, owner string) bool {
	i := slices.IndexFunc(w.living, func(p *process) bool { return p.redisson == nil && p.is(owner) })
	if i < 0 || w.living[i].joins(o) || o.keptLocked(owner) {
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

// joins reports whether a call of the process is about the object and further objects: the call may have this object and wait
// for the next.
func (p *process) joins(o *object) bool {
	return slices.ContainsFunc(p.workers, func(k *worker) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.call.beside) > 0 && (k.call.object == o || slices.Contains(k.call.beside, o))
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
	may := map[string]bool{}
	for _, o := range w.objects {
		switch o.family {
		case exclusive:
			may[braced("redisson_lock_token", o.name)] = w.tokenLife == 0
			may[braced("redisson_lock_queue", o.name)] = true // the next look finds dead waiters
			may[braced("redisson_lock_timeout", o.name)] = true
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
	for _, srv := range w.judged() {
		w.judgeServer(srv, may)
	}
	for _, srv := range w.everything() {
		if n := len(srv.Conns()); n > 0 {
			w.violate(nil, "%d connections to %s are left", n, w.nameOf(srv))
		}
	}
}

// judgeServer fails for all keys left on a server, with some exceptions.
func (w *world) judgeServer(srv *fakeredis.Server, may map[string]bool) {
	for _, key := range srv.Do("KEYS", "*").([]any) {
		if !may[key.(string)] {
			w.violate(nil, "%s is left: %v, %v ms", key, srv.Do("TYPE", key.(string)), srv.Do("PTTL", key.(string)))
		}
	}
	if n := srv.Do("PUBSUB", "NUMPAT"); n != any(int64(0)) {
		w.violate(nil, "%v subscriptions are left", n)
	}
}

// judgePermits fails unless all permits are free again, or least where some may be missing.
func (w *world) judgePermits(o *object, least int) {
	if o.lossSince(w.start) != nil {
		return
	}
	free := 0
	fmt.Sscan(fmt.Sprint(w.at(o.name).Do("GET", o.name)), &free)
	if o.family == permits {
		taken, ok := w.at(permitsKey(o.name)).Do("ZCARD", permitsKey(o.name)).(int64)
		if !ok {
			w.violate(o, "the permits that are taken: %v", w.at(permitsKey(o.name)).Do("ZCARD", permitsKey(o.name)))
		}
		free += int(taken) // whose leases are over
	}
	if free < least || free > o.total {
		w.violate(o, "%d permits are free in the end, want %d to %d", free, least, o.total)
	}
}
