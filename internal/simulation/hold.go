package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/simulation/redisson"
	"github.com/lockwire/lockwire/lock"
)

// hold is a worker's reliance on a lock: from Lock's return until the begin of the release, or the news of a loss.
type hold struct {
	worker  *worker
	object  *object
	beside  []*object // holds held together as a single hold
	lease   lease
	mode    string   // of a read-write lock
	values  []string // of a group
	fenced  bool
	changed bool          // from a write hold to a read hold, and perhaps not acknowledged
	shared  bool          // the owner may have further holds
	fixed   bool          // the lease is not renewed
	since   time.Time     // the grant was not requested before
	asked   time.Time     // the begin of the call
	from    time.Time     // the return of the call
	term    time.Duration // of the lease
	least   time.Duration // AtLeast
	most    time.Duration // AtMost

	// Guarded by the world's mu.
	over bool // the release has begun
	told bool // of the loss
}

// lease is a [lock.Lease], or Redisson's counterpart.
type lease interface {
	Owner() string
	Token() int64
	ValidUntil() time.Time
	Err() error
	Lost() <-chan struct{}
	Members() []*lock.Lease
	PermitIDs() []string
	Check(ctx context.Context) error
	Unlock(ctx context.Context) error
}

func (h *hold) String() string {
	what := "hold of " + h.lease.Owner()
	if h.mode != "" {
		what = h.mode + " " + what
	}
	return fmt.Sprintf("%s by %s since %.6f", what, h.worker.name, h.from.Sub(h.worker.process.world.start).Seconds())
}

// relies reports whether the holder relies on the lock.
func (h *hold) relies() bool {
	return !h.over && !h.worker.process.gone() && h.lease.Err() == nil
}

// excuse is why the hold need not be good, or nil.
func (h *hold) excuse() *exclusion {
	h.worker.process.world.notice()
	for _, o := range append(h.beside, h.object) {
		if l := o.lossSince(h.since); l != nil {
			return l.why
		}
	}
	if l := h.object.lastLossSince(h.since, h.changed); l != nil {
		return l.why
	}
	return nil
}

// owner is the owner without a writer's suffix.
func (h *hold) owner() string { return strings.TrimSuffix(h.lease.Owner(), ":write") }

// conflicts reports whether two holds of an object exclude each other.
func conflicts(a, b *hold) bool {
	switch a.object.family {
	case permits:
		return false
	case faster:
		return a.owner() != b.owner() && shareValue(a, b)
	case readWrite:
		return a.owner() != b.owner() && (a.mode != "read" || b.mode != "read")
	}
	return a.owner() != b.owner()
}

// acquired adds a hold just returned by a call, and judges the hold.
func (w *world) acquired(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.from = time.Now()
	w.report.Holds++
	o := h.object
	w.handedLocked(o, h)
	w.pruneLocked(o)
	if h.relies() {
		for _, other := range o.live {
			if conflicts(other, h) && other.relies() && !w.excusedLocked(other, h) {
				w.violate(o, "overlap: %v, and %v until %v", h, other, w.since(other.lease.ValidUntil()))
			}
		}
	}
	w.judgeKeptLocked(h)
	o.live = append(o.live, h)
	if o.family == permits {
		w.countPermitsLocked(o)
	}
	if h.fenced && h.relies() {
		w.judgeTokenLocked(h)
	}
	w.judgeLocked(h)
}

// excusedLocked reports whether either hold need not be good.
func (w *world) excusedLocked(holds ...*hold) bool {
	for _, h := range holds {
		if why := h.excuse(); why != nil {
			w.report.Excused[why.name]++
			return true
		}
	}
	return false
}

// countPermitsLocked fails if more permits are relied on than exist.
func (w *world) countPermitsLocked(o *object) {
	taken := 0
	var relied []*hold
	for _, h := range o.live {
		if h.relies() {
			taken += len(h.lease.PermitIDs())
			relied = append(relied, h)
		}
	}
	if taken > o.total && !w.excusedLocked(relied...) {
		w.violate(o, "%d permits of %d are had at once: %v", taken, o.total, relied)
	}
}

// judgeTokenLocked compares a fencing token with the largest earlier token.
func (w *world) judgeTokenLocked(h *hold) {
	last := h.object.last
	if last == nil {
		h.object.last = h
		return
	}
	before, now := last.lease.Token(), h.lease.Token()
	again := now == before && last.lease.Owner() == h.lease.Owner()
	if now <= before && h.worker.process.redisson != nil && h.object.lossSince(last.since) != nil {
		return // Redisson's counter begins again
	}
	if now < before && h.object.backAndForgotten(last.since, w.tokenLife > 0) {
		w.report.Excused[clockJumped.name]++
		return
	}
	if now <= before && !again && h.since.After(last.from) { // also where the server has forgotten all
		w.violate(h.object, "token %d of %v is not above %d of %v", now, h, before, last)
	}
	if now > before {
		h.object.last = h
	}
}

// releasing ends a holder's reliance on its hold.
func (w *world) releasing(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeLocked(h)
	h.over = true
}

// released judges the result of Unlock.
func (w *world) released(h *hold, validUntil time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepsLocked(h, err)
	if limitedBy(err) {
		h.object.ageLocked(h.lease.Owner(), time.Now().Add(h.term+w.slack))
	}
	if isOne(err, lock.ErrNotHeld, redisson.ErrNotOwner) && time.Now().Before(validUntil) && !h.told && h.excuse() == nil && !h.worker.process.closing() && !w.forgotSince(h.since) && !w.misledLocked() {
		w.violate(h.object, "%v: Unlock returned %v, %v before its lease ends", h, err, time.Until(validUntil))
	}
}

// pruneLocked forgets holds without a relying holder.
func (w *world) pruneLocked(o *object) {
	o.live = slices.DeleteFunc(o.live, func(h *hold) bool { return h.over || h.worker.process.gone() })
}

// judge looks at all holds.
func (w *world) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		w.pruneLocked(o)
		for _, h := range o.live {
			w.judgeLocked(h)
		}
	}
}

// judgeLocked fails if a hold that is not lost is missing on the server, and if a hold on the server is reported as lost. A client of Redisson is
// not told of a loss: its renewal succeeds as long as the lock has its name, also without the key of a reader's lease.
func (w *world) judgeLocked(h *hold) {
	if h.over || h.worker.process.gone() {
		return
	}
	err := h.lease.Err()
	if err == nil && h.told {
		w.violate(h.object, "%v: was lost and is held again", h)
	}
	if err != nil {
		w.tellLocked(h, err)
		return
	}
	w.judgeMostLocked(h)
	w.report.Looks++
	if w.serverHas(h) || h.lease.Err() != nil {
		return
	}
	w.notice()
	l := h.object.lastLossSince(h.since, h.changed)
	switch {
	case l == nil:
		w.violate(h.object, "%v: Err is nil until %v, and the server does not have it: %v", h, w.since(h.lease.ValidUntil()), w.state(h.object))
	case h.worker.process.redisson == nil && l.why != clockJumped && !(l.why == forced && h.shared) && l.happened.After(h.from) && time.Since(l.happened) > w.tellLimitLocked(h, l):
		w.violate(h.object, "%v: was lost at %v (%s), and its holder has not been told", h, w.since(l.happened), l.why.name)
	default:
		w.report.Excused[l.why.name]++
	}
}

const (
	// tellSlack is by how much the loss of a lease may be told later than the lease could have lasted.
	tellSlack = 2 * tick
	// tellForced is by when a holder is told of a forced unlock where nothing is wrong: a second, and as much again for a
	// subscription that begins or has to come back.
	tellForced = 2 * time.Second
)

// tellLimitLocked is how long a holder may not know of a loss.
func (w *world) tellLimitLocked(h *hold, l *loss) time.Duration {
	if l.why == forced && !w.calmSince.IsZero() && l.at.Sub(w.calmSince) > w.times.settle {
		return min(h.term, tellForced) + tellSlack
	}
	return h.term + tellSlack
}

// tellLocked notes the news of a loss, and judges its truth.
func (w *world) tellLocked(h *hold, err error) {
	if h.told {
		return
	}
	h.told = true
	lost, ok := errors.AsType[*lock.LostError](err)
	if !ok {
		return
	}
	w.report.Losses++
	early := time.Until(h.lease.ValidUntil())
	w.history.add(h.worker.name, h.object.name, "lost: %v: %v (%v before its end)", h, err, early)
	if early > 0 && lost.Reason != lock.ClientClosed && lost.Reason != lock.PartLost && h.excuse() == nil && !w.forgotSince(h.since) && !w.misledLocked() {
		w.violate(h.object, "%v: said to be lost, %v before its end: %v", h, early, err)
	}
	if calm := w.calmSince; !w.endedByMostLocked(h, lost) && !h.fixed && !calm.IsZero() && time.Since(calm) > w.times.renew && h.excuse() == nil && lost.Reason != lock.ClientClosed && !w.slowed(h) {
		w.violate(h.object, "%v: %v, and nothing is wrong for %v", h, err, time.Since(calm))
	}
}

// slowed reports whether a hold may be lost without a fault: replicas acknowledge too late for a short lease, or the slot is
// moving. A moving slot slows a read-write lock, whose keys are requested separately, and any lock in a slow network or between
// masters with different replicas.
func (w *world) slowed(h *hold) bool {
	const share = 8 // of a lease, for the acknowledgement of a renewal
	if lease := h.worker.process.lease; w.group != nil && lease < share*2*(w.latency+w.group.jitter) {
		return true
	}
	slow := h.object.family == readWrite || w.latency > latencies[1] || w.shards.changedSince(h.since)
	return slow && w.shards.moving(h.since, append(h.beside, h.object)...)
}

// serverHas reports whether the server has the hold.
func (w *world) serverHas(h *hold) bool {
	if w.five {
		return w.majorityHas(h)
	}
	switch o := h.object; o.family {
	case plain:
		return w.at(o.name).Do("GET", o.name) == any(h.lease.Owner())
	case permits:
		for _, id := range h.lease.PermitIDs() {
			if w.at(permitsKey(o.name)).Do("ZSCORE", permitsKey(o.name), unhex(id)) == nil {
				return false
			}
		}
		return true
	case faster:
		return hasValues(w.at(o.name), o.name, h.lease.Owner(), h.values)
	case readWrite:
		return w.at(o.name).Do("HEXISTS", o.name, h.lease.Owner()) == any(int64(1))
	default:
		owners := []string{h.lease.Owner()}
		for _, member := range h.lease.Members() {
			owners = append(owners, member.Owner())
		}
		return slices.ContainsFunc(owners, func(owner string) bool {
			return w.at(o.name).Do("HEXISTS", o.name, owner) == any(int64(1))
		})
	}
}

// state is the server's state of an object.
func (w *world) state(o *object) string {
	if w.five {
		return w.dump(o)
	}
	text := ""
	for _, key := range []string{o.name, permitsKey(o.name), braced("redisson_lock_queue", o.name)} {
		var value any
		switch w.at(key).Do("TYPE", key) {
		case fakeredis.Status("hash"):
			value = w.at(key).Do("HGETALL", key)
		case fakeredis.Status("string"):
			value = w.at(key).Do("GET", key)
		case fakeredis.Status("zset"):
			value = w.at(key).Do("ZRANGE", key, "0", "-1", "WITHSCORES")
		case fakeredis.Status("list"):
			value = w.at(key).Do("LRANGE", key, "0", "-1")
		default:
			continue
		}
		text += fmt.Sprintf("%s = %q for %v ms; ", key, value, w.at(key).Do("PTTL", key))
	}
	if w.shards != nil {
		text += w.shards.views()
	}
	return text
}
