package lock

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/lockwire/lockwire/lock/internal/places"
	"github.com/lockwire/lockwire/pubsub"
)

// entry has the leases of a lock in this process (under target.heldAs), and its line (under target.awaitedAs). table.mu guards all fields
// except head.
//
// Invariants, while nobody has table.mu:
//
//   - An entry of the table has a lease, a waiter, or an acquire without an answer, or the watch of its line is parked.
//   - Of the waiters only the first one has front set, and it alone uses head. Without waiters head is zero.
//   - A place belongs to waiters: the last to leave takes it along, see leave.
type entry struct {
	leases     []*Lease      // held, each with its index in Lease.at
	waiters    list.List     // the line, of *waiter
	setups     int           // waiters that wait for the setup of permits, too
	head       head          // owned by the first waiter
	elsewhere  waiting       // the last release's answer about other processes
	granted    chan struct{} // closed at the next grant to a caller of this process, which all waiters may share; nil if nobody waits for that
	unanswered int           // acquires without an answer that are not undone yet
	failure    error         // of the last attempt from the front, for waiters that have not asked; nil if it had an answer
	place      any           // this process's place in the server's line; nil for none
	notes      int           // answers to requests with a place that stayed in the line, or moved
	seen       *seenHolder   // the last answer about a holder elsewhere; nil for none
}

// waiting is the reply to a release that frees the lock: whether other clients wait for the lock.
type waiting int64

const (
	someoneWaits  waiting = 1 // another client waits, or the server does not know
	nobodyWaits   waiting = 2 // at most one client listens
	nobodyListens waiting = 3
	visitorsWait  waiting = 4 // visitors wait, and perhaps other clients
)

// seenHolder is the server's answer to the question for the holder of a lock.
type seenHolder struct {
	err     error  // there is no answer
	owner   string // "" if nobody has the lock
	process string // "" if unknown
	at      time.Time
	left    time.Duration // of its lease; 0 if unknown, negative for a lease without an end
}

// firstLocked returns the first waiter; nil without one.
func (e *entry) firstLocked() *waiter {
	if first := e.waiters.Front(); first != nil {
		return first.Value.(*waiter)
	}
	return nil
}

// grantedLocked returns the channel that the next grant closes. A waiter takes it before a look, and so misses no grant during the look. A grant
// wakes only who sleeps: with a signal for each waiter, thousands of readers that enter together would make millions.
func (e *entry) grantedLocked() <-chan struct{} {
	if e.granted == nil {
		e.granted = make(chan struct{})
	}
	return e.granted
}

// heldBy reports whether one of the leases belongs to state. The entry may be nil.
func (e *entry) heldBy(state *ownerState) bool {
	return e != nil && slices.ContainsFunc(e.leases, func(l *Lease) bool { return l.state == state })
}

// table has the locks that a client holds or awaits.
type table struct {
	mu      sync.Mutex // guards the following, and what is said of single fields elsewhere; taken before any Lease's mu
	entries map[entryKey]*entry
	parked  map[entryKey]parkedWatch
	spare   []*entry
	places  places.Places // in lines of waiting processes
	closed  bool          // Close has begun: no lease is registered
}

func (b *table) all() []*Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(b.leases)
}

// leases yields all leases. The caller has mu.
func (b *table) leases(yield func(*Lease) bool) {
	for _, e := range b.entries {
		for _, l := range e.leases {
			if !yield(l) {
				return
			}
		}
	}
}

func (b *table) entryLocked(key entryKey) *entry {
	e := b.entries[key]
	if e == nil {
		if n := len(b.spare); n > 0 {
			e, b.spare = b.spare[n-1], b.spare[:n-1]
		} else {
			e = new(entry)
		}
		b.entries[key] = e
	}
	return e
}

// spareEntries limits the entries kept for reuse.
const spareEntries = 64

func (b *table) dropLocked(key entryKey, e *entry) {
	if len(e.leases)+e.waiters.Len()+e.unanswered > 0 || b.parked[key].watch != nil {
		return
	}
	delete(b.entries, key)
	if len(b.spare) < spareEntries && cap(e.leases) <= spareEntries {
		*e = entry{leases: e.leases} // empty, for its memory
		b.spare = append(b.spare, e)
	}
}

// noteUnanswered adds n to the number of acquires without an answer.
func (b *table) noteUnanswered(key entryKey, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entryLocked(key)
	e.unanswered += n
	b.dropLocked(key, e)
}

// register enters a lease just granted by the server, and reports false if the client is closed.
func (b *table) register(l *Lease) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	e := b.entryLocked(l.target.heldAs())
	l.at = len(e.leases)
	e.leases = append(e.leases, l)
	return true
}

// forget removes a lease that is no longer held from its entry, if it is there.
func (b *table) forget(l *Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := l.target.heldAs()
	if e := b.entries[key]; e != nil {
		if n := len(e.leases) - 1; l.at <= n && e.leases[l.at] == l {
			last := e.leases[n]
			e.leases[l.at], last.at = last, l.at
			e.leases[n], e.leases = nil, e.leases[:n]
			b.dropLocked(key, e)
		}
	}
}

// leasesNamed returns the leases on locks of the given names, of all kinds.
func (b *table) leasesNamed(names map[string]bool) (leases []*Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.leases {
		if names[l.target.Name] {
			leases = append(leases, l)
		}
	}
	return leases
}

// holdsOf returns the leases of owner on a lock, without except; of every owner if owner is "".
func (b *table) holdsOf(key entryKey, owner string, except *Lease) []*Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[key]
	if e == nil {
		return nil
	}
	var holds []*Lease
	for _, l := range e.leases {
		if l != except && (owner == "" || l.owner == owner) {
			holds = append(holds, l)
		}
	}
	return holds
}

// holds reports whether owner has holds of a lock.
func (b *table) holds(key entryKey, owner string) bool { return len(b.holdsOf(key, owner, nil)) > 0 }

// A watch is parked when the last waiter of a line leaves. A waiter for the same lock soon afterwards reuses the subscription.
// It also skips its second look if no event arrived since before its first look.

// parkedSweeps is the lifetime of a parked watch, in sweeps.
const parkedSweeps = 5

type parkedWatch struct {
	watch *pubsub.Watch
	idle  int // sweeps since parking
}

// parkLocked parks the watch of an empty line.
func (b *table) parkLocked(key entryKey, watch *pubsub.Watch) {
	watch.Move(nil)
	if b.parked == nil {
		b.parked = make(map[entryKey]parkedWatch)
	}
	b.parked[key] = parkedWatch{watch: watch}
}

// unpark returns the parked watch of a line; nil for none. The caller owns the watch afterwards.
func (b *table) unpark(key entryKey) *pubsub.Watch {
	b.mu.Lock()
	defer b.mu.Unlock()
	watch := b.parked[key].watch
	delete(b.parked, key)
	return watch
}

// markLocked returns the mark of the parked watch of a line.
func (b *table) markLocked(key entryKey) (mark watchMark) {
	if mark.watch = b.parked[key].watch; mark.watch != nil {
		mark.events, _ = mark.watch.Count()
	}
	return mark
}

// sweepParked closes watches parked for parkedSweeps sweeps, or all watches, and reports whether any are left.
func (b *table) sweepParked(all bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, p := range b.parked {
		if p.idle++; p.idle < parkedSweeps && !all {
			b.parked[key] = p
			continue
		}
		p.watch.Close()
		delete(b.parked, key)
		if e := b.entries[key]; e != nil {
			b.dropLocked(key, e)
		}
	}
	if len(b.parked) == 0 {
		b.parked = nil // frees a map that may have been large
	}
	return b.parked != nil
}
