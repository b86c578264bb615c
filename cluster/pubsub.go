package cluster

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Stream opens a connection to one of the masters, for what is not one reply to one command: subscriptions to channels and
// patterns, which are heard on every node. It ends when that node leaves the cluster. The caller closes it; Close of the
// Cluster does not.
//
// It dials each master once at most, within ctx and Config.Node.DialTimeout for each.
func (c *Cluster) Stream(ctx context.Context) (*conn.Stream, error) {
	var last error = &conn.Error{Op: "dial", Err: unserved{anySlot}}
	tried := make(map[*node]bool)
	for range c.table.Load().nodes {
		n := c.table.Load().any()
		if n == nil || tried[n] {
			break
		}
		tried[n] = true
		s, err := c.streamTo(ctx, n)
		if err == nil {
			return s, nil
		}
		if last = err; ctx.Err() != nil || c.isClosed() {
			break
		}
	}
	c.wantRefresh()
	return nil, last
}

// streamTo opens a stream to a node, and takes note if that is not possible.
func (c *Cluster) streamTo(ctx context.Context, n *node) (*conn.Stream, error) {
	s, err := n.stream(ctx)
	if err != nil && ctx.Err() == nil {
		n.sick.Store(time.Now().UnixNano())
		c.wantRefresh()
	}
	return s, err
}
