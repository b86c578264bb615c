package lock

import "github.com/lockwire/lockwire/pubsub"

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

// awaited reports whether other clients wait for the lock of a Redlock's part, after the reply count of its release.
func (b *table) awaited(t *target, count int64) bool {
	if count != 2 {
		return count == 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parked[t.watchKey()] == nil // otherwise the only listener is this client
}
