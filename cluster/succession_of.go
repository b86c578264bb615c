package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// maxNamed is the number of answers that SuccessionOf caches.
const maxNamed = 64

var clusterNodes = resp.Cmd("CLUSTER", "NODES")

// SuccessionOf is like Succession, for the master with the given node id. The master need not serve
// slots yet: during the migration of a slot some keys are on a master that does not serve the slot.
// SuccessionOf returns an error for a master that has lost all its slots, because the master was
// replaced and may not know yet.
func (c *Cluster) SuccessionOf(ctx context.Context, id string, since time.Time) (conn.Succession, error) {
	known := func() (conn.Succession, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		s, ok := c.reports.named[id]
		return s, ok && !s.Asked.Before(since)
	}
	s, err := c.askUntilKnown(ctx, "", known, func(n *node) error {
		asked := time.Now()
		v, err := c.askNode(ctx, n, clusterNodes)
		if err != nil {
			return err
		}
		text, err := v.Text()
		if err != nil {
			return err
		}
		return c.noteNamed(conn.Succession{Master: id, Asked: asked}, text)
	})
	if err != nil {
		return s, fmt.Errorf("cluster: asking about a node: %w", err)
	}
	return s, nil
}

// noteNamed completes s, the answer about s.Master, from text, a reply to CLUSTER NODES, and stores it. It does nothing if
// the reply comes from s.Master itself.
func (c *Cluster) noteNamed(s conn.Succession, text string) error {
	known, serves, itself := readNodes(text, &s)
	if itself {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, served := c.reports.masters[s.Master]; !known || served && !serves {
		return errNoMaster
	}
	s.Addr = c.cfg.NodeMap(s.Addr)
	s.Bare = c.reports.masters[s.Master] && s.Replicas == 0
	if c.reports.named == nil || len(c.reports.named) >= maxNamed {
		c.reports.named = make(map[string]conn.Succession)
	}
	c.reports.named[s.Master] = s
	return nil
}

// readNodes reads the lines about s.Master in a reply to CLUSTER NODES:
//
//   - known: s.Master is a master that has not failed. readNodes sets s.Addr.
//   - serves: s.Master serves slots.
//   - itself: the reply comes from s.Master.
//   - s.Replicas: the number of replicas of s.Master that have not failed.
//
// An example of a line is "id 10.0.0.1:6379@16379,name flags master ping pong epoch connected
// 0-5460 5462".
func readNodes(text string, s *conn.Succession) (known, serves, itself bool) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		flags := strings.Split(fields[2], ",")
		switch has := func(flag string) bool { return slices.Contains(flags, flag) }; {
		case fields[0] == s.Master && has("myself"):
			return false, false, true
		case has("fail") || has("noaddr"):
		case fields[0] == s.Master && has("master"):
			known, serves = true, len(fields) > 8
			addr, _, _ := strings.Cut(fields[1], "@")
			colon := max(strings.LastIndexByte(addr, ':'), 0) // an IPv6 host has no brackets here
			s.Addr = net.JoinHostPort(addr[:colon], strings.TrimPrefix(addr[colon:], ":"))
		case fields[3] == s.Master && has("slave"):
			s.Replicas++
		}
	}
	return known, serves, false
}
