package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
)

// errNoMaster is the answer of SuccessionOf about a node without slots.
var errNoMaster = errors.New("the other nodes do not know it as a master")

// report is the topology according to one node.
type report struct {
	asked time.Time // time before the question
	from  string    // dialled address of the node
	*topology
}

// reports has what the nodes say of masters and their replicas. The Cluster's mu guards reports.
type reports struct {
	// latest has the latest reports of two nodes, newest first. Two, because the report of a master about itself may be of
	// no use, and must not displace a usable one.
	latest  [2]report
	masters map[string]bool            // all masters in any report, by id; true if the first report has it, and none a replica of it
	named   map[string]conn.Succession // the answers to SuccessionOf, by id
}

func (c *Cluster) noteReport(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.reports
	first := s.masters == nil
	if first {
		s.masters = make(map[string]bool)
	}
	for _, m := range r.masters {
		bare, known := s.masters[m.id]
		s.masters[m.id] = (bare || first && !known) && len(m.replicas) == 0
	}
	if s.latest[0].from != r.from {
		s.latest[1] = s.latest[0]
	}
	s.latest[0] = r
}

// Succession returns the master that serves the slot of key and the number of its replicas that
// have not failed, as reported by a node asked at or after since. The reporting node is not the
// master itself unless the cluster has no other node. A replica counts until a majority of the
// masters has marked the replica as failed.
//
// If since is zero, Succession returns the latest report, also from the master itself.
func (c *Cluster) Succession(ctx context.Context, key string, since time.Time) (conn.Succession, error) {
	slot := Slot(key)
	known := func() (conn.Succession, bool) { return c.known(slot, since) }
	if s, ok := known(); ok {
		return s, nil
	}
	master := ""
	if n := c.table.Load().owner(slot); n != nil {
		master = n.addr
	}
	s, err := c.askUntilKnown(ctx, master, known, func(n *node) error {
		_, err := c.askTopology(ctx, n)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("cluster: asking for the replicas: %w", err)
	}
	return s, nil
}

// askUntilKnown calls ask with node after node until known returns the answer. The node at the address last comes last. One
// caller at a time asks; further callers wait for the answer.
func (c *Cluster) askUntilKnown(ctx context.Context, last string, known func() (conn.Succession, bool), ask func(*node) error) (none conn.Succession, err error) {
	select {
	case c.inquiry <- struct{}{}:
		defer func() { <-c.inquiry }()
	case <-ctx.Done():
		return none, netfail.Ended(ctx)
	case <-c.life.Done():
		return none, conn.ErrClosed
	}
	if s, ok := known(); ok {
		return s, nil
	}
	err = errors.New("no other node answers")
	for _, n := range c.witnesses(last) {
		if failed := ask(n); failed != nil {
			err = failed
		}
		if s, ok := known(); ok {
			return s, nil
		}
		if ctx.Err() != nil || errors.Is(err, errNoMaster) {
			break
		}
	}
	return none, err
}

// witnesses returns the nodes to ask about a master. The master itself is last.
func (c *Cluster) witnesses(master string) []*node {
	list := c.candidates(time.Now())
	if i := slices.IndexFunc(list, func(n *node) bool { return n.addr == master }); i >= 0 {
		last := list[i]
		list = append(slices.Delete(list, i, i+1), last)
	}
	return list
}

// namesItself reports whether a report contains the address from which it comes. Without it the reporting node may be any
// node in the report: an address in Config.Addrs need not be one that the cluster announces.
func (c *Cluster) namesItself(r report) bool {
	itself := func(announced string) bool { return c.cfg.NodeMap(announced) == r.from }
	return slices.ContainsFunc(r.masters, func(m master) bool { return itself(m.addr) }) || slices.ContainsFunc(r.replicas, itself)
}

// known returns the contents of the newest usable report about a slot. If since is set, the report must not come from the
// slot's master, which may not know that it was replaced, unless the cluster has no other node.
func (c *Cluster) known(slot int, since time.Time) (conn.Succession, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.reports.latest {
		if r.topology == nil || r.owners[slot] == 0 || r.asked.Before(since) {
			continue
		}
		m := r.masters[r.owners[slot]-1]
		s := conn.Succession{Master: m.id, Addr: c.cfg.NodeMap(m.addr), Replicas: len(m.replicas), Asked: r.asked}
		alone := len(r.masters) == 1 && len(r.replicas) == 0
		if !since.IsZero() && !alone && (r.from == s.Addr || !c.namesItself(r)) {
			continue
		}
		s.Bare = c.reports.masters[s.Master]
		return s, true
	}
	return conn.Succession{}, false
}
