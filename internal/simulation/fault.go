package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// fault is a sort of fault: something that goes wrong once, for a while or for good.
type fault struct {
	name   string
	weight int
	loses  bool // the server forgets its grants
	happen func(w *world, d *dice)
}

// faults are all sorts of faults in the deployment. A run has some of the sorts.
func (w *world) faults() []fault {
	common := append(limitFaults(), clientFaults()...)
	switch {
	case w.group != nil:
		return append(common, w.group.faults()...)
	case w.shards != nil:
		return append(common, shardFaults()...)
	}
	return append(common,
		fault{"hang", 3, false, (*world).hangFault},
		fault{"restart", 3, false, func(w *world, d *dice) { w.restartFault(d, true) }},
		fault{"restart without data", 2, true, func(w *world, d *dice) { w.restartFault(d, false) }},
	)
}

// clientFaults are the faults of any deployment.
func clientFaults() []fault {
	return []fault{
		{"latency", 4, false, (*world).latencyFault},
		{"slices", 2, false, (*world).slicesFault},
		{"one way", 6, false, (*world).oneWayFault},
		{"partition", 3, false, (*world).partitionFault},
		{"cut", 6, false, (*world).cutFault},
		{"late", 6, false, (*world).lateFault},
		{"lost reply", 12, false, (*world).lostReplyFault},
		{"refused", 3, false, (*world).refusedFault},
		{"stand still", 4, false, (*world).standStillFault},
		{"crash", 3, false, (*world).crashFault},
		{"close", 3, false, (*world).closeFault},
		{"script flush", 3, false, func(w *world, d *dice) { w.server(d).Do("SCRIPT", "FLUSH") }},
		{"client kill", 3, false, func(w *world, d *dice) { w.server(d).KillConns(nil) }},
		{"subscribers killed", 3, false, func(w *world, _ *dice) { w.killSubscribers() }},
		{"flushall", 1, true, (*world).flushFault},
		{"del", 2, true, (*world).deleteFault},
	}
}

func (w *world) killSubscribers() {
	for _, srv := range w.servers {
		srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
	}
}

// profile is a run's sorts of faults, and their density.
type profile struct {
	faults []fault
	total  int           // of the weights
	every  time.Duration // at most
	lasts  time.Duration // the storm
}

func newProfile(d *dice, all []fault) profile {
	p := profile{every: pick(d, []time.Duration{200 * time.Millisecond, time.Second, 4 * time.Second}), lasts: d.between(10*time.Second, 45*time.Second)}
	lossy := d.oneIn(3)
	for _, f := range all {
		if f.loses && !lossy || d.oneIn(3) {
			continue
		}
		p.faults = append(p.faults, f)
		p.total += f.weight
	}
	return p
}

func (p profile) pick(d *dice) fault {
	n := d.n(p.total)
	for _, f := range p.faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("simulation: weights")
}

// storm lets faults happen for as long as the profile says.
func (w *world) storm(p profile) {
	if p.total == 0 {
		w.pause(p.lasts, w.enough)
		return
	}
	for end := time.Now().Add(p.lasts); time.Now().Before(end) && !w.sated(w.enough); {
		w.pause(w.dice.upTo(p.every), w.enough)
		f := p.pick(w.dice)
		if d := w.happens(f.name); d != nil {
			f.happen(w, d)
		}
	}
}

// happens notes a fault, and returns the dice for its details, or nil for an omitted fault. Each fault has separate dice, so
// that an omission does not change later faults.
func (w *world) happens(name string) *dice {
	n := w.happened
	w.happened++
	if slices.Contains(w.omit, n) {
		return nil
	}
	w.history.add("fault", "", "#%d %s", n, name)
	w.report.Faults[name]++
	return newDice(w.seed, fmt.Sprint("fault ", n))
}

// during runs start now and stop after d, or as soon as the faults are over.
func (w *world) during(d time.Duration, start, stop func()) {
	start()
	w.wg.Go(func() {
		select {
		case <-time.After(d):
		case <-w.healed:
		}
		stop()
	})
}

// stopUntilReplaced stops a master until one of its replicas is a master, and a moment longer, or for 20 s: what clients have sent
// meanwhile runs at a master that knows of no other.
func (w *world) stopUntilReplaced(d *dice, master *fakeredis.Server, all []*fakeredis.Server) {
	const step = 10 * time.Millisecond
	leads := func(s *fakeredis.Server) bool { return s.Replication().Master == "" }
	replicas := slices.DeleteFunc(slices.Clone(all), leads)
	longer := d.n(20)
	master.Stall(true)
	w.wg.Go(func() {
		defer master.Stall(false)
		ticks := time.NewTicker(step)
		defer ticks.Stop()
		for left := int(20 * time.Second / step); left > 0; left-- {
			if slices.ContainsFunc(replicas, leads) {
				left, replicas = min(left, longer), nil
			}
			select {
			case <-ticks.C:
			case <-w.healed:
				return
			}
		}
	})
}

// long is for how long a fault lasts: seldom for very long.
func long(d *dice) time.Duration {
	if d.oneIn(10) {
		return d.upTo(time.Minute)
	}
	return d.upTo(pick(d, []time.Duration{100 * time.Millisecond, time.Second, 8 * time.Second}))
}

func (w *world) latencyFault(d *dice) {
	r := w.route(d)
	latency, jitter := d.upTo(30*time.Millisecond), d.upTo(pick(d, []time.Duration{time.Millisecond, 100 * time.Millisecond, 3 * time.Second}))
	w.during(long(d),
		func() { r.set(func() { r.latency, r.jitter = latency, jitter }) },
		func() { r.set(func() { r.latency, r.jitter = w.latency, w.latency }) })
}

func (w *world) slicesFault(d *dice) {
	r := w.route(d)
	w.during(long(d), func() { r.set(func() { r.sliced = true }) }, func() { r.set(func() { r.sliced = false }) })
}

func (w *world) oneWayFault(d *dice) {
	r, direction := w.route(d), d.n(2)
	w.history.add("fault", "", "%s: direction %d", r.name, direction)
	w.during(long(d),
		func() { r.set(func() { r.blocked[direction] = true }) },
		func() { r.set(func() { r.blocked[direction] = false }) })
}

func (w *world) partitionFault(d *dice) {
	for _, r := range w.routes() {
		if d.oneIn(2) {
			w.history.add("fault", "", "%s is cut off", r.name)
			w.during(long(d),
				func() { r.set(func() { r.blocked = [2]bool{true, true} }) },
				func() { r.set(func() { r.blocked = [2]bool{} }) })
		}
	}
}

func (w *world) cutFault(d *dice) {
	r, all, late := w.route(d), d.oneIn(2), time.Duration(-1)
	if d.oneIn(2) {
		late = 0
	}
	victim := d.n(3)
	w.history.add("fault", "", "%s loses connections (all: %v, what is on its way arrives: %v)", r.name, all, late == 0)
	r.cut(late, func(n int) bool { return all || n == victim })
}

// lateFault makes requests arrive long after the death of their connection.
func (w *world) lateFault(d *dice) {
	r, late := w.route(d), d.upTo(pick(d, []time.Duration{time.Second, 6 * time.Second, time.Minute}))
	w.delay(r, d.upTo(20*time.Millisecond), late)
}

// delay gathers the requests of some time, and makes the requests arrive late, after the death of their connections.
func (w *world) delay(r *route, gather, late time.Duration) {
	w.history.add("fault", "", "%s: what is on its way arrives after %v", r.name, late)
	w.during(gather,
		func() { r.set(func() { r.blocked[up] = true }) },
		func() {
			r.cut(late, func(int) bool { return true })
			r.set(func() { r.blocked[up] = false })
		})
}

// An acquire that arrives before lateEnough may yet take a lock, and an acquire that arrives at tooLate may not.
const lateEnough, tooLate = 4 * time.Second, 9 * time.Second

// lastGust makes requests arrive after the end of all further faults.
func (w *world) lastGust(p profile) {
	if !slices.ContainsFunc(p.faults, func(f fault) bool { return f.name == "late" }) {
		return
	}
	for _, r := range w.routes() {
		d := w.happens("late, the last")
		if d == nil {
			continue
		}
		late := d.between(500*time.Millisecond, lateEnough)
		if d.oneIn(2) {
			late += tooLate - lateEnough
		}
		w.delay(r, time.Minute, late)
	}
	time.Sleep(w.dice.upTo(time.Second))
}

func (w *world) lostReplyFault(d *dice) {
	r := w.route(d)
	w.history.add("fault", "", "%s: the next reply", r.name)
	r.set(func() { r.swallow = true })
}

func (w *world) refusedFault(d *dice) {
	r := w.route(d)
	w.during(long(d), func() { r.set(func() { r.refused = true }) }, func() { r.set(func() { r.refused = false }) })
}

func (w *world) standStillFault(d *dice) {
	p, how := w.someone(d), d.upTo(2*longestLease)
	w.wg.Go(func() { p.standStill(how) })
}

func (w *world) crashFault(d *dice) {
	p, late := w.someone(d), time.Duration(-1)
	if d.oneIn(2) {
		late = long(d)
	}
	w.replace(p, d.upTo(5*time.Second), func() { p.crash(late) })
}

func (w *world) closeFault(d *dice) {
	p := w.someone(d)
	w.replace(p, d.upTo(5*time.Second), p.close)
}

func (w *world) hangFault(d *dice) {
	srv := w.server(d)
	w.during(min(long(d), 7*time.Second), func() { srv.Stall(true) }, func() { srv.Stall(false) })
}

// restartFault has the server be down for a while, and come back with its data or without.
func (w *world) restartFault(d *dice, keep bool) {
	srv := w.server(d)
	srv.Refuse(true)
	srv.KillConns(nil)
	if keep {
		srv.RestartWithData()
	} else {
		w.emptied(srv, dataLost)
		srv.Restart()
	}
	w.during(d.upTo(pick(d, []time.Duration{10 * time.Millisecond, time.Second, 8 * time.Second})), func() {}, func() {
		w.setup()
		srv.Refuse(false)
	})
}

func (w *world) flushFault(d *dice) {
	srv := w.server(d)
	w.lost(deleted, w.objectsOn(srv)...)
	for _, o := range w.objectsOn(srv) {
		if o.family == permits && w.at(o.name) != w.at(permitsKey(o.name)) {
			w.delete(o) // the number of permits alone would stay, without those that are taken
		}
	}
	srv.Do("FLUSHALL")
	w.setup()
}

// delete deletes an object at its place.
func (w *world) delete(o *object) {
	w.at(o.name).Do("DEL", o.name)
	w.at(permitsKey(o.name)).Do("DEL", permitsKey(o.name))
}

func (w *world) deleteFault(d *dice) {
	o := pick(d, w.objects)
	w.history.add("fault", o.name, "DEL")
	w.lost(deleted, o)
	if w.five {
		w.server(d).Do("DEL", o.name)
	} else {
		w.delete(o)
	}
	w.setup()
}
