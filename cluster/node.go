package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// node is a node of the cluster with the connections to it. A connection is dialled on first use.
type node struct {
	// Constant.
	announced string // host:port as announced by the cluster
	from      origin // announced, parsed
	addr      string // to dial
	pool      *conn.Pool
	// dialReader makes a pool whose connections read from a replica.
	dialReader func() (*conn.Pool, error)

	sick   atomic.Int64 // time of the last missing answer, in Unix ns; 0 after an answer
	hinted atomic.Int64 // time of the last redirection to the node, in Unix ns

	// Guarded by the Cluster's mu.
	retired  time.Time          // time of leaving the cluster
	replaced bool               // another master serves its slots: the node became a replica or does not answer
	examined bool               // examine has looked at the node
	why      error              // reason for leaving; constant once retired
	titles   map[*string]func() // the names added by Introduce, and how to remove them

	mu      sync.Mutex // guards the following
	gone    error      // reason for leaving; nil for a member
	streams []*conn.Stream
	reader  *conn.Pool // of dialReader; nil before the first use
	closed  bool
}

// leftError is the reason for closing the connections to a node after the Cluster stopped using the
// node.
type leftError string

func (e leftError) Error() string { return string(e) }

const (
	errLeft     leftError = "the node has left the cluster"
	errReplaced leftError = "another node has become the master of its slots"
	errRedialed leftError = "the node is connected to anew, as it has changed"
)

// hasLeft reports whether err means that the Cluster has stopped using a node.
func hasLeft(err error) bool {
	_, ok := errors.AsType[leftError](err)
	return ok
}

// stream opens a connection that ends when the node leaves the cluster, because a listener would
// receive nothing afterwards.
func (n *node) stream(ctx context.Context) (*conn.Stream, error) {
	s, err := n.pool.Stream(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone != nil {
		_ = s.Close()
		return nil, &conn.Error{Op: "dial", Addr: n.addr, Err: n.gone}
	}
	n.streams = slices.DeleteFunc(n.streams, func(s *conn.Stream) bool { return s.Err() != nil })
	n.streams = append(n.streams, s)
	return s, nil
}

// leave closes the streams of a node that has left the cluster.
func (n *node) leave(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = why
	for _, s := range n.streams {
		_ = s.CloseFor(why)
	}
	n.streams = nil
}

// sickTime is the time during which a node without an answer is asked last.
const sickTime = 5 * time.Second

func (n *node) isSick(now time.Time) bool {
	at := n.sick.Load()
	return at != 0 && now.UnixNano()-at < int64(sickTime)
}

// idle reports whether no caller waits for an answer of the node.
func (n *node) idle() bool {
	for _, p := range n.pools() {
		if s := p.Stats(); s.InFlight != 0 || s.Lent != 0 || s.Waiting != 0 {
			return false
		}
	}
	return true
}

// table is the topology in terms of nodes. A table is immutable: a change makes a new table.
type table struct {
	nodes    []*node       // nodes that serve slots, or did when the table was made
	replicas [][]*node     // of each of the first nodes
	owners   [Slots]uint16 // 1 + index in nodes; 0 for an unserved slot
	served   int           // number of served slots
}

// owner returns the node that serves a slot, or nil for an unserved slot. For anySlot owner returns
// a random node that serves slots.
func (t *table) owner(slot int) *node {
	if slot == anySlot {
		return t.any()
	}
	if at := t.owners[slot]; at > 0 {
		return t.nodes[at-1]
	}
	return nil
}

// with returns a table in which n serves slot.
func (t *table) with(slot int, n *node) *table {
	next := *t
	at := slices.Index(t.nodes, n)
	if at < 0 {
		at = len(t.nodes)
		next.nodes = append(slices.Clip(t.nodes), n)
	}
	if next.owners[slot] == 0 {
		next.served++
	}
	next.owners[slot] = uint16(at + 1)
	return &next
}

// replaced returns a table in which n takes the place of old.
func (t *table) replaced(old, n *node) *table {
	next := *t
	next.nodes = slices.Clone(t.nodes)
	for i := range next.nodes {
		if next.nodes[i] == old {
			next.nodes[i] = n
		}
	}
	return &next
}

// masters returns the nodes that serve slots.
func (t *table) masters() []*node {
	serves := make([]bool, len(t.nodes))
	for _, at := range t.owners {
		if at > 0 {
			serves[at-1] = true
		}
	}
	var list []*node
	for i, n := range t.nodes {
		if serves[i] {
			list = append(list, n)
		}
	}
	return list
}

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
	if n.Trace() != nil {
		return n.sendTraced(ctx, cmd)
	}
	return n.send(ctx, cmd)
}

// Trace returns Config.Node.Trace.
func (n Node) Trace() *conn.Trace { return n.c.Trace() }

// sendTraced is send as a call for the Trace.
func (n Node) sendTraced(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	ctx, traced := conn.StartCommands(ctx, n, []resp.Command{cmd}, false)
	v, err := n.send(ctx, cmd)
	traced.End(ctx, err)
	return v, err
}

func (n Node) send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	k := call{c: n.c, ctx: ctx, name: commandName(&cmd), slot: anySlot, pinned: n.n}
	for at := (target{node: n.n}); ; {
		v, err := at.send(ctx, cmd)
		if err == nil {
			return v, nil
		}
		if at, err = k.next(at, err); err != nil {
			return resp.Value{}, err
		}
	}
}

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
