package lock

import "github.com/lockwire/lockwire/pubsub"

// A watch is parked when the last waiter of a line leaves: who waits for the same lock soon afterwards need not subscribe again,
// nor look a second time if nothing has been heard since before the first.

// parkedSweeps is how many sweeps a parked watch lasts.
const parkedSweeps = 5

// sighting is how much there was to be heard on a watch at some time.
type sighting struct {
	watch *pubsub.Watch
	count uint64
}

// holds reports whether there is no more to be heard, on the same watch.
func (s sighting) holds(watch *pubsub.Watch) bool {
	if s.watch != watch {
		return false
	}
	count, up := watch.Count()
	return up && count == s.count
}

// sightLocked takes note of what there is to be heard on the parked watch of a line, if there is one.
func (r *request) sightLocked(line *entry) {
	if line != nil && line.parked != nil {
		r.seen.watch = line.parked
		r.seen.count, _ = line.parked.Count()
	}
}

// parkLocked parks the watch of a line that nobody stands in any more.
func (c *Client) parkLocked(key entryKey, e *entry) {
	e.parked, e.idle = e.head.events, 0
	e.parked.Move(nil)
	if c.parked == nil {
		c.parked = make(map[entryKey]*entry)
	}
	c.parked[key] = e
}

// unpark returns the parked watch of the line that w is the first in, if there is one. It is the head's from then on.
func (c *Client) unpark(w *waiter) *pubsub.Watch {
	if w.entry == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	watch := w.entry.parked
	if watch != nil {
		w.entry.parked = nil
		delete(c.parked, w.target.key())
	}
	return watch
}

// sweepParked ends what has been parked for long, or all, and reports whether something is left.
func (c *Client) sweepParked(all bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.parked {
		if e.idle++; e.idle < parkedSweeps && !all {
			continue
		}
		e.parked.Close()
		e.parked = nil
		delete(c.parked, key)
		c.dropLocked(key, e)
	}
	if len(c.parked) == 0 {
		c.parked = nil // which may have been many
	}
	return c.parked != nil
}
