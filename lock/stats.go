package lock

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"
)

// Stats has the counters of a Client. They count leases, those of the members of a [Multi] or [Redlock] one by one. Permits of a
// [Semaphore] and latches count only in Waiting.
type Stats struct {
	Leases  int // held now
	Waiting int // calls of Lock, Acquire and Wait waiting now

	Acquired uint64 // since New, like all following counters
	Released uint64
	Lost     uint64 // reported as lost, or found lost by Unlock; Released counts it too if Unlock returned nil, as after AtMost
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
	leases := slices.DeleteFunc(c.table.all(), func(l *Lease) bool { return l.now().phase == gone }) // by Close, which leaves it listed
	n := &c.counters
	return Stats{
		Leases:         len(leases),
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
	leases := c.table.all()
	held := make([]HeldLease, 0, len(leases))
	for _, l := range leases {
		if l.Err() == nil {
			held = append(held, HeldLease{
				Name: l.Name(), Kind: l.Kind(), Owner: l.Owner(), Token: l.token,
				Since: l.grantedAt.Time, Age: l.age(), ValidUntil: l.ValidUntil(), Renewed: l.renewed,
			})
		}
	}
	slices.SortStableFunc(held, func(a, b HeldLease) int { return a.Since.Compare(b.Since) })
	return held
}

// String describes the lease in a line for logs: the kind, the name, the owner, the age, and how long the lease is valid or
// why it is over.
func (l *Lease) String() string {
	text := l.Kind() + " lock " + strconv.Quote(l.Name()) + ", owner " + l.Owner() + ", "
	err := l.Err()
	if err == nil {
		text += "held for " + roughly(l.age()).String()
		if l.renewed {
			text += ", renewed"
		}
		return text + ", valid for " + roughly(time.Until(l.ValidUntil())).String()
	}
	if lost, ok := errors.AsType[*LostError](err); ok {
		return text + "lost: " + lost.Reason.String()
	}
	return text + "released"
}

// LogValue returns what String tells as attributes for [slog]: name, kind, owner, token if there is one, age, and state, which is
// "held", "lost" or "released". A held lease has valid_for and renewed, a lost one has reason.
func (l *Lease) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("name", l.Name()),
		slog.String("kind", l.Kind()),
		slog.String("owner", l.Owner()),
	}
	if token := l.Token(); token != 0 {
		attrs = append(attrs, slog.Int64("token", token))
	}
	attrs = append(attrs, slog.Duration("age", roughly(l.age())))
	err := l.Err()
	if err == nil {
		attrs = append(attrs, slog.String("state", "held"), slog.Duration("valid_for", roughly(time.Until(l.ValidUntil()))), slog.Bool("renewed", l.renewed))
	} else if lost, ok := errors.AsType[*LostError](err); ok {
		attrs = append(attrs, slog.String("state", "lost"), slog.String("reason", lost.Reason.String()))
	} else {
		attrs = append(attrs, slog.String("state", "released"))
	}
	return slog.GroupValue(attrs...)
}
