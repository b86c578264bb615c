package lock

import "github.com/lockwire/lockwire/pubsub"

// A watch is parked when the last waiter of a line leaves. A waiter for the same lock soon afterwards reuses the subscription.
// It also skips its second look if no event arrived since before its first look.

// parkedSweeps is the lifetime of a parked watch, in sweeps.
const parkedSweeps = 5

// sighting is the number of events on a watch at some time.
type sighting struct {
	watch *pubsub.Watch
	count uint64
}

// holds reports whether the watch is the same, is subscribed, and has no new events.
func (s sighting) holds(watch *pubsub.Watch) bool {
	if s.watch != watch {
		return false
	}
	count, up := watch.Count()
	return up && count == s.count
}

// sightLocked records the number of events on the parked watch of a line, if any.
func (r *request) sightLocked(line *entry) {
	if line != nil && line.parked != nil {
		r.seen.watch = line.parked
		r.seen.count, _ = line.parked.Count()
	}
}

// parkLocked parks the watch of an empty line.
func (c *Client) parkLocked(key entryKey, e *entry, watch *pubsub.Watch) {
	e.parked, e.idle = watch, 0
	e.parked.Move(nil)
	if c.parked == nil {
		c.parked = make(map[entryKey]*entry)
	}
	c.parked[key] = e
}

// unpark returns the parked watch of a line; nil for none. The caller owns the watch afterwards.
func (c *Client) unpark(key entryKey) *pubsub.Watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.parked[key]
	if e == nil {
		return nil
	}
	watch := e.parked
	e.parked = nil
	delete(c.parked, key)
	c.dropLocked(key, e)
	return watch
}

// sweepParked closes watches parked for parkedSweeps sweeps, or all watches, and reports whether any are left.
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
		c.parked = nil // frees a map that may have been large
	}
	return c.parked != nil
}
