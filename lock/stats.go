package lock

import (
	"sync/atomic"
	"time"
)

// Stats is what a Client has done and is doing.
type Stats struct {
	Leases  int // held now
	Waiting int // calls of Lock that stand in line now

	Acquired uint64 // since New, as all that follow
	Released uint64
	Lost     uint64 // told, or found out by Unlock
	// Unacknowledged is how many locks were granted, and are among those Acquired, without a replica to acknowledge them,
	// though Config.Acks asks for that: the server had none.
	Unacknowledged uint64
	Renewals       uint64 // of one lock each, that succeeded
	RenewalErrors  uint64 // of one lock each, that had no answer or an error

	// Lateness is by how much the watchdog's last round ran late, and MaxLateness by how much the worst. One that comes
	// near the lease loses locks: the process is short of CPU, or was stopped.
	Lateness, MaxLateness time.Duration
}

type counters struct {
	waiting                                           atomic.Int64
	acquired, released, lost, renewals, renewalErrors atomic.Uint64
	unacknowledged                                    atomic.Uint64
	lateness, maxLateness                             atomic.Int64
}

// late takes note of a round of renewals that came d after it was due. Only the watchdog calls it.
func (n *counters) late(d time.Duration) {
	n.lateness.Store(int64(d))
	n.maxLateness.Store(max(n.maxLateness.Load(), int64(d)))
}

// Stats returns the client's counters, which may change while they are read.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	leases := 0
	for _, e := range c.entries {
		for l := e.leases; l != nil; l = l.next {
			leases++
		}
	}
	c.mu.Unlock()
	n := &c.counters
	return Stats{
		Leases:         leases,
		Waiting:        int(n.waiting.Load()),
		Acquired:       n.acquired.Load(),
		Released:       n.released.Load(),
		Lost:           n.lost.Load(),
		Unacknowledged: n.unacknowledged.Load(),
		Renewals:       n.renewals.Load(),
		RenewalErrors:  n.renewalErrors.Load(),
		Lateness:       time.Duration(n.lateness.Load()),
		MaxLateness:    time.Duration(n.maxLateness.Load()),
	}
}
