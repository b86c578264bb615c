package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// maxNamed is how many masters SuccessionOf remembers an answer about.
const maxNamed = 64

var clusterNodes = resp.Cmd("CLUSTER", "NODES")

var errNoMaster = errors.New("to the other nodes it is no master")

// SuccessionOf is as Succession about the master that calls itself by an id, also one that serves no slots yet: while a slot
// migrates, keys of it are on a master that does not serve it. It returns an error about one that has had slots and has none any more:
// it was replaced, and may not know yet.
func (c *Cluster) SuccessionOf(ctx context.Context, id string, since time.Time) (conn.Succession, error) {
	fail := func(err error) (conn.Succession, error) {
		return conn.Succession{}, fmt.Errorf("cluster: asking about a node: %w", err)
	}
	if err := c.inquire(ctx); err != nil {
		return fail(err)
	}
	defer func() { <-c.inquiry }()
	c.mu.Lock()
	s, ok := c.heirs.named[id]
	c.mu.Unlock()
	if ok && !s.Asked.Before(since) {
		return s, nil
	}
	err := errors.New("no other node answers")
	for _, from := range c.witnesses("") {
		s := conn.Succession{Master: id, Asked: time.Now()}
		text := ""
		if failed := c.put(ctx, from, func(ctx context.Context, send sender, _ origin) error {
			v, err := send(ctx, clusterNodes)
			if err == nil {
				text, err = v.Text()
			}
			return err
		}); failed != nil {
			err = failed
			continue
		}
		known, serves, itself := readNodes(text, &s)
		if itself {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !known || !serves && c.heirs.owned[id] {
			return fail(errNoMaster)
		}
		s.Addr = c.cfg.dialAddr(s.Addr)
		s.Bare = c.heirs.first[id] && !c.heirs.had[id] && s.Replicas == 0
		if c.heirs.named == nil || len(c.heirs.named) >= maxNamed {
			c.heirs.named = make(map[string]conn.Succession)
		}
		c.heirs.named[id] = s
		return s, nil
	}
	return fail(err)
}

// readNodes reads what a reply to CLUSTER NODES says of the node s.Master: whether it is a master that has not failed, at which
// address, whether it serves slots, and how many replicas it has that have not failed. itself says that the reply is its own.
//
// A line is such as "id 10.0.0.1:6379@16379,name flags master ping pong epoch connected 0-5460 5462".
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
			s.Addr, _, _ = strings.Cut(fields[1], "@")
		case fields[3] == s.Master && has("slave"):
			s.Replicas++
		}
	}
	return known, serves, false
}
