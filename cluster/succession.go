package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
)

// report is what one node has said of the cluster.
type report struct {
	asked time.Time // before it was
	from  string    // the node, where it is dialled
	*topology
}

// heirs is what nodes have said last about masters and their replicas. The Cluster's mu guards it.
type heirs struct {
	reports [2]report       // the last ones of two nodes, the younger first
	first   map[string]bool // the masters of the first report
	had     map[string]bool // masters of which a replica has been told
	owned   map[string]bool // masters of all reports

	named map[string]conn.Succession // the answers to SuccessionOf
}

// noteLocked keeps a report.
func (h *heirs) noteLocked(r report) {
	if h.first == nil {
		h.first, h.had, h.owned = make(map[string]bool), make(map[string]bool), make(map[string]bool)
		for _, id := range r.ids {
			h.first[id] = true
		}
	}
	for i, id := range r.ids {
		h.owned[id] = true
		if len(r.backups[i]) > 0 {
			h.had[id] = true
		}
	}
	if h.reports[0].from != r.from {
		h.reports[1] = h.reports[0]
	}
	h.reports[0] = r
}

// Succession returns who serves the slot of key and how many replicas of that have not failed, in the words of a node that was
// asked no sooner than since: another one than the master itself, as long as there is any. If since is zero it returns what was
// read last with the topology. A replica counts until a majority of the masters has found it to have failed.
func (c *Cluster) Succession(ctx context.Context, key string, since time.Time) (conn.Succession, error) {
	slot := Slot(key)
	if s, ok := c.known(slot, since); ok {
		return s, nil
	}
	fail := func(err error) (conn.Succession, error) {
		return conn.Succession{}, fmt.Errorf("cluster: asking for the replicas: %w", err)
	}
	if err := c.inquire(ctx); err != nil {
		return fail(err)
	}
	defer func() { <-c.inquiry }()
	if s, ok := c.known(slot, since); ok {
		return s, nil
	}
	err := errors.New("no node but the master answers")
	master := ""
	if n := c.table.Load().owner(slot); n != nil {
		master = n.addr
	}
	for _, from := range c.witnesses(master) {
		asked := time.Now()
		t, failed := c.ask(ctx, from)
		if failed != nil {
			err = failed
		} else {
			c.note(report{asked, from.addr(), t})
		}
		if s, ok := c.known(slot, since); ok {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return fail(err)
}

// inquire waits until nobody else asks. Whoever does takes the token out of c.inquiry when it is done.
func (c *Cluster) inquire(ctx context.Context) error {
	select {
	case c.inquiry <- struct{}{}:
		return nil
	case <-ctx.Done():
		return netfail.Ended(ctx)
	case <-c.done:
		return conn.ErrClosed
	}
}

// witnesses are the nodes to ask about a master, and that itself at the end.
func (c *Cluster) witnesses(master string) []candidate {
	var list, last []candidate
	for _, from := range c.candidates(time.Now()) {
		if from.addr() == master {
			last = append(last, from)
		} else {
			list = append(list, from)
		}
	}
	return append(list, last...)
}

// addr is where the candidate is dialled.
func (from candidate) addr() string {
	if from.node != nil {
		return from.node.addr
	}
	return from.seed
}

func (c *Cluster) note(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heirs.noteLocked(r)
}

// known returns what the youngest report says of a slot that counts.
func (c *Cluster) known(slot int, since time.Time) (conn.Succession, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.heirs.reports {
		if r.topology == nil || r.owners[slot] == 0 || r.asked.Before(since) {
			continue
		}
		place := r.owners[slot] - 1
		s := conn.Succession{
			Master:   r.ids[place],
			Addr:     c.cfg.dialAddr(r.masters[place]),
			Replicas: len(r.backups[place]),
			Asked:    r.asked,
		}
		alone := len(r.masters) == 1 && len(r.replicas) == 0
		if !since.IsZero() && r.from == s.Addr && !alone {
			continue // it may not know yet
		}
		s.Bare = c.heirs.first[s.Master] && !c.heirs.had[s.Master]
		return s, true
	}
	return conn.Succession{}, false
}
