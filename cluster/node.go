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

// node is a node of the cluster and the connections to it. Nothing is dialled before it is used.
type node struct {
	// Constant.
	announced string // host:port as the cluster has it
	from      origin // the same
	addr      string // to dial
	pool      *conn.Pool

	sick   atomic.Int64 // when it last failed to answer, in Unix ns; 0 since it did
	hinted atomic.Int64 // when a redirection last named it, in Unix ns

	// Guarded by the Cluster's mu.
	retired  time.Time // when it left the cluster
	replaced bool      // by another master: it has become a replica, or does not answer
	examined bool      // for whether it answers
	why      error     // it left; constant once retired

	mu      sync.Mutex // guards the following
	gone    error      // why it left; nil: it has not
	streams []*conn.Stream
}

// leftError is why the connections to a node end that the Cluster has no more use for.
type leftError string

func (e leftError) Error() string { return string(e) }

const (
	errLeft     leftError = "the node has left the cluster"
	errReplaced leftError = "another node has become the master of its slots"
	errRedialed leftError = "the node is connected to anew, as it has changed"
)

// hasLeft reports whether err says that a node is no longer the one to send to.
func hasLeft(err error) bool {
	_, ok := errors.AsType[leftError](err)
	return ok
}

// stream opens a connection that ends when the node leaves the cluster: whoever listens on it would hear nothing any more.
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

// leave closes the streams, now that the node is no longer part of the cluster.
func (n *node) leave(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = why
	for _, s := range n.streams {
		_ = s.CloseFor(why)
	}
	n.streams = nil
}

// sickTime is how long a node that has not answered is asked after others.
const sickTime = 5 * time.Second

func (n *node) isSick(now time.Time) bool {
	at := n.sick.Load()
	return at != 0 && now.UnixNano()-at < int64(sickTime)
}

// idle reports whether nobody waits for an answer of the node any more.
func (n *node) idle() bool {
	s := n.pool.Stats()
	return s.InFlight == 0 && s.Lent == 0 && s.Waiting == 0
}

// table is the topology in terms of nodes. It does not change: another takes its place.
type table struct {
	nodes  []*node       // that serve slots, or did when the table was made
	owners [Slots]uint16 // 1 + place in nodes; 0: nobody
	served int           // slots
}

// owner returns the node that serves a slot; any node that serves one for anySlot; nil if there is none.
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

// replaced returns a table in which n has the place of old.
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

// Node is one master, for what concerns the node and not a key: the commands given to it are sent there, whatever their
// keys. Its methods may be called by many goroutines at once.
type Node struct {
	c *Cluster
	n *node
}

// Addr is host:port, as it is dialled.
func (n Node) Addr() string { return n.n.addr }

// Do is Cluster.Do for this node.
func (n Node) Do(ctx context.Context, args ...any) (resp.Value, error) {
	return n.Send(ctx, resp.Cmd(args...))
}

// Send is Cluster.Send for this node. MOVED and ASK are errors, as any other.
func (n Node) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
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

// SendBatch sends commands over one connection to this node, next to each other and in order, and returns their replies in
// the same order. Error replies are values. It tries once. With an error, the replies are those of the first commands in the
// list whose outcome is known.
func (n Node) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	return n.n.pool.SendBatch(ctx, cmds)
}

// With is conn.Pool.With for this node.
func (n Node) With(ctx context.Context, fn func(*conn.Conn) error) error {
	return n.n.pool.With(ctx, fn)
}
