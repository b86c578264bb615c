package lock

import (
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// note is the news of a lock since the last look.
type note struct {
	name     string
	first    time.Time // of the oldest news
	last     time.Time // of the latest news
	written  time.Time // the key has changed
	gone     time.Time // the key went
	how      EventKind // of gone, if known
	released bool      // an Unlock, or a message for waiters
	forced   bool
	putOff   bool // a look has found ends of holds, of which there were no news
}

type owners struct {
	shape  Shape
	owners []string
	former string    // who has released a lock that AtLeast still keeps taken; "" for any other lock
	at     time.Time // when the answer came
}

func ownersOf(l Listed) owners {
	o := owners{shape: l.Shape}
	for _, h := range l.Info.Holders {
		if former, ok := predecessor(h.Owner); ok {
			o.former = former
			continue
		}
		o.owners = append(o.owners, h.Owner)
	}
	return o
}

// noteLocked records a message.
func (w *watcher) noteLocked(channel, payload string, at time.Time) {
	name, sign := kinds.ReadSign(w.db, channel, payload)
	if sign == kinds.Nothing {
		return
	}
	n := w.notes[name]
	if n == nil {
		if sign == kinds.Freed {
			return // the news of the key would have come first: the name does not match
		}
		if len(w.notes) >= maxNotes {
			w.missed, w.stale = w.missed+1, true
			return
		}
		n = &note{name: name, first: at}
		w.notes[name], w.order = n, append(w.order, n)
	}
	n.last = at
	switch sign {
	case kinds.Written:
		n.written = at
	case kinds.Deleted:
		n.gone, n.how = at, ""
	case kinds.TimedOut:
		n.gone, n.how = at, EventExpired
	case kinds.Evicted:
		n.gone, n.how = at, EventForced
	case kinds.Released, kinds.Woken:
		n.released = true
		if twin := w.notes[kinds.Braced(name)]; twin != nil {
			twin.last, twin.released = at, true
		}
	case kinds.Freed:
		n.forced = true
	}
}

// taken is the news for a watcher to yield.
type taken struct {
	notes  []*note
	missed int
	lost   error
	failed error
	scan   bool
}

// take removes the news that have settled, up to maxLooks names.
func (w *watcher) take(now time.Time) (t taken) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.missed, t.lost, t.failed = w.missed, w.lost, w.failed
	w.missed, w.lost = 0, nil
	up := len(w.sources) > 0
	for _, s := range w.sources {
		up = up && s.state == sourceUp
	}
	if w.stale && up && !now.Before(w.nextScan) {
		w.stale, w.nextScan, t.scan = false, now.Add(watchPause), true
		if !w.began { // all is told as it is now, and earlier news are older than the answers
			clear(w.notes)
			w.order = nil
		}
		return t
	}
	if !w.began {
		return t
	}
	var rest []*note
	for _, n := range w.order {
		if len(t.notes) < maxLooks && n.settled(now) {
			t.notes = append(t.notes, n)
			delete(w.notes, n.name)
		} else {
			rest = append(rest, n)
		}
	}
	w.order = rest
	return t
}

// putOff reports whether the end of holds is for a later look to tell: an answer may come before the news of an end, which tell how the holds have
// ended, and would be taken for the end of others. Without such news the next look tells all the same.
func (w *watcher) putOff(n *note, before, after owners) bool {
	complete := w.partial() == nil
	stays := func(owner string) bool { return slices.Contains(after.owners, owner) }
	w.mu.Lock()
	defer w.mu.Unlock()
	switch later := w.notes[n.name]; {
	case n.putOff, n.ends(complete && len(after.owners) == 0), !slices.ContainsFunc(before.owners, func(owner string) bool { return !stays(owner) }):
		return false
	case later == nil:
		n.putOff, n.last = true, time.Now()
		w.notes[n.name], w.order = n, append(w.order, n)
	}
	return true
}

// upToDate reports whether all locks on the servers are known as of a time: all have been read, and all news until then are told.
func (w *watcher) upToDate(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.stale && (len(w.order) == 0 || w.order[0].first.After(at))
}

// waiting reports whether there are news that have not settled.
func (w *watcher) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.order) > 0
}

// settled reports whether no further news is expected. A lock that never rests is told all the same: soon where that is not in the
// middle of a release, and later anyway, since the releases of other clients may leave no news but that the key went.
func (n *note) settled(now time.Time) bool {
	age := now.Sub(n.first)
	if now.Sub(n.last) >= settleFor || age >= 10*settleFor {
		return true
	}
	amidRelease := !n.gone.IsZero() && !n.released && !n.written.After(n.gone)
	return age >= 5*settleFor && !amidRelease
}

// ends reports whether the news are the end of a hold. keyGoes: without news that the key went, a release was of one of several holds of an owner.
func (n *note) ends(keyGoes bool) bool {
	return !n.gone.IsZero() || n.forced || n.released && !keyGoes
}

// end returns how the holds in before have ended. complete: the server tells all.
func (n *note) end(before owners, complete bool) EventKind {
	switch {
	case n.forced:
		return EventForced
	case n.how != "":
		return n.how
	case n.released || n.gone.IsZero() || before.shape == ShapePlain || !complete:
		return EventReleased
	}
	return EventForced
}

// events returns the events of a lock whose owners have changed from before to after. complete: the server tells all.
func (n *note) events(before, after owners, complete bool) (list []Event) {
	add := func(what EventKind, shape Shape, owner string, at time.Time) {
		if at.IsZero() {
			at = n.last
		}
		list = append(list, Event{What: what, Name: n.name, Shape: shape, Owner: owner, At: at})
	}
	end := n.end(before, complete)
	var stayed []string
	for _, owner := range before.owners {
		// A key goes and comes with the same owner when its slot moves to another server, and late news are about an earlier owner.
		if slices.Contains(after.owners, owner) && (n.gone.IsZero() || !n.released || !n.gone.After(before.at)) {
			stayed = append(stayed, owner)
			continue
		}
		add(end, before.shape, owner, n.gone)
	}
	if len(before.owners) == 0 && (n.released || n.forced) { // the end of a hold that no look has seen
		shape, owner := Shape(""), ""
		if after.former != "" {
			shape, owner = after.shape, after.former
		}
		// Events of keys tell its begin too. Messages alone tell neither begin nor owner.
		short := !n.written.IsZero() && len(after.owners) == 0 && (!n.gone.IsZero() || after.former != before.former)
		if short {
			add(EventAcquired, shape, owner, n.written)
		}
		if short || !complete {
			add(end, shape, owner, n.gone)
		}
	}
	for _, owner := range after.owners {
		if !slices.Contains(stayed, owner) {
			add(EventAcquired, after.shape, owner, n.written)
		}
	}
	return list
}
