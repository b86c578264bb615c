package lock

import (
	"context"

	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Acks is the number of replicas that must acknowledge a lock before Lock returns. A positive number is exact, however many
// replicas the server has.
type Acks int

const (
	// AcksAuto requires all replicas that could replace the server, in a cluster and under Sentinel, and none for a server
	// configured by its address. A replica that is down does not count.
	AcksAuto Acks = 0
	// AcksOff requires no acknowledgement.
	AcksOff Acks = -1
	// AcksMajority requires enough replicas for a majority, together with the server, of all nodes that have not failed.
	AcksMajority Acks = -2
)

// of returns the required number of acknowledgements from n replicas.
func (a Acks) of(n int) int {
	switch a {
	case AcksOff:
		return 0
	case AcksAuto:
		return n
	case AcksMajority:
		return (n + 1) / 2
	}
	return int(a)
}

// acks returns what a Config demands of the replicas of a server.
func (n *nature) acks(cfg *Config) remote.Acks {
	return remote.Acks{
		Off:     cfg.Acks == AcksOff || cfg.Acks == AcksAuto && n.failover == nil,
		Exact:   max(0, int(cfg.Acks)),
		Of:      cfg.Acks.of,
		Timeout: cfg.AckTimeout,
	}
}

// acking returns the Acked for sending r, or nil if r needs no acknowledgement, for example because it changes nothing.
func (r *request) acking(ctx context.Context) (*remote.Acked, error) {
	c := r.client
	if !c.replicas.On() || r.target.kind.Undo == nil {
		return nil, nil
	}
	leaves, _ := ctx.Deadline()
	ack, err := c.replicas.New(ctx, r.target.name, leaves)
	return ack, notReplicated(err)
}

// acknowledged reports whether enough replicas have the grant, and sets err if not. ack may be nil.
func (r *request) acknowledged(ctx context.Context, ack *remote.Acked, err *error) bool {
	c := r.client
	if ack == nil {
		return true
	}
	bare, failed := ack.Confirm(ctx)
	if bare {
		c.counters.unacknowledged.Add(1)
		r.traced.bare()
	}
	*err = notReplicated(failed)
	return failed == nil
}

// notReplicated converts the error of an Acked for callers of this package.
func notReplicated(err error) error {
	if short, ok := err.(*remote.Shortage); ok {
		return (*NotReplicatedError)(short)
	}
	return err
}
