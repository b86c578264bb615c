package conn

import (
	"context"
	"time"
)

// Succession describes a master and the replicas that may take its place, as seen by the deciders: the sentinels, or
// the other nodes of a cluster. The master's own view does not count, because the master may have been replaced or
// cut off.
type Succession struct {
	// Master is the master's own id: run_id with sentinels, the node id in a cluster. "" if unknown.
	Master string
	Addr   string // address dialed for the master
	// Replicas is the number of replicas that could become the master now, to the knowledge of the deciders. Replicas
	// configured never to become the master count too.
	Replicas int
	// ReplicaAddrs are the announced addresses of these replicas. A cluster does not report them.
	ReplicaAddrs []string
	// Away is the number of other known replicas, which may return at any moment. With sentinels these are replicas
	// that are down, have not answered for some seconds, or have not been seen following the master yet. A cluster
	// does not report them.
	Away int
	// AwayAddrs are the announced addresses of the replicas in Away.
	AwayAddrs []string
	// Bare reports that the master is the first one known, and that no replica of it was ever reported.
	Bare  bool
	Asked time.Time // time before sending the question
	// Changes counts the changes of the Pool's master so far. Between two answers with the same number the Pool has had no
	// other master.
	Changes uint64
}

// Succession returns a sentinel's answer to a question sent at since or later; for a zero since the last answer is
// enough. key is ignored. Without Config.Sentinel the Succession only has Addr and Bare set. The answer of a sentinel does
// not count in these cases:
//
//   - it is without a majority, or has been back from a partition for less than two seconds
//   - it has been running for less than four seconds
//   - it is cut off from the master, or names another master than the Pool's
//
// Callers that wait at the same time share one question. The end of ctx ends the wait and not the question, so the next
// call may find the answer.
func (p *Pool) Succession(ctx context.Context, key string, since time.Time) (Succession, error) {
	if p.resolver == nil {
		return Succession{Addr: p.cfg.Addr, Bare: true}, nil
	}
	s, err := p.resolver.Succession(ctx, since, ctx.Value(EverySentinel) == true)
	return Succession(s), err
}
