package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Await waits until the running nodes agree, all slots are served, and replicas have their master's data.
func (c *Cluster) Await() {
	c.t.Helper()
	c.check(c.settled())
}

// Masters are the running nodes with slots, in no order, as seen by the first running master.
func (c *Cluster) Masters() []*Server {
	c.t.Helper()
	members, err := c.anyMembers()
	c.check(err)
	var masters []*Server
	for _, m := range members {
		if s := c.Node(m.addr); s != nil && m.has("master") && !m.has("fail") && len(m.slots) > 0 && s.running() {
			masters = append(masters, s)
		}
	}
	return masters
}

// Owner is the node that serves a slot, as seen by the first running master, or nil.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	members, err := c.anyMembers()
	c.check(err)
	for _, m := range members {
		if slices.ContainsFunc(m.slots, func(r string) bool { return inRange(r, slot) }) {
			return c.Node(m.addr)
		}
	}
	return nil
}

// inRange reports whether a slot is in a range of CLUSTER NODES, or equals a single slot.
func inRange(text string, slot int) bool {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	lo, err1 := strconv.Atoi(first)
	hi, err2 := strconv.Atoi(last)
	return err1 == nil && err2 == nil && lo <= slot && slot <= hi
}

// Replica is a replica of a master, as seen by the first running master, or nil.
func (c *Cluster) Replica(master *Server) *Server {
	c.t.Helper()
	id, err := master.nodeID()
	c.check(err)
	members, err := c.anyMembers()
	c.check(err)
	for _, m := range members {
		if m.master == id && !m.has("fail") {
			return c.Node(m.addr)
		}
	}
	return nil
}

// AwaitTakeover waits until a different node serves the slots of a node that is down or stopped. Only meanwhile a node counts
// as dead after a second of silence.
func (c *Cluster) AwaitTakeover(gone *Server) {
	c.t.Helper()
	c.setNodeTimeout(gone, takeoverTimeout)
	defer c.setNodeTimeout(gone, nodeTimeout)
	c.check(c.await("a replica to take over", func() error {
		for _, s := range c.up() {
			if s == gone {
				continue
			}
			members, err := s.members()
			if err != nil {
				return err
			}
			served := 0
			for _, m := range members {
				switch {
				case m.addr == gone.Addr() && len(m.slots) > 0:
					return errors.New("it still is the owner to " + s.Addr())
				case m.has("master") && !m.has("fail"):
					served += len(m.slots)
				}
			}
			if served == 0 {
				return errors.New("no slots are served")
			}
		}
		return nil
	}))
}

// Patiently runs fn, during which the nodes do not take a silent node for failed. fn may stop a node.
func (c *Cluster) Patiently(stopped *Server, fn func()) {
	c.t.Helper()
	c.setNodeTimeout(stopped, time.Hour)
	defer c.setNodeTimeout(stopped, nodeTimeout)
	fn()
}

// setNodeTimeout sets the time after which nodes count as dead, at all running nodes except the given node.
func (c *Cluster) setNodeTimeout(gone *Server, d time.Duration) {
	for _, s := range c.up() {
		if s != gone {
			s.Do("CONFIG", "SET", nodeTimeoutOption, d.Milliseconds())
		}
	}
}

// Promote makes a replica take the place of its master, with the master's consent, and waits until every node knows.
//
// A failover may fail silently: masters vote once in two node timeouts for the replicas of a master, and a candidate within
// four timeouts of its last election counts the votes of that election, until the masters refuse. Therefore Promote asks again.
func (c *Cluster) Promote(replica *Server) {
	c.t.Helper()
	var asked time.Time
	c.check(c.await("a failover", func() error {
		err := c.eachFollows(replica)
		if err == nil || time.Since(asked) < manualFailover {
			return err
		}
		if _, refused := replica.Try("CLUSTER", "FAILOVER"); refused != nil {
			return refused
		}
		asked = time.Now()
		return err
	}))
	c.Await()
}

// eachFollows returns nil if s serves slots according to all running nodes.
func (c *Cluster) eachFollows(s *Server) error {
	for _, other := range c.up() {
		members, err := other.members()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members, func(m member) bool { return m.addr == s.Addr() && m.has("master") && len(m.slots) > 0 }) {
			return fmt.Errorf("%s serves no slots to %s", s.Addr(), other.Addr())
		}
	}
	return nil
}

// Add starts a further node, a master without slots, and waits until every node knows the new node.
func (c *Cluster) Add() *Server {
	c.t.Helper()
	s := Start(c.t, c.opts)
	c.nodes = append(c.nodes, s)
	for _, other := range c.up() {
		if other != s {
			_, err := s.Try("CLUSTER", "MEET", "127.0.0.1", other.port)
			c.check(err)
		}
	}
	c.check(c.await("the new node", func() error { return c.eachKnows(len(c.up())) }))
	c.Await()
	return s
}

// Remove makes the nodes forget a node, which must serve no slots, and ends its process.
func (c *Cluster) Remove(s *Server) {
	c.t.Helper()
	id, err := s.nodeID()
	c.check(err)
	c.nodes = slices.DeleteFunc(c.nodes, func(other *Server) bool { return other == s })
	s.Stop()
	for _, other := range c.up() {
		c.check(c.await("the node to be forgotten", func() error {
			_, err := other.Try("CLUSTER", "FORGET", id)
			if err != nil && strings.Contains(err.Error(), "Unknown node") {
				return nil
			}
			return err
		}))
	}
}

// Move migrates a slot with all its keys to another node, as redis-cli does, while the cluster is in use.
func (c *Cluster) Move(slot int, to *Server) {
	c.t.Helper()
	c.check(c.move(slot, to))
}

func (c *Cluster) move(slot int, to *Server) error {
	if err := c.await("all nodes to agree", c.agreed); err != nil {
		return err
	}
	from := c.Owner(slot)
	if from == nil || from == to {
		return fmt.Errorf("slot %d has no owner to move it from", slot)
	}
	if err := c.BeginMove(slot, from, to); err != nil {
		return err
	}
	for {
		more, err := c.MoveKeys(slot, from, to, 100)
		if err != nil {
			return err
		}
		if !more {
			return c.EndMove(slot, to)
		}
	}
}

// BeginMove makes from and to migrate a slot: afterwards from answers ASK for missing keys.
//
// BeginMove first waits until all nodes agree; before Redis 7.0 that may take half a second after an earlier move. In the end
// the new owner will claim the slot with a new epoch. Nodes that have missed an earlier change may hold the epoch against the
// change, until two nodes disagree about the owner for ever.
func (c *Cluster) BeginMove(slot int, from, to *Server) error {
	if err := c.await("all nodes to agree", c.agreed); err != nil {
		return err
	}
	source, err := from.nodeID()
	if err != nil {
		return err
	}
	target, err := to.nodeID()
	if err != nil {
		return err
	}
	if err := c.setSlot(to, slot, "IMPORTING", source); err != nil {
		return err
	}
	return c.setSlot(from, slot, "MIGRATING", target)
}

// setSlot changes what s knows of a slot. From Valkey 8.0 on s waits for its replicas' acknowledgement, and refuses after
// 2 s without it: then setSlot asks again.
func (c *Cluster) setSlot(s *Server, slot int, state, node string) error {
	var refused error
	return errors.Join(c.await("replicas to acknowledge", func() error {
		_, err := s.Try("CLUSTER", "SETSLOT", slot, state, node)
		if errors.Is(err, resp.ErrNoReplicas) {
			return err
		}
		refused = err
		return nil
	}), refused)
}

// MoveKeys moves at most count keys of a migrating slot, and reports whether any key was left.
func (c *Cluster) MoveKeys(slot int, from, to *Server, count int) (more bool, err error) {
	v, err := from.Try("CLUSTER", "GETKEYSINSLOT", slot, count)
	if err != nil || v.Len() == 0 {
		return false, err
	}
	keys, err := texts(v)
	if err != nil {
		return false, err
	}
	args := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, Patience.Milliseconds()}
	if to.guarded() {
		args = append(args, "AUTH2", checker, checker)
	}
	args = append(args, "KEYS")
	for _, key := range keys {
		args = append(args, key)
	}
	_, err = from.Try(args...)
	return true, err
}

// EndMove makes to the owner of a slot, and tells everybody.
func (c *Cluster) EndMove(slot int, to *Server) error {
	target, err := to.nodeID()
	if err != nil {
		return err
	}
	// The new owner first: it knows best, and nobody else can then claim the slot.
	order := append([]*Server{to}, slices.DeleteFunc(c.up(), func(s *Server) bool { return s == to })...)
	for _, s := range order {
		err := c.setSlot(s, slot, "NODE", target)
		if err != nil && !strings.Contains(err.Error(), "SETSLOT only with masters") {
			return err
		}
	}
	return nil
}

// anyMembers is the topology as seen by the first master with an answer: replicas hear of changes later.
func (c *Cluster) anyMembers() ([]member, error) {
	last := errors.New("no master is up")
	for _, s := range c.up() {
		members, err := s.members()
		if err != nil {
			last = err
			continue
		}
		if isMaster(members) {
			return members, nil
		}
	}
	return nil, last
}

func (c *Cluster) check(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Errorf("redistest: cluster: %v", err)
	}
}
