package lock

import "time"

// Stats has the counters of a Client.
type Stats struct {
	Leases  int // held now
	Waiting int // calls of Lock waiting now

	Acquired uint64 // since New, like all following counters
	Released uint64
	Lost     uint64 // reported as lost, or found lost by Unlock
	// Unacknowledged is the number of acquired locks without any acknowledgement by a replica although Config.Acks is set,
	// because the server had no replica. Acquired includes them.
	Unacknowledged uint64
	Renewals       uint64 // successful renewals, counted per lock
	RenewalErrors  uint64 // renewals with an error or without an answer, counted per lock

	// Lateness is the delay of the watchdog's last round, and MaxLateness the longest delay so far. A delay close to the
	// lease loses locks; its causes are a lack of CPU or a stopped process.
	Lateness, MaxLateness time.Duration
}

// Stats returns the client's counters. The counters are not read at a single instant.
func (c *Client) Stats() Stats {
	c.table.mu.Lock()
	leases := 0
	for range c.table.leases {
		leases++
	}
	c.table.mu.Unlock()
	n := &c.counters
	return Stats{
		Leases:         leases,
		Waiting:        int(n.waiting.Load()),
		Acquired:       n.acquired.Load(),
		Released:       n.released.Load(),
		Lost:           n.lost.Load(),
		Unacknowledged: n.unacknowledged.Load(),
		Renewals:       c.watchdog.Renewals.Load(),
		RenewalErrors:  c.watchdog.Errors.Load(),
		Lateness:       time.Duration(c.watchdog.Lateness.Load()),
		MaxLateness:    time.Duration(c.watchdog.MaxLateness.Load()),
	}
}
