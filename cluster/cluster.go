package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/callback"
	"github.com/lockwire/lockwire/resp"
)

// Cluster is a client of a Redis or Valkey Cluster. It is safe for use by many goroutines at once.
// Close a Cluster that is no longer needed.
type Cluster struct {
	// Constant after Open.
	cfg  Config
	life context.Context // ended under mu, by Close
	end  context.CancelFunc

	wg     sync.WaitGroup // joins the refresh goroutine and the ends of retired nodes
	losses callback.List
	wake   chan struct{} // holds a token while the refresh goroutine has work

	inquiry chan struct{} // holds a token while a goroutine asks for the replicas of a master

	table atomic.Pointer[table] // changed under mu

	redirected, asked, retries, refreshes, refreshErrors atomic.Uint64

	mu          sync.Mutex       // guards the following
	nodes       map[string]*node // by dialled address
	lastRead    *table           // the last topology read, without later redirections
	wanted      bool             // a refresh is requested
	expected    time.Time        // until then refreshes go on
	refreshDone chan struct{}    // closed at the end of the next refresh
	failing     bool             // the last refresh failed
	reports     reports
	titles      map[*string]map[*node]func() // the names added by Introduce, and how to remove them from a node
	leaving     map[*node]struct{}           // retired nodes with connections that are not closed yet
	left        conn.Stats                   // the counters of the closed ones
}

// Open returns a Cluster. Open asks the nodes at cfg.Addrs in turn for the topology, within the
// limits of ctx and cfg.Node.Retry, so that a wrong address or password fails at once. A master is
// dialled on first use.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Node.OnPush = inTurn(cfg.Node.OnPush)
	c := &Cluster{
		cfg:         cfg,
		wake:        make(chan struct{}, 1),
		inquiry:     make(chan struct{}, 1),
		nodes:       make(map[string]*node),
		refreshDone: make(chan struct{}),
		titles:      make(map[*string]map[*node]func()),
		leaving:     make(map[*node]struct{}),
	}
	c.lastRead = &table{}
	c.table.Store(c.lastRead)
	c.life, c.end = context.WithCancel(context.Background())
	if err := c.discover(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	c.wg.Go(c.refreshLoop)
	return c, nil
}

// Do sends a command, given as its name and arguments, to the node that serves the first key, and
// returns the reply. Arguments are strings, []byte, bools, integers, floats and slices of these, as
// for resp.Cmd. Do keeps no argument. An error reply is returned as an error, a resp.Error. A null is a value.
func (c *Cluster) Do(ctx context.Context, args ...any) (resp.Value, error) {
	return c.Send(ctx, resp.Cmd(args...))
}

// Send sends one command and returns its reply, as Do does. A routing key in cmd takes precedence
// over the first key. Send allocates only the reply; Do makes one more allocation.
func (c *Cluster) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	slot, err := routeOf(&cmd, 0)
	if err != nil {
		return resp.Value{}, err
	}
	return c.sendTo(ctx, c.targetOf(slot), cmd)
}

func (c *Cluster) sendTo(ctx context.Context, at target, cmd resp.Command) (resp.Value, error) {
	ctx, traced := c.start(ctx, cmd)
	v, err := at.send(ctx, cmd)
	if err != nil {
		v, err = c.sendAgain(ctx, at, cmd, err)
	}
	traced.End(ctx, err)
	return v, err
}

func (c *Cluster) start(ctx context.Context, cmd resp.Command) (context.Context, *conn.Call) {
	if c.cfg.Node.Trace == nil {
		return ctx, nil
	}
	return conn.StartCommands(ctx, c, []resp.Command{cmd}, false)
}

func (c *Cluster) sendAgain(ctx context.Context, at target, cmd resp.Command, err error) (v resp.Value, _ error) {
	k := call{c: c, ctx: ctx, name: commandName(&cmd)}
	if at, err = k.next(at, err); err != nil {
		return resp.Value{}, err
	}
	return run(&k, at, func(at target) (resp.Value, error) { return at.send(ctx, cmd) })
}

// Tx runs commands as one transaction on the node that serves their keys: MULTI, cmds and EXEC,
// next to each other. Tx returns the replies in order. A command that fails inside the transaction
// has an error value as its reply, and the remaining commands run.
//
// All keys must be in one slot. If the first keys of two commands are in different slots, the error
// names the slots and nothing is sent. If the server refuses a command, no command runs, and the
// error wraps the refusal. A transaction refused by a node that does not serve the slot, or is not
// ready, is repeated as a whole, as for Send.
func (c *Cluster) Tx(ctx context.Context, cmds []resp.Command) (_ []resp.Value, failed error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	slot, err := routeAll(cmds, true)
	if err != nil {
		return nil, err
	}
	ctx, traced := conn.StartCommands(ctx, c, cmds, true)
	defer func() { traced.End(ctx, failed) }()
	k := call{c: c, ctx: ctx, name: commandName(&cmds[0])}
	return run(&k, c.targetOf(slot), func(at target) ([]resp.Value, error) { return at.tx(ctx, cmds) })
}

// routeAll returns the slot of the first command with a key. With inOne, a further command must not have another slot.
func routeAll(cmds []resp.Command, inOne bool) (int, error) {
	slot := anySlot
	for i := range cmds {
		s, err := routeOf(&cmds[i], i+1)
		switch {
		case err != nil:
			return 0, err
		case slot == anySlot:
			slot = s
		case inOne && s != anySlot && s != slot:
			err := fmt.Errorf("cluster: the keys of a transaction must be in one slot, and these are in slots %d and %d", slot, s)
			return 0, refused(commandName(&cmds[i]), i+1, err)
		}
	}
	return slot, nil
}

// tx makes an attempt with a transaction. ASKING lasts until EXEC only if MULTI follows
// immediately. tx therefore takes an exclusive connection.
func (at target) tx(ctx context.Context, cmds []resp.Command) (values []resp.Value, err error) {
	if at.node != nil && !at.asking {
		return at.node.pool.Tx(ctx, cmds)
	}
	err = at.lend(ctx, commandName(&cmds[0]), func(c *conn.Conn) (err error) {
		values, err = c.Tx(ctx, cmds)
		return err
	})
	return values, err
}

// ask sends ASKING over c, in front of a call.
func (at target) ask(ctx context.Context, c *conn.Conn, name string) error {
	_, err := c.Send(ctx, asking)
	if e, ok := errors.AsType[*conn.Error](err); ok {
		// The call has not been sent, whatever happened to ASKING.
		return &conn.Error{Op: name, Addr: at.node.addr, Err: e.Err}
	}
	return err
}

// With lends fn a connection to the node that serves key, as conn.Pool.With does: for blocking
// commands, WATCH and the like, on keys of that slot. Until a connection is available, With tries
// other nodes, as Send does. After calling fn, With repeats nothing and returns the result of fn.
// If the result says that the node no longer serves the slot, the next With goes to the new owner.
func (c *Cluster) With(ctx context.Context, key string, fn func(*conn.Conn) error) error {
	k := call{c: c, ctx: ctx, name: "With"}
	_, err := run(&k, c.targetOf(Slot(key)), func(at target) (none struct{}, err error) {
		return none, at.lend(ctx, k.name, func(c *conn.Conn) error {
			k.called = true
			return fn(c)
		})
	})
	return err
}

// lend makes an attempt of a call over an exclusive connection, on which it calls fn.
func (at target) lend(ctx context.Context, name string, fn func(*conn.Conn) error) error {
	if at.node == nil {
		return at.unserved(name)
	}
	return at.node.pool.With(ctx, func(c *conn.Conn) error {
		if at.asking {
			if err := at.ask(ctx, c, name); err != nil {
				return err
			}
		}
		return fn(c)
	})
}

// Masters yields the masters that serve slots, as far as known at that moment. When ctx ends,
// Masters yields the cause of ctx as the error and stops. After Close the error is conn.ErrClosed.
func (c *Cluster) Masters(ctx context.Context) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		for _, n := range c.table.Load().masters() {
			switch {
			case ctx.Err() != nil:
				yield(Node{}, context.Cause(ctx))
				return
			case c.isClosed():
				yield(Node{}, conn.ErrClosed)
				return
			case !yield(Node{c, n}, nil):
				return
			}
		}
	}
}

// Owner returns the master that serves the slot of key, as far as known, or false for an unserved
// slot.
func (c *Cluster) Owner(key string) (Node, bool) {
	n := c.table.Load().owner(Slot(key))
	return Node{c, n}, n != nil
}

// Close closes the connections to all nodes. Waiting calls fail with conn.ErrClosed. After Close
// returns, no goroutine of the Cluster runs. Close may be called more than once, but not by a
// callback in Config. The caller of Stream closes the Stream.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.end()
	nodes := slices.Collect(maps.Values(c.nodes))
	c.mu.Unlock()
	for _, n := range nodes {
		n.close(conn.ErrClosed)
	}
	c.wg.Wait()
	return nil
}

func (c *Cluster) isClosed() bool { return c.life.Err() != nil }

// Trace returns Config.Node.Trace.
func (c *Cluster) Trace() *conn.Trace { return c.cfg.Node.Trace }

// Stats describes a Cluster at one moment, with counters since Open.
type Stats struct {
	Masters int // masters that serve slots
	Slots   int // served slots, as far as known; 16384 in a complete cluster

	Moved, Asked  uint64 // redirections followed
	Retries       uint64 // attempts after the first, including redirections
	Refreshes     uint64 // successful refreshes of the topology, including the first
	RefreshErrors uint64 // refreshes without an answer from any node

	// Nodes is the sum over the connections to all nodes. Its counters include nodes that have left the cluster. Its Retries
	// are 0.
	Nodes conn.Stats
}

// Stats returns the current numbers.
func (c *Cluster) Stats() Stats {
	t := c.table.Load()
	s := Stats{
		Masters:       len(t.masters()),
		Slots:         t.served,
		Moved:         c.redirected.Load(),
		Asked:         c.asked.Load(),
		Retries:       c.retries.Load(),
		Refreshes:     c.refreshes.Load(),
		RefreshErrors: c.refreshErrors.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Nodes = c.left
	for n := range c.leaving {
		n.addCounters(&s.Nodes)
	}
	for _, n := range c.nodes {
		n.addCounters(&s.Nodes)
		for _, pool := range n.pools() {
			p := pool.Stats()
			s.Nodes.Shared += p.Shared
			s.Nodes.InFlight += p.InFlight
			s.Nodes.Open += p.Open
			s.Nodes.Idle += p.Idle
			s.Nodes.Lent += p.Lent
			s.Nodes.Dialing += p.Dialing
			s.Nodes.Waiting += p.Waiting
		}
	}
	return s
}

func (c *Cluster) targetOf(slot int) target {
	return target{node: c.table.Load().owner(slot), slot: slot}
}

// nodeAt returns the node announced at addr, and adds an unknown node. It returns nil for an
// unusable address, and for a new node after Close.
func (c *Cluster) nodeAt(addr string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodeLocked(addr)
	if n != nil {
		n.hinted.Store(time.Now().UnixNano())
	}
	return n
}

func (c *Cluster) nodeLocked(announced string) *node {
	addr := c.cfg.NodeMap(announced)
	if n := c.nodes[addr]; n != nil {
		return n
	}
	if c.isClosed() {
		return nil
	}
	n := &node{announced: announced, from: originOf(announced), addr: addr}
	cfg := c.cfg.node(announced, addr)
	cfg.OnSilent = func(addr string) { c.silent(n, addr) }
	pool, err := conn.New(cfg)
	if err != nil {
		return nil
	}
	pool.OnLoss(c.losses.Call)
	cfg.Extra = append(slices.Clip(cfg.Extra), resp.Cmd("READONLY"))
	n.pool = pool
	n.reader, _ = conn.New(cfg) // no error: the other Pool has the same Config
	for name, stops := range c.titles {
		stops[n] = pool.Introduce(*name)
	}
	c.nodes[addr] = n
	return n
}

// silent requests a refresh because a node owes an answer and sends nothing: another node may serve
// its slots now or soon.
func (c *Cluster) silent(n *node, addr string) {
	n.sick.Store(time.Now().UnixNano())
	c.mu.Lock()
	member := n.retired == nil
	c.mu.Unlock()
	if member {
		c.wantRefresh()
	}
	if fn := c.cfg.Node.OnSilent; fn != nil {
		fn(addr)
	}
}

// moved records that the node announced at addr serves slot.
func (c *Cluster) moved(slot int, addr string) {
	c.redirected.Add(1)
	n := c.nodeAt(addr)
	if n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.table.Load(); t.owner(slot) != n && n.retired == nil {
		c.table.Store(t.with(slot, n))
	}
}

// redial replaces the connections to a node whose role has changed or whose address belongs to
// another node now.
func (c *Cluster) redial(old *node) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[old.addr]; n != nil && n != old {
		return n // another goroutine has redialled
	}
	if c.isClosed() {
		return nil // Close still has to find the old node
	}
	delete(c.nodes, old.addr)
	n := c.nodeLocked(old.announced)
	if n == nil {
		return nil
	}
	c.table.Store(c.table.Load().withReplaced(old, n))
	c.lastRead = c.lastRead.withReplaced(old, n)
	c.retireLocked(old, errRedialed)
	return n
}

// retireLocked takes a node out of use. Its connections are closed once they owe no answers.
func (c *Cluster) retireLocked(n *node, why error) {
	first := n.retired == nil
	if n.retired = why; first {
		c.leaving[n] = struct{}{}
	}
	n.endStreamsLocked(why)
	for _, stops := range c.titles {
		delete(stops, n)
	}
	replaced := n.replaced
	c.wg.Go(func() {
		n.drain(c.life, c.cfg, replaced, why)
		if first {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.leaving, n)
			n.addCounters(&c.left)
		}
	})
}

// Slot returns the hash slot of a key, as the function Slot does.
func (c *Cluster) Slot(key string) int { return Slot(key) }

// Doers yields the masters that serve slots, as Masters does. Each conn.Doer sends to a single
// master.
func (c *Cluster) Doers(ctx context.Context) iter.Seq2[conn.Doer, error] {
	return func(yield func(conn.Doer, error) bool) {
		for node, err := range c.Masters(ctx) {
			if !yield(node, err) {
				return
			}
		}
	}
}

// DB is 0, the only database of a cluster.
func (c *Cluster) DB() int { return 0 }

// Replicated reports true: a cluster's masters may have replicas, and fail over to them.
func (c *Cluster) Replicated() bool { return true }
