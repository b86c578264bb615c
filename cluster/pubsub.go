package cluster

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
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
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() == nil:
		n.sick.Store(time.Now().UnixNano())
		c.wantRefresh()
	}
	return nil, err
}

// Route returns the address of the master that serves the slot of a channel, as it is dialled, and "" if none does. With
// StreamTo and Refused it makes the Cluster a pubsub.Router. Shard channels have to be heard there; plain ones are heard
// everywhere, and by this rule spread over the masters.
func (c *Cluster) Route(channel string) (server string) {
	if n := c.table.Load().owner(Slot(channel)); n != nil {
		return n.addr
	}
	return ""
}

// StreamTo is Stream for the node at an address that Route has returned.
func (c *Cluster) StreamTo(ctx context.Context, server string) (*conn.Stream, error) {
	c.mu.Lock()
	n, closed := c.nodes[server], c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, &conn.Error{Op: "dial", Addr: server, Err: conn.ErrClosed}
	case n == nil:
		return nil, &conn.Error{Op: "dial", Addr: server, Err: errLeft}
	}
	return c.streamTo(ctx, n)
}

// Refused takes note of an error by which a node has refused a channel: where a MOVED leads, Route leads at once, and in any
// case the topology is read anew.
func (c *Cluster) Refused(server string, err error) {
	c.mu.Lock()
	n := c.nodes[server]
	c.mu.Unlock()
	if n != nil && errors.Is(err, os.ErrDeadlineExceeded) { // so that others are asked first
		n.sick.Store(time.Now().UnixNano())
	}
	c.wantRefresh()
	reply, _ := errors.AsType[resp.Error](err)
	r, ok := reply.Redirect()
	if n == nil || !ok || !errors.Is(reply, resp.ErrMoved) {
		return
	}
	if addr, ok := n.from.resolve(r.Host, r.Port, "", false); ok && addr != n.announced {
		c.moved(r.Slot, addr)
	}
}

// OnLoss has fn called each time that a connection to a node is lost, or slots have another owner, until stop is called. fn must
// not block and must not use the Cluster.
func (c *Cluster) OnLoss(fn func()) (stop func()) { return c.losses.Add(fn) }
