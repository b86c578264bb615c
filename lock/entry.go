package lock

import (
	"time"

	"github.com/lockwire/lockwire/pubsub"
)

// entryKey names a lock within one client.
type entryKey struct {
	kind *kind
	name string
}

// key names the lock among the awaited locks.
func (t *target) key() entryKey { return entryKey{t.kind, t.name} }

// hold names the lock among the held locks. Kinds that share one lock on the server share the name.
func (t *target) hold() entryKey {
	if t.kind.storedAs != nil {
		return entryKey{t.kind.storedAs, t.name}
	}
	return t.key()
}

// entry is a lock held in this process, by hold, or awaited, by key. Client.mu guards all fields except head.
type entry struct {
	leases      *Lease // list of held leases, linked by next and prev
	first, last *waiter
	head        head          // owned by the first waiter
	parked      *pubsub.Watch // the watch of an empty line
	idle        uint8         // sweeps since parking
	alone       bool          // no other client waited at the last release
	place       any           // this process's place in the server's line; nil for none
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

func (c *Client) entryLocked(key entryKey) *entry {
	e := c.entries[key]
	if e == nil {
		if n := len(c.spare); n > 0 {
			e, c.spare = c.spare[n-1], c.spare[:n-1]
		} else {
			e = new(entry)
		}
		c.entries[key] = e
	}
	return e
}

// spareEntries limits the entries kept for reuse.
const spareEntries = 64

func (c *Client) dropLocked(key entryKey, e *entry) {
	if e.leases != nil || e.first != nil || e.parked != nil {
		return
	}
	delete(c.entries, key)
	if len(c.spare) < spareEntries {
		*e = entry{}
		c.spare = append(c.spare, e)
	}
}

// register enters a lease just granted by the server, and reports false if the client is closed.
func (c *Client) register(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	e := c.entryLocked(l.target.hold())
	if l.next = e.leases; l.next != nil {
		l.next.prev = l
	}
	e.leases = l
	l.listed = true
	return true
}

// forget removes a lease that is no longer held from its entry.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.listed {
		return
	}
	l.listed = false
	key := l.target.hold()
	e := c.entries[key]
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		e.leases = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.next, l.prev = nil, nil
	c.dropLocked(key, e)
}

// holdsOf returns the leases of owner on a lock, without except; of every owner if owner is "".
func (c *Client) holdsOf(key entryKey, owner string, except *Lease) []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
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

// restingLease returns the lease in ms that the lock should have after the end of a hold of state's owner: the
// longest remaining lease of the owner's other holds, or 0 without other holds.
func (c *Client) restingLease(key entryKey, state *ownerState, owner string, except *Lease) int64 {
	if state == nil {
		return 0
	}
	var longest time.Duration
	for _, l := range c.holdsOf(key, owner, except) {
		longest = max(longest, l.leaseLeft())
	}
	return int64((longest + time.Millisecond - 1) / time.Millisecond)
}
