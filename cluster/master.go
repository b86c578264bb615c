package cluster

import (
	"context"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Node is one master, for commands about the node itself. A Node sends every command to its master,
// whatever the keys. The methods may be called by many goroutines at once.
type Node struct {
	c *Cluster
	n *node
}

// Addr returns the dialled address, host:port.
func (n Node) Addr() string { return n.n.addr }

// Do is Cluster.Do for this node.
func (n Node) Do(ctx context.Context, args ...any) (resp.Value, error) {
	return n.Send(ctx, resp.Cmd(args...))
}

// Send is Cluster.Send for this node. MOVED and ASK are returned as errors and not followed.
func (n Node) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	ctx, traced := n.c.start(ctx, cmd)
	k := call{c: n.c, ctx: ctx, name: commandName(&cmd), pinned: n.n}
	v, err := run(&k, target{node: n.n}, func(at target) (resp.Value, error) { return at.send(ctx, cmd) })
	traced.End(ctx, err)
	return v, err
}

// Trace returns Config.Node.Trace.
func (n Node) Trace() *conn.Trace { return n.c.Trace() }

// SendBatch sends commands over one connection to this node, next to each other and in order, and
// returns their replies in the same order. Error replies are values. SendBatch tries once. With an
// error, SendBatch returns the replies to the first commands in the list, up to the first unknown
// outcome.
func (n Node) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	return n.n.pool.SendBatch(ctx, cmds)
}

// With is conn.Pool.With for this node.
func (n Node) With(ctx context.Context, fn func(*conn.Conn) error) error {
	return n.n.pool.With(ctx, fn)
}
