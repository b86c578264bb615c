package lock

import (
	"slices"
	"time"
)

// HeldLease describes a lease that this process holds.
type HeldLease struct {
	Name       string // of the lock
	Kind       string // see [Lease.Kind]
	Owner      string // see [Lease.Owner]
	Token      int64  // of a [Fenced] lock
	Since      time.Time
	Age        time.Duration // time since Since
	ValidUntil time.Time     // see [Lease.ValidUntil]
	Renewed    bool          // by the watchdog
}

// Held returns the leases of the client that are held now, the oldest first. The members of a [Multi] or [Redlock]
// count one by one. Held asks no server.
func (c *Client) Held() []HeldLease {
	c.table.mu.Lock()
	leases := slices.Collect(c.table.leases)
	c.table.mu.Unlock()
	held := make([]HeldLease, 0, len(leases))
	for _, l := range leases {
		if l.Err() == nil {
			held = append(held, HeldLease{
				Name: l.Name(), Kind: l.Kind(), Owner: l.Owner(), Token: l.token,
				Since: l.since.Time, Age: l.age(), ValidUntil: l.ValidUntil(), Renewed: l.renewed,
			})
		}
	}
	slices.SortStableFunc(held, func(a, b HeldLease) int { return a.Since.Compare(b.Since) })
	return held
}
