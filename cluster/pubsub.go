package cluster

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Stream opens a connection to one of the masters for subscriptions to channels and patterns, whose
// messages reach every node. The Stream ends when the node leaves the cluster. The caller closes
// the Stream; Close of the Cluster does not.
//
// Stream dials each master once at most, within ctx and Config.Node.DialTimeout for each dial.
func (c *Cluster) Stream(ctx context.Context) (*conn.Stream, error) {
	var last error = &conn.Error{Op: "dial", Err: unserved{anySlot}}
	for _, n := range c.table.Load().shuffled() {
		s, err := c.streamTo(ctx, n)
		if err == nil {
			return s, nil
		}
		if last = err; ctx.Err() != nil || c.isClosed() {
			return nil, last
		}
	}
	c.wantRefresh()
	return nil, last
}

// streamTo opens a stream to a node. A failure makes the node sick and requests a refresh.
func (c *Cluster) streamTo(ctx context.Context, n *node) (*conn.Stream, error) {
	s, err := n.pool.Stream(ctx)
	if err == nil {
		c.mu.Lock()
		err = n.addStreamLocked(s)
		c.mu.Unlock()
	}
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() == nil:
		n.sick.Store(time.Now().UnixNano())
		c.wantRefresh()
	}
	return nil, err
}

// Route returns the dialled address of the master that serves the slot of a channel, or "" for an
// unserved slot. Route, StreamTo and Refused make the Cluster a pubsub.Router. Messages to a shard
// channel are sent only by the returned server. Messages to a plain channel are sent by every node;
// Route spreads plain channels over the masters.
func (c *Cluster) Route(channel string) (server string) {
	if n := c.table.Load().owner(Slot(channel)); n != nil {
		return n.addr
	}
	return ""
}

// StreamTo is Stream for the node at an address returned by Route.
func (c *Cluster) StreamTo(ctx context.Context, server string) (*conn.Stream, error) {
	c.mu.Lock()
	n, closed := c.nodes[server], c.isClosed()
	c.mu.Unlock()
	switch {
	case closed:
		return nil, &conn.Error{Op: "dial", Addr: server, Err: conn.ErrClosed}
	case n == nil:
		return nil, &conn.Error{Op: "dial", Addr: server, Err: errLeft}
	}
	s, err := c.streamTo(ctx, n)
	if err == nil && !slices.Contains(c.table.Load().nodes, n) { // replaced during the dial
		_ = s.Close()
		return nil, &conn.Error{Op: "dial", Addr: server, Err: errReplaced}
	}
	return s, err
}

// Refused handles the error of a node that has refused a channel, or has ended a subscription. After
// a MOVED, Route returns the named node immediately. In any case the Cluster refreshes the topology;
// after the end of a subscription again and again, for some seconds.
func (c *Cluster) Refused(server string, err error) {
	reply, refused := errors.AsType[resp.Error](err)
	silent := errors.Is(err, os.ErrDeadlineExceeded)
	c.mu.Lock()
	n := c.nodes[server]
	if !refused && !silent { // a former master may have become a replica, which grants subscriptions: no error would come
		c.expected = time.Now().Add(expectTime)
	}
	c.mu.Unlock()
	if n != nil && silent { // ask healthy nodes first
		n.sick.Store(time.Now().UnixNano())
	}
	c.wantRefresh()
	r, ok := reply.Redirect()
	if n == nil || !ok || !errors.Is(reply, resp.ErrMoved) {
		return
	}
	if addr, ok := n.from.resolve(shardNode{host: r.Host, port: r.Port}, false); ok && addr != n.announced {
		c.moved(r.Slot, addr)
	}
}

// OnLoss registers fn to be called after each loss of a connection to a node, and after each change
// in the owners of slots, until stop is called. fn must not block, use the Cluster or call stop.
func (c *Cluster) OnLoss(fn func()) (stop func()) { return c.losses.Add(fn) }
