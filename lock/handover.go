package lock

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/course"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// A hand-over passes a lock to the first waiter of the same process by one script, in place of a release, a message and an
// acquire. Other processes get neither message nor lock meanwhile. So a series of hand-overs is limited in time, by
// Config.HandOverFor and a third of the lease, and in number unless no other client waits: see maxHandOversLocked.

// maxHandOversLocked returns the maximum number of hand-overs in a series; most is Config.HandOvers. Beside visitors the number of waiting
// callers is the limit: a Redisson client needs milliseconds to ask, in which a process could hand the lock over hundreds of times.
func (e *entry) maxHandOversLocked(most int) int {
	switch e.elsewhere {
	case nobodyWaits, nobodyListens:
		return math.MaxInt
	case visitorsWait:
		return min(e.waiters.Len(), most)
	}
	return most
}

// offer allows a hand-over to w, if w and its kind are eligible. A Redlock needs the answer of its server.
func (w *waiter) offer(ctx context.Context) {
	if w.wrapDoer == nil && w.target.kind.passesOn() && !w.announces() && w.state == nil && w.client.cfg.HandOvers >= 0 {
		w.claim.Offer(ctx.Done())
	}
}

// endOffer ends the effect of offer, and reports whether w has got the lock by a hand-over. endOffer waits for a hand-over
// under way, unless ctx or the client has ended: the hand-over is then undone, and the request must not change until
// then.
func (w *waiter) endOffer(ctx context.Context) (granted bool) {
	if w.claim.Withdraw() {
		return false
	}
	for !w.claim.Delivered() {
		select {
		case <-w.wake:
			continue
		case <-ctx.Done():
		case <-w.client.done:
		}
		if w.claim.Abandon() {
			return false
		}
	}
	return w.inherit()
}

// inherit takes the outcome of a hand-over or relay, and reports whether w has got a lease. If not, w has a reason to look.
func (w *waiter) inherit() (granted bool) {
	r, h, p := &w.request, &w.entry.head, w.claim.Take()
	switch {
	case p.granted:
		if p.owner != "" {
			r.owner = p.owner
		}
		r.asked, r.latch, r.lastMoment = true, p.latch, p.lastMoment
		r.why.failure = r.accept(p.grant)
		granted = r.why.failure == nil
		r.traced.note(func(end *AcquireEnd) { end.HandedOver = granted })
	case p.unknown:
		r.latch, r.lastMoment = p.latch, p.lastMoment
		r.undo(p.start, true)
	}
	heard := h.Woken()
	if granted && h.Begun() {
		w.planAfterGrant()
	}
	if heard || !granted {
		h.Wake()
	}
	return granted
}

// claimNext claims the first waiter in line, if l may be handed over, or relayed, to that waiter; nil otherwise.
func (l *Lease) claimNext(relay bool) *waiter {
	c := l.client
	if !l.target.kind.passesOn() || l.state != nil || l.course.MayRun() || l.whole.Load() != nil || l.keepFor() > 0 {
		return nil
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	e := c.table.entries[l.target.awaitedAs()]
	if e == nil || e.waiters.Len() == 0 || !l.series.MayGoOn(e.maxHandOversLocked(c.cfg.HandOvers), c.cfg.HandOverFor, l.term) {
		return nil
	}
	first := e.firstLocked()
	if relay && !first.renewed || !first.claim.Claim() {
		return nil
	}
	if first.claim.Over() { // the waiter is about to leave: hand over nothing
		first.deliver(new(handedOver))
		return nil
	}
	if e.place == nil {
		e.place, l.place = l.place, nil
	}
	return first
}

// handOver gives the lock to a claimed waiter and wakes the waiter. handOver returns the result that release would
// return.
func (l *Lease) handOver(ctx context.Context, to *waiter) (resp.Value, error) {
	c, t, next := l.client, l.target, &to.request
	p := &handedOver{grant: grant{start: c.now(), count: 1, series: l.series.Next()}, latch: newLatch(t), lastMoment: c.clocks.LastMoment(t.Name)}
	args := append(next.args(next.lease.Milliseconds(), l.owner, next.owner, course.LatchLife.Milliseconds()), p.lastMoment)
	v, err := t.kind.HandOver.Run(ctx, c.server, append(t.appendHandOverKeys(make([]string, 0, maxKeys)), l.course.Latch, p.latch), args...)
	switch {
	case err != nil:
		p.unknown = remote.Uncertain(err)
	case c.clocks.Late(t.Name, v):
		err = remote.ErrLate
	default:
		v, err = p.parse(v)
	}
	if p.granted {
		t.announceShorterLease(c, time.Until(l.serverEnd()), next.lease.Milliseconds(), t.Message) // Redisson's waiters, too
	}
	if !to.deliver(p) && (p.granted || p.unknown) {
		undone := *next
		undone.latch, undone.lastMoment = p.latch, p.lastMoment
		undone.undo(p.start, p.unknown)
	}
	return v, err
}

// parse parses the reply to handover, and returns the part of it that release would return.
func (p *handedOver) parse(v resp.Value) (_ resp.Value, err error) {
	if v.Kind() == resp.Array {
		if p.token, err = v.At(1).Int(); err != nil {
			err = fmt.Errorf("lock: unexpected reply to handover: %w", err)
		}
		v = v.At(0)
	}
	count, failed := v.Int()
	p.granted = err == nil && failed == nil && count == 1
	p.unknown = !p.granted && !v.IsNull()
	return v, err
}

// deliver passes the outcome to a claimed waiter, and reports false if the waiter has left.
func (w *waiter) deliver(p *handedOver) bool {
	if !w.claim.Deliver(p) {
		return false
	}
	netfail.Signal(w.wake)
	return true
}

// Relays: a lock renewed by the watchdog passes to the first waiter of the same process without a request to the server, if
// the waiter wants a renewed lock too. On the server the hold stays the same, with the same owner and lease. The last
// holder of a series releases the lock. Config.HandOverFor bounds the length of a series, and so the time without a
// decision by the server.

// relay passes the lock to the first waiter of this process, and reports whether the waiter has the lock. The hold must be certain, and
// no renewal under way: the lease is already released by its holder, so no further renewal begins.
func (l *Lease) relay() bool {
	if s := l.now(); !l.renewed || l.target.kind.Token != nil || s.lost != nil || s.failure != nil || s.renewal != nil {
		return false
	}
	to := l.claimNext(true)
	if to == nil {
		return false
	}
	l.client.watchdog.Remove(l)
	return l.notePassedOn(to.deliver(&handedOver{grant: grant{start: l.start, count: 1, series: l.series.Next()}, granted: true, owner: l.owner}))
}
