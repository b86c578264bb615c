package simulation

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// permitsKey is where a permit semaphore keeps the ids of the permits that are taken.
func permitsKey(name string) string {
	if strings.Contains(name, "{") {
		return name + ":timeout"
	}
	return "{" + name + "}:timeout"
}

// braced is the name of a key beside a lock's.
func braced(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// unhex is the id of a permit as stored on the server.
func unhex(id string) string {
	b, err := hex.DecodeString(id)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// permits takes and releases permits with leases.
func (k *worker) permits(o *object) {
	s := k.process.clientOf(o).PermitSemaphore(o.name)
	if k.dice.oneIn(100) {
		k.force(o, "permits", s.ReleaseAll)
		return
	}
	if !k.pass() {
		return
	}
	n := 1 + k.dice.n(o.total)
	r := k.request(o, "permits", false)
	defer r.cancel()
	k.begin(o, r.limit, !r.try, "%d permits%s", n, r.text)
	call := s.AcquireMany
	if r.try {
		call = s.TryAcquireMany
	}
	lease, err := call(r.ctx, n, r.opts...)
	if !k.end(err) || err != nil {
		return
	}
	if h := k.took(o, lease, r.hold(hold{})); h != nil {
		k.work(h)
		k.giveBack(h)
	}
}

// semaphore takes and releases permits without leases. Permits of a dead process are missing.
func (k *worker) semaphore(o *object) {
	w, s := k.process.world, k.process.clientOf(o).Semaphore(o.name)
	if !k.pass() {
		return
	}
	n := 1 + k.dice.n(o.total)
	r := k.request(o, "Semaphore", false)
	defer r.cancel()
	if r.limit == 0 { // so many may never come back
		r.limit = 20 * time.Second
		timer := time.AfterFunc(r.limit, r.cancel)
		defer timer.Stop()
	}
	k.begin(o, r.limit, !r.try, "%d permits%s", n, r.text)
	since := time.Now()
	var err error
	if r.try {
		err = s.TryAcquire(r.ctx, n)
	} else {
		err = s.Acquire(r.ctx, n)
	}
	if !k.end(err) {
		w.missing(o, n)
		return
	}
	if err != nil {
		k.process.doubt(o, n)
		return
	}
	w.took(o, n, since)
	k.pause(k.dice.upTo(pick(k.dice, []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 3 * time.Second})), nil)
	if !k.pass() { // a closing program releases its permits first, or never
		w.took(o, -n, since)
		w.missing(o, n)
		return
	}
	w.took(o, -n, since)
	k.begin(o, unlockLimit, false, "Release of %d", n)
	err = s.Release(context.Background(), n)
	switch {
	case !k.end(err), k.process.closing() && errors.Is(err, lock.ErrUncertain), limitedBy(err): // refused: the caller must repeat
		w.missing(o, n)
	case err != nil:
		k.process.doubt(o, n)
	}
}

// doubt is about permits taken or released by a process in the background.
type doubt struct {
	object *object
	n      int
}

// doubt notes an unanswered call: its permits are missing if the process crashes before the call is settled.
func (p *process) doubt(o *object, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubts = append(p.doubts, doubt{o, n})
}

// took changes how many permits of a semaphore are relied on.
func (w *world) took(o *object, n int, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.out += n
	w.report.Holds++
	if o.out <= o.total {
		return
	}
	w.notice()
	if l := o.lossSince(w.start); l != nil {
		w.report.Excused[l.why.name]++
		return
	}
	w.violate(o, "%d permits of %d are had at once", o.out, o.total)
}

// missing notes a number of permits that may not come back.
func (w *world) missing(o *object, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.missing += n
}

// round is a life of a countdown latch.
type round struct {
	name  string
	set   bool // a worker knows that the count is set
	begun int  // calls of CountDown
	open  bool
}

// countdown makes the workers of all processes go through latches in turn.
func (k *worker) countdown(o *object) {
	w := k.process.world
	w.mu.Lock()
	if len(o.rounds) == 0 || o.rounds[len(o.rounds)-1].open {
		o.rounds = append(o.rounds, &round{name: fmt.Sprint(o.name, "-", len(o.rounds))})
	}
	r := o.rounds[len(o.rounds)-1]
	set := r.set
	w.mu.Unlock()
	if !k.pass() {
		return
	}
	latch := k.process.clientOf(o).CountDownLatch(r.name)
	switch {
	case !set:
		k.begin(o, unlockLimit, false, "TrySetCount %s", r.name)
		_, err := latch.TrySetCount(context.Background(), o.total)
		if k.end(err) && err == nil {
			w.mu.Lock()
			r.set = true
			w.mu.Unlock()
		}
	case k.dice.oneIn(3):
		w.mu.Lock()
		r.begun++
		w.mu.Unlock()
		k.begin(o, unlockLimit, false, "CountDown %s", r.name)
		k.end(latch.CountDown(context.Background()))
	default:
		ctx, cancel := context.WithTimeout(context.Background(), k.dice.upTo(5*time.Second))
		defer cancel()
		k.begin(o, 5*time.Second, false, "Wait %s", r.name)
		if err := latch.Wait(ctx); k.end(err) && err == nil {
			w.opened(o, r)
		}
	}
}

// opened judges a Wait that has returned nil.
func (w *world) opened(o *object, r *round) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.open = true
	if r.begun >= o.total {
		return
	}
	w.notice()
	if l := o.lossSince(w.start); l != nil {
		w.report.Excused[l.why.name]++
		return
	}
	w.violate(o, "%s is open, and only %d of %d calls have begun to count down", r.name, r.begun, o.total)
}
