package cluster

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// minBlocked is the shortest wait at a node after which the limits of a call of Block begin anew.
const minBlocked = time.Second

// Block sends a command that may block, such as BLPOP, over an exclusive connection to the node that serves its first
// key, and returns its reply as Do does; see conn.Pool.Block. All keys of the command must be in one slot. Block follows
// redirections and repeats a command that certainly did not run, as Send does. So Block goes on at the new master if the
// node becomes a replica, and a timeout in the command then begins anew. After a wait
// that is longer than Config.Node.Retry.Budget, the limits on repetitions and redirections begin anew, too.
func (c *Cluster) Block(ctx context.Context, args ...any) (v resp.Value, err error) {
	cmd := resp.Cmd(args...)
	slot, err := routeOf(&cmd, 0)
	if err != nil {
		return resp.Value{}, err
	}
	ctx, traced := c.start(ctx, cmd)
	k := call{c: c, ctx: ctx, name: commandName(&cmd)}
	v, err = run(&k, c.targetOf(slot), func(at target) (v resp.Value, err error) {
		var sent time.Time
		err = at.lend(ctx, k.name, func(c *conn.Conn) (err error) {
			sent = time.Now()
			v, err = c.Send(ctx, cmd)
			return err
		})
		if !sent.IsZero() && time.Since(sent) > max(c.cfg.Node.Retry.Budget, minBlocked) {
			k.history, k.lastFailure, k.pauses = history{}, nil, 0 // the node served the slot: earlier failures are over
		}
		return v, err
	})
	traced.End(ctx, err)
	return v, err
}
