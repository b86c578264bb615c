package lock

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/lock/internal/turns"
	"github.com/lockwire/lockwire/pubsub"
)

// entry has the leases of a lock in this process (under target.heldAs), and its line (under target.awaitedAs). table.mu guards all fields
// except head.
//
// Invariants, while nobody has table.mu:
//
//   - An entry of the table has a lease, a waiter, a parked watch, or an acquire without an answer.
//   - Of the waiters from first to last only first has front set, and it alone uses head. Without waiters head is zero.
//   - A place belongs to waiters: the last to leave takes it along, see leavePlaceLocked.
type entry struct {
	leases      *Lease // list of held leases, linked by next and prev
	first, last *waiter
	head        head          // owned by the first waiter
	parked      *pubsub.Watch // the watch of an empty line
	idle        uint8         // sweeps since parking
	elsewhere   waiting       // the last release's answer about other processes
	setups      uint32        // waiters that wait for the setup of permits, too
	unanswered  int           // acquires without an answer that are not undone yet
	failure     error         // of the last attempt from the front, for waiters that have not asked; nil if it had an answer
	place       any           // this process's place in the server's line; nil for none
	seen        *seenHolder   // the last answer about a holder elsewhere; nil for none
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

// heldBy reports whether one of the leases belongs to state. The entry may be nil.
func (e *entry) heldBy(state *ownerState) bool {
	if e == nil {
		return false
	}
	for l := e.leases; l != nil; l = l.next {
		if l.state == state {
			return true
		}
	}
	return false
}

// table has the locks that a client holds or awaits.
type table struct {
	mu      sync.Mutex // guards the following, and what is said of single fields elsewhere; taken before any Lease's mu
	entries map[entryKey]*entry
	parked  map[entryKey]*entry // the entries with a parked watch
	spare   []*entry
	places  turns.Places // in lines of waiting processes
	closed  bool         // Close has begun: no lease is registered
}

func (b *table) all() []*Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(b.leases)
}

// leases yields all leases. The caller has mu.
func (b *table) leases(yield func(*Lease) bool) {
	for _, e := range b.entries {
		for l := e.leases; l != nil; l = l.next {
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
	if e.leases != nil || e.first != nil || e.parked != nil || e.unanswered > 0 {
		return
	}
	delete(b.entries, key)
	if len(b.spare) < spareEntries {
		*e = entry{}
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
	if l.next = e.leases; l.next != nil {
		l.next.prev = l
	}
	e.leases = l
	l.listed = true
	return true
}

// forget removes a lease that is no longer held from its entry.
func (b *table) forget(l *Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !l.listed {
		return
	}
	l.listed = false
	key := l.target.heldAs()
	e := b.entries[key]
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		e.leases = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.next, l.prev = nil, nil
	b.dropLocked(key, e)
}

// leasesNamed returns the leases on locks of the given names, of all kinds.
func (b *table) leasesNamed(names map[string]bool) (leases []*Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.leases {
		if names[l.target.name] {
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
	for l := e.leases; l != nil; l = l.next {
		if l != except && (owner == "" || l.owner == owner) {
			holds = append(holds, l)
		}
	}
	return holds
}

// holds reports whether owner has holds of a lock.
func (b *table) holds(key entryKey, owner string) bool { return len(b.holdsOf(key, owner, nil)) > 0 }

// otherLeases returns the leases of state's owner on t, or on values of t, without except.
func (b *table) otherLeases(t *target, state *ownerState, except *Lease) []*Lease {
	return slices.DeleteFunc(b.holdsOf(t.heldAs(), "", except), func(l *Lease) bool { return l.state != state || !t.overlaps(l.target) })
}

// leaseOfOtherHolds returns the lease in ms that the lock needs after the end of a hold of state's owner: the longest of
// the owner's leases without except; 0 for none.
func (b *table) leaseOfOtherHolds(t *target, state *ownerState, except *Lease) int64 {
	if state == nil {
		return 0
	}
	var longest time.Duration
	for _, l := range b.otherLeases(t, state, except) {
		longest = max(longest, l.neededFor())
	}
	return inMilliseconds(longest)
}

// inMilliseconds rounds d up.
func inMilliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// keptValues returns what others, further leases of an Owner, need of the values of t: for each value its hold count and lease
// in ms, all with spaces in between; 0 if they need nothing.
func (t *target) keptValues(others []*Lease) any {
	type kept struct {
		holds int
		left  time.Duration
	}
	all := make(map[string]kept)
	for _, l := range others {
		left := l.neededFor()
		if left == 0 {
			continue
		}
		for value := range strings.FieldsSeq(l.target.values) {
			k := all[value]
			all[value] = kept{k.holds + 1, max(k.left, left)}
		}
	}
	if len(all) == 0 {
		return 0
	}
	var text []string
	for value := range strings.FieldsSeq(t.values) {
		k := all[value]
		text = append(text, strconv.Itoa(k.holds), strconv.FormatInt(inMilliseconds(k.left), 10))
	}
	return strings.Join(text, " ")
}

// A watch is parked when the last waiter of a line leaves. A waiter for the same lock soon afterwards reuses the subscription.
// It also skips its second look if no event arrived since before its first look.

// parkedSweeps is the lifetime of a parked watch, in sweeps.
const parkedSweeps = 5

// parkLocked parks the watch of an empty line.
func (b *table) parkLocked(key entryKey, e *entry, watch *pubsub.Watch) {
	e.parked, e.idle = watch, 0
	e.parked.Move(nil)
	if b.parked == nil {
		b.parked = make(map[entryKey]*entry)
	}
	b.parked[key] = e
}

// unpark returns the parked watch of a line; nil for none. The caller owns the watch afterwards.
func (b *table) unpark(key entryKey) *pubsub.Watch {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.parked[key]
	if e == nil {
		return nil
	}
	watch := e.parked
	e.parked = nil
	delete(b.parked, key)
	b.dropLocked(key, e)
	return watch
}

// sweepParked closes watches parked for parkedSweeps sweeps, or all watches, and reports whether any are left.
func (b *table) sweepParked(all bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.parked {
		if e.idle++; e.idle < parkedSweeps && !all {
			continue
		}
		e.parked.Close()
		e.parked = nil
		delete(b.parked, key)
		b.dropLocked(key, e)
	}
	if len(b.parked) == 0 {
		b.parked = nil // frees a map that may have been large
	}
	return b.parked != nil
}

// watchKey names the parked watch of a Redlock among the entries of a client.
func (t *target) watchKey() entryKey { return entryKey{nil, t.name} }

// awaited reports whether other clients wait for the lock of a Redlock's part, after its release.
func (b *table) awaited(t *target, reply waiting) bool {
	if reply != nobodyWaits {
		return reply != nobodyListens
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parked[t.watchKey()] == nil // otherwise the only listener is this client
}
