package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Await waits until the nodes that are up agree with each other, serve all slots, and replicas have their master's data.
func (c *Cluster) Await() {
	c.t.Helper()
	c.check(c.settled())
}

// Masters are the nodes that are up and serve slots, in no order, as the first master that is up sees it.
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

// Owner is the node that serves a slot, as the first master that is up sees it, or nil.
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

// inRange reports whether a slot is in a range of slots, or is the one, that CLUSTER NODES names.
func inRange(text string, slot int) bool {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	lo, err1 := strconv.Atoi(first)
	hi, err2 := strconv.Atoi(last)
	return err1 == nil && err2 == nil && lo <= slot && slot <= hi
}

// Replica is a replica of a master, as the first master that is up sees it, or nil.
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

// AwaitTakeover waits until another node serves the slots that one that is down, or stopped, has served. Only meanwhile a node
// that is silent for a second counts as dead.
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

// Patiently runs fn, during which the nodes do not take one that is silent for failed. fn may stop one of them.
func (c *Cluster) Patiently(stopped *Server, fn func()) {
	c.t.Helper()
	c.setNodeTimeout(stopped, time.Hour)
	defer c.setNodeTimeout(stopped, nodeTimeout)
	fn()
}

// setNodeTimeout sets after how long nodes count as dead, at all nodes that are up but for one.
func (c *Cluster) setNodeTimeout(gone *Server, d time.Duration) {
	for _, s := range c.up() {
		if s != gone {
			s.Do("CONFIG", "SET", nodeTimeoutOption, d.Milliseconds())
		}
	}
}

// Promote makes a replica take the place of its master, which agrees, and waits until everybody knows.
//
// A failover may come to nothing without a word: masters vote once in two node timeouts for the replicas of a master, and a node that
// stood for election less than four of them ago counts the votes of that time, until the others refuse it. So it is asked for again.
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

// eachFollows returns nil if s serves slots to all nodes that are up.
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

// Add starts one more node, a master without slots, and waits until everybody knows it.
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

// Remove makes the others forget a node, which must serve no slots, and ends its process.
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

// BeginMove makes from and to migrate a slot: from then on from answers ASK for keys that it does not have.
//
// It first waits until all nodes agree, which before Redis 7.0 may take half a second after another move. In the end the new
// owner will claim the slot with a new epoch, and nodes that have missed something may hold that epoch against what they
// have missed, until two say for ever that the other one is the owner.
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
	if _, err := to.Try("CLUSTER", "SETSLOT", slot, "IMPORTING", source); err != nil {
		return err
	}
	_, err = from.Try("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	return err
}

// MoveKeys moves at most count keys of a slot that migrates, and reports whether there were any.
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
		_, err := s.Try("CLUSTER", "SETSLOT", slot, "NODE", target)
		if err != nil && !strings.Contains(err.Error(), "SETSLOT only with masters") {
			return err
		}
	}
	return nil
}

// anyMembers is the topology as the first master sees it that is up and answers: replicas hear of changes later.
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
