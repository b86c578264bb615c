package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/resp"
)

// errNoVote means that a server's answer does not count, since the server may have forgotten earlier grants.
var errNoVote = errors.New("lock: the server has no vote")

// identity is a client's knowledge of the process behind its server's address.
type identity struct {
	asked atomic.Bool // the server was asked for its identity outside a vote

	mu      sync.Mutex    // guards the following
	runID   string        // "" until known
	changed bool          // not the first process at this address
	moved   bool          // the process was up before its predecessor was last seen: another server, not a restart
	first   clock.Instant // the time of the first sight
	last    clock.Instant // the time of the last sight
}

func (d *identity) known() bool { return d.id() != "" }

func (d *identity) id() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runID
}

// note records the reply to an INFO sent after start, if the reply identifies the server. note returns the minimum
// time for which the process has been at this address, as far as the client knows.
func (d *identity) note(info resp.Value, start clock.Instant) (age time.Duration, ok bool) {
	runID, age, ok := parseServerInfo(info)
	if !ok {
		return 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if runID != d.runID {
		d.changed = d.runID != ""
		d.moved = d.changed && age >= d.last.AtLeast(start)
		d.runID, d.first = runID, start
	}
	d.last = start
	if d.changed {
		age = min(age, d.first.AtLeast(start))
	}
	return age, true
}

// parseServerInfo parses the run id and the minimum uptime in a reply to INFO. The reported seconds are the
// difference of two times, each rounded down.
func parseServerInfo(info resp.Value) (runID string, age time.Duration, ok bool) {
	text, err := info.Text()
	if err != nil {
		return "", 0, false
	}
	seconds := int64(-1)
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "run_id":
			runID = value
		case "uptime_in_seconds":
			if n, err := strconv.ParseInt(value, 10, 32); err == nil {
				seconds = n
			}
		}
	}
	return runID, time.Duration(max(0, seconds-1)) * time.Second, runID != "" && seconds >= 0
}

// vouch returns nil if the server certainly remembers all earlier grants that still count. info came with a grant,
// and neither is older than start.
func (c *Client) vouch(ctx context.Context, info resp.Value, start clock.Instant, quarantine time.Duration) error {
	age, ok := c.identity.note(info, start)
	if !ok {
		return fmt.Errorf("%w: INFO lacks its run_id or its uptime", errNoVote)
	}
	if age-start.Elapsed(c.now()) >= quarantine {
		return nil
	}
	c.identity.mu.Lock()
	moved := c.identity.moved
	c.identity.mu.Unlock()
	if !moved && c.durable(ctx) {
		return nil
	}
	return fmt.Errorf("%w: it started less than %v ago", errNoVote, age+2*time.Second)
}

// durable reports whether the server writes each grant to disk before the reply.
func (c *Client) durable(ctx context.Context) bool {
	for name, want := range map[string]string{"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"} {
		v, err := c.server.Send(c.patient(ctx), resp.Cmd("CONFIG", "GET", name))
		if err != nil {
			return false
		}
		value := ""
		pairs, err := v.Pairs()
		if err != nil {
			return false
		}
		for k, e := range pairs {
			if text, _ := k.Text(); text == name {
				value, _ = e.Text()
			}
		}
		if value != want {
			return false
		}
	}
	return true
}

// identify returns an error if two of the servers are one. Each client asks its server once for an unknown identity;
// a server that does not answer in time is identified with its vote.
func (r *Redlock) identify(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = atOnce(r.nodes, func(_ int, h *Handle) error {
		c := h.client
		if c.identity.known() || c.identity.asked.Swap(true) {
			return nil
		}
		start := c.now()
		if v, err := c.server.Send(c.patient(ctx), resp.Cmd("INFO", "server")); err == nil {
			c.identity.note(v, start)
		}
		return nil
	})
	return r.distinct()
}

// distinct returns an error if two of the servers are known to be one.
func (r *Redlock) distinct() error {
	seen := make(map[string]bool, len(r.nodes))
	for _, h := range r.nodes {
		id := h.client.identity.id()
		if id != "" && seen[id] {
			return invalidf("a Redlock with two nodes on one server")
		}
		seen[id] = true
	}
	return nil
}

// gates admits the callers of one process one at a time per lock, in order of arrival. The zero gates are ready.
type gates struct {
	mu      sync.Mutex
	lines   map[entryKey][]chan struct{} // by lock; the first channel is closed and its caller admitted; guarded by mu
	streaks map[entryKey]streak          // by lock, of processes that others wait for; guarded by mu
}

// enter puts the caller at the end of the line. turn closes when the caller is admitted. leave removes the caller
// from any place in the line.
func (g *gates) enter(key entryKey) (turn <-chan struct{}, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enterLocked(key)
}

// tryEnter is enter without waiting.
func (g *gates) tryEnter(key entryKey) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lines[key]) > 0 {
		return nil, false
	}
	_, leave = g.enterLocked(key)
	return leave, true
}

func (g *gates) enterLocked(key entryKey) (<-chan struct{}, func()) {
	if g.lines == nil {
		g.lines = make(map[entryKey][]chan struct{})
	}
	own := make(chan struct{})
	line := g.lines[key]
	if len(line) == 0 {
		close(own)
	}
	g.lines[key] = append(line, own)
	return own, func() { g.leave(key, own) }
}

// leave has no effect at the second call.
func (g *gates) leave(key entryKey, own chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.lines[key] {
		if c != own {
			continue
		}
		line := append(g.lines[key][:i], g.lines[key][i+1:]...)
		if g.lines[key] = line; len(line) == 0 {
			delete(g.lines, key)
		} else if i == 0 {
			close(line[0])
		}
		return
	}
}
