package lock

import (
	"time"

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

// acks returns what an Acks demands of the replicas of a server.
func (n *nature) acks(a Acks, timeout time.Duration) remote.Acks {
	return remote.Acks{
		Off:     a == AcksOff || a == AcksAuto && n.failover == nil,
		Exact:   max(0, int(a)),
		Of:      a.of,
		Timeout: timeout,
	}
}

// notReplicated converts the error of an Acked for callers of this package.
func notReplicated(err error) error {
	if short, ok := err.(*remote.Shortage); ok {
		return (*NotReplicatedError)(short)
	}
	return err
}
