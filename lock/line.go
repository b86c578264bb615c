package lock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Between processes, waiters stand in a line: a sorted set on the server with one place for each waiting process. A release
// tells the process at the head, and until the end of its turn no other process of the line takes the lock. all_line.lua
// has the rules. A process gets a place when the server refuses an acquire of a waiter, and keeps it for the waiters behind.
//
// Client and server may disagree about a place: the reply to an acquire that took it may be lost, and the server ends the place of a
// process that it has called. No wake-up is lost: a called process gets a message, looks, and if refused takes a new place.

// visitorsPlace is the common place of all visitors. An acquire with this place may use the visitors' turn.
const visitorsPlace = "*"

// position is a place in the server's line, and what an acquire or a release does with the place.
type position struct {
	place any // a string; an interface to pass it without an allocation
	stand any // one of the following
	notes int // the entry's notes, as the position was decided
}

// The values of position.stand.
const (
	standsNowhere = ""      // the place stays as it is
	standsJoin    = "join"  // a refusal puts the place in the line
	standsLeave   = "leave" // the same; a grant or a release ends the place
	standsMove    = "move"  // the same; a grant or a release moves the place to the end of the line
)

// tryPlaceSuffix ends the place of an acquire that does not wait. Such a place is never in the line.
const tryPlaceSuffix = ":0:0"

// waiterID returns the id in the process's place, and in the channel on which the place is called. Waiting readers, and waiting writers
// with PreferWriters, have a separate place, and so have those who wait for the same values of a group.
func (a *acquire) waiterID() string {
	switch c := a.client; {
	case a.target.values != "":
		id := c.id + ":" + a.target.values
		if a.state != nil {
			id += strings.TrimPrefix(a.state.id, c.id)
		}
		return id
	case a.target.kind.isRead():
		return c.readerID
	case a.announces():
		return c.writerID
	default:
		return c.id
	}
}

func (r *request) position() position {
	c := r.client
	switch {
	case r.target.Line == "":
		return position{place: "", stand: standsNowhere}
	case !r.waits && r.wrapDoer != nil:
		return position{place: visitorsPlace, stand: standsNowhere}
	case !r.waits && r.waiterID() != c.id:
		return position{place: r.waiterID() + tryPlaceSuffix, stand: standsNowhere}
	case !r.waits:
		return position{place: c.tryPlace, stand: standsNowhere}
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	e := c.table.entries[r.target.awaitedAs()]
	switch {
	case e == nil || e.place == nil:
		return position{place: c.table.places.Next(r.waiterID()), stand: standsJoin}
	case e.waiters.Len() > 1, e.waiters.Len() == 1 && &e.firstLocked().request != r:
		return position{e.place, standsMove, e.notes}
	}
	return position{e.place, standsLeave, e.notes}
}

// notePlace records the effect of an acquire of r with the position at, sent at start: granted, refused, or failed with err.
func (r *request) notePlace(at position, start clock.Instant, granted bool, err error) {
	if at.stand == standsNowhere {
		return
	}
	c, id := r.client, r.waiterID()
	var former any
	defer func() { c.leavePlace(r.target, former) }()
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	places, e := &c.table.places, c.table.entries[r.target.awaitedAs()]
	known := e != nil && e.place == at.place
	if places.Measure(start.Time, c.now().Time) && !granted && e != nil && e.place != nil {
		// The next place has a longer turn. The old one is called once more, or left at the end of the call.
		former, r.place, e.place = r.place, e.place, places.Next(id)
	}
	notRun := err != nil && !remote.Uncertain(err)
	switch {
	case at.stand == standsJoin && (granted || notRun): // the place is in no line
		if r.target.values == "" { // there may be any number of sets of values
			places.Put(id, at.place)
		}
	case granted && known && at.stand == standsLeave:
		e.place = nil
		if e.notes != at.notes {
			former = at.place // a request whose answer was noted meanwhile may have put the place back behind this grant
		}
	case known: // the waiters keep their place, as before or at the end of the line
		e.notes++
	case notRun:
	case !granted && e != nil && e.waiters.Len() > 0 && e.place == nil: // the waiters have no place, or have left theirs meanwhile
		e.place = at.place
	default: // r takes the place along to the line that it joins, or leaves it
		r.place = at.place
	}
}

// releasePosition returns the position for the release of l: the place that l has to leave or, so that other processes come first, the place
// of this process's waiters, which moves to the end of the line. While AtLeast keeps the lock taken nobody gives way.
func (l *Lease) releasePosition() position {
	c := l.client
	switch {
	case l.keepFor() > 0:
		return position{place: "", stand: standsNowhere}
	case l.place != nil:
		return position{place: l.place, stand: standsLeave}
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if e := c.table.entries[l.target.awaitedAs()]; e != nil && e.waiters.Len() > 0 && e.place != nil && l.target.kind.afterGrant == wakeNobody {
		return position{e.place, standsMove, e.notes}
	}
	return position{place: "", stand: standsNowhere}
}

// endStalePlace ends a place that a release of t has moved to the end of the line, if the last waiter left meanwhile.
func (l *Lease) endStalePlace(at position) {
	c, t := l.client, l.target
	if at.stand != standsMove {
		return
	}
	c.table.mu.Lock()
	e := c.table.entries[t.awaitedAs()]
	gone := e == nil || e.place != at.place
	if !gone {
		e.notes++
	}
	c.table.mu.Unlock()
	if gone {
		c.leavePlace(t, at.place)
	}
}

// leavePlace ends a place of t in the background. place may be nil.
func (c *Client) leavePlace(t *target, place any) {
	if place != nil {
		c.cleanup.Take(cleanup.NewJob(&leaving{client: c, target: t, place: place}, time.Now().Add(c.pace.Ceiling), false))
	}
}

// lineArgs returns args followed by the arguments with which a script that frees the lock calls the next in the line or queue, if any.
func (t *target) lineArgs(c *Client, args []any) []any {
	switch {
	case t.Line != "":
		return append(args, c.listenersKnown(t), c.id)
	case t.kind.queued():
		return append(args, c.listenersKnown(t) > 0)
	}
	return args
}

// channels returns those on which w is woken. In a line the server counts as visitors all listeners of the lock's channel that do not listen to
// the first channel, so a process subscribes in this order, and unsubscribes in the opposite order. On the last one it is called.
func (w *waiter) channels() []string {
	switch t := w.target; {
	case t.kind.queued():
		return []string{t.Channel + ":" + w.owner}
	case t.Line != "":
		return []string{t.Channel + ":lockwire", t.Channel, t.Channel + ":" + w.waiterID()}
	default:
		return []string{t.Channel}
	}
}

// The waiters of a fair lock stand in a queue on the server, each with an owner of its own. An Owner has one place in a queue,
// however many of its calls wait there.

// pass makes the server check a queue that is stuck although the lock is free, and reports whether r is now first. On
// an error r just waits.
func (r *request) pass(ctx context.Context) bool {
	c := r.client
	t := r.target
	v, err := t.kind.Pass.Run(remote.Dividing(ctx), c.server, t.baseKeys(), r.owner, c.publishing(t), c.listenersKnown(t) > 0)
	mine, failed := v.Bool()
	return err == nil && failed == nil && mine
}

// enterQueue registers r as possibly queued on the server, and reports false if the client is closed. Pair enterQueue
// with leaveQueue, and with c.waiters.Done when the call returns.
func (r *request) enterQueue() bool {
	c := r.client
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if c.table.closed {
		return false
	}
	c.waiters.Add(1)
	r.shared = make(chan struct{}, 1)
	r.state.waiting = append(r.state.waiting, waitingCall{target: r.target, shared: r.shared})
	return true
}

// leaveQueue ends the wait of r. The place in the server's queue then belongs to other waiting calls of the same
// owner for the same lock, if any. leaveQueue records in r.asked whether there may be a place.
func (r *request) leaveQueue() {
	c := r.client
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	r.state.waiting = slices.DeleteFunc(r.state.waiting, func(q waitingCall) bool {
		r.asked = r.asked || q.shared == r.shared && q.asked
		return q.shared == r.shared
	})
}
