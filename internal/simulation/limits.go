package simulation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// limitFaults are the faults of a server that refuses commands, or has a wrong clock.
func limitFaults() []fault {
	return []fault{
		{"full memory", 3, false, (*world).fullFault},
		{"eviction", 2, true, (*world).evictionFault},
		{"rights", 3, false, (*world).rightsFault},
		{"clock drift", 3, false, (*world).driftFault},
		{"clock jump", 2, true, (*world).jumpFault},
	}
}

func (w *world) fullFault(d *dice) {
	srv := w.server(d)
	w.during(long(d), func() { srv.Full(true) }, func() { srv.Full(false) })
}

// evictionFault deletes random keys of a server, as a server does whose maxmemory-policy evicts: locks, and also latches, lines and
// queues. Without its latch a late request takes effect, so nothing about the lock is safe until no request can be under way.
func (w *world) evictionFault(d *dice) {
	srv := w.server(d)
	keys := srv.Keys()
	for range d.n(4) + 1 {
		if len(keys) == 0 {
			return
		}
		key := pick(d, keys).Name
		w.history.add("fault", "", "%s evicts %s", w.nameOf(srv), key)
		for _, o := range w.objectsOn(srv) {
			if strings.Contains(key, o.name) {
				o.lostUntil(deleted, time.Now().Add(latest))
				if o.family == permits { // without their leases, the taken permits would never come back
					for _, part := range []string{o.name, permitsKey(o.name)} { // perhaps on two servers
						w.at(part).Do("DEL", part)
					}
				}
			}
		}
		srv.Do("DEL", key)
	}
	w.setup()
}

// rightsFault takes the right to publish, to subscribe, to run scripts, or to some writes in scripts away for a while.
func (w *world) rightsFault(d *dice) {
	srv, denied := w.server(d), pick(d, [][]string{{"publish"}, {"subscribe"}, {"publish", "subscribe"}, {"evalsha", "eval"},
		{"del"}, {"hset", "hincrby"}, {"hdel"}})
	if !slices.Contains(denied, "publish") && !slices.Contains(denied, "subscribe") {
		w.mu.Lock()
		w.refuses = true
		w.mu.Unlock()
	}
	w.history.add("fault", "", "no right to %v", denied)
	w.during(long(d), func() { srv.Deny(denied...) }, func() { srv.Deny() })
}

const (
	// driftStep and driftEvery make the clock of a server gain or lose nine thousandths. Holders end a lease a hundredth before
	// the server does, so the drift excuses nothing.
	driftStep  = time.Millisecond
	driftEvery = 112 * time.Millisecond
)

// driftFault has the clock of a server go too fast or too slow for a while, once in a run.
func (w *world) driftFault(d *dice) {
	srv, step, end := pick(d, w.servers), driftStep, time.Now().Add(d.upTo(30*time.Second))
	if d.oneIn(2) {
		step = -step
	}
	if w.drifts[srv] { // two would add up
		return
	}
	w.drifts[srv] = true
	w.history.add("fault", "", "for %v its clock gains %v every %v", time.Until(end), step, driftEvery)
	w.wg.Go(func() {
		for time.Now().Before(end) {
			select {
			case <-time.After(driftEvery):
				srv.Jump(step)
			case <-w.healed:
				return
			}
		}
	})
}

// jumpFault sets the clock of a server.
func (w *world) jumpFault(d *dice) {
	srv, by := pick(d, w.servers), d.upTo(10*time.Second).Truncate(time.Millisecond)
	if d.oneIn(2) {
		by = -by
	}
	w.history.add("fault", "", "the clock of %s jumps by %v", w.nameOf(srv), by)
	if slices.Contains(w.judged(), srv) {
		for _, o := range w.objectsOn(srv) {
			o.jumped(by)
			w.age(o, srv, -by)
		}
	}
	srv.Jump(by)
}

// age notes that leases of an object on a server become longer: a release without an answer is repeated only for as long as the
// lease was to last.
func (w *world) age(o *object, srv *fakeredis.Server, by time.Duration) {
	if by < 0 || o.family != exclusive && o.family != faster {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, owner := range o.owners(srv) {
		ends := time.Now().Add(longestLease)
		if o.aged[owner].After(ends) {
			ends = o.aged[owner]
		}
		o.ageLocked(owner, ends.Add(by))
	}
}

// jumped notes that the clock of the server with the lock jumps, or that a server with another clock takes over. If it is ahead,
// leases end before their time. If it is behind, late requests may yet take effect.
func (o *object) jumped(by time.Duration) {
	o.lostUntil(clockJumped, time.Now().Add(latest+max(0, -by)))
}

// ageLocked notes until when an owner may have the lock.
func (o *object) ageLocked(owner string, until time.Time) {
	if o.aged == nil {
		o.aged = map[string]time.Time{}
	}
	o.aged[owner] = until
}

// setClocks sets all clocks right.
func (w *world) setClocks() {
	for _, srv := range w.servers {
		srv.Jump(-srv.Ahead())
	}
}

// limitedBy reports whether an error is the refusal of a full server, or of a missing right.
func limitedBy(err error) bool {
	said, ok := errors.AsType[resp.Error](err)
	return ok && (strings.HasPrefix(string(said), "OOM ") || strings.HasPrefix(string(said), "NOPERM ") ||
		strings.HasPrefix(string(said), "ERR The user executing the script"))
}

// mayRefuse reports whether a server that is full, or denies a right, may refuse the release of a hold. The release of an
// exclusive lock's only hold frees first and publishes if allowed, so only the right to run scripts is needed.
func (w *world) mayRefuse(h *hold) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refuses || h.shared || h.object.family != exclusive || h.worker.process.redisson != nil
}
