package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Replicas reads from the replicas of a Cluster. It is a conn.Doer, but not a server for locks: package lock does not
// accept it, because a replica may not know yet who has a lock.
//
// # Stale replies
//
// A reply may be old, by as much as the replica is behind its master: usually by milliseconds, and without bound if the
// replica has lost its master and the server's replica-serve-stale-data is yes. So a read may not see the caller's own
// last write, and a second read may see an older state than the first. While a slot moves to another master, a replica
// may say of a key that it does not exist. Use the Cluster where one of these matters.
//
// # Routing
//
// A read goes to a random replica of the master that serves its first key. Replicas without an answer in the last seconds
// are left out. The read goes on to the master, within the same call and whatever the limits in Config, if no replica is
// left, or if the replica cannot be reached, is not ready or redirects the read. A read sent to a replica and not answered
// fails with conn.ErrUncertain, as any command does.
//
// All other commands go to the master at once: writes, commands of modules, scripts except EVAL_RO, EVALSHA_RO and
// FCALL_RO, and SCAN and its like, whose cursors are valid only on the server that returned them. SCRIPT LOAD goes where a
// read with the same routing key does. In a batch, all commands of a slot go to the master if one of them is not a read.
//
// A user with ACLs needs the permission for READONLY. Without it, and after any other permanent refusal, a read fails and
// does not go to the master.
//
// The connections to replicas are dialled on first use. Many goroutines may call the methods at once.
type Replicas struct{ c *Cluster }

// Replicas returns a client that reads from the Cluster's replicas. It needs no Close.
func (c *Cluster) Replicas() Replicas { return Replicas{c} }

// Trace returns Config.Node.Trace.
func (r Replicas) Trace() *conn.Trace { return r.c.Trace() }

// Do is Cluster.Do with a replica.
func (r Replicas) Do(ctx context.Context, args ...any) (resp.Value, error) {
	return r.Send(ctx, resp.Cmd(args...))
}

// Send is Cluster.Send with a replica.
func (r Replicas) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	if !isRead(&cmd) {
		return r.c.Send(ctx, cmd)
	}
	slot, err := routeOf(&cmd, 0)
	if err != nil {
		return resp.Value{}, err
	}
	at := targetsOfReplicas(rand.Int())(r.c.table.Load(), slot)
	return r.c.sendTo(ctx, at, cmd)
}

// SendBatch is Cluster.SendBatch with replicas, one of each master concerned, for the slots of which the batch only
// reads. A batch with WAIT goes to the master.
func (r Replicas) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 || waits(cmds) {
		return r.c.SendBatch(ctx, cmds)
	}
	return r.c.sendBatch(ctx, cmds, targetsOfReplicas(rand.Int()))
}

// MGet is Cluster.MGet with replicas.
func (r Replicas) MGet(ctx context.Context, keys []string) ([]resp.Value, error) {
	return multiKey{c: r.c, reader: targetsOfReplicas(rand.Int()), name: "MGET", words: keys, per: 1}.run(ctx)
}

// Exists is Cluster.Exists with replicas.
func (r Replicas) Exists(ctx context.Context, keys []string) (int64, error) {
	return multiKey{c: r.c, reader: targetsOfReplicas(rand.Int()), name: "EXISTS", words: keys, per: 1}.count(ctx)
}

// targetsOfReplicas returns a chooser of replicas. random selects the replica of each master.
func targetsOfReplicas(random int) chooser {
	return func(t *table, slot int) target {
		if n := t.replica(slot, random, time.Now()); n != nil {
			return target{node: n, slot: slot, read: true}
		}
		return target{node: t.owner(slot), slot: slot}
	}
}
