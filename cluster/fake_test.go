package cluster_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// The nodes of a fake cluster share the slots evenly. Each node serves one of keyA, keyB and keyC.
const (
	nodeA, nodeB, nodeC = "10.0.0.1:7001", "10.0.0.2:7002", "10.0.0.3:7003"

	keyA, keyB, keyC    = "mylock", "c", "foo"
	slotA, slotB, slotC = 1711, 7365, 12182
)

// fakes is a cluster of scripted nodes in memory.
type fakes struct {
	t     *testing.T
	nodes map[string]*fakeredis.Server

	mu      sync.Mutex
	ranges  []fakeRange
	raw     map[string]string                                // replacements for a node's answer to CLUSTER SLOTS
	hooks   map[string]func(fakeredis.Cmd) *fakeredis.Action // by node; nil runs the command
	asks    int                                              // number of CLUSTER SLOTS commands, over all nodes
	alias   map[string]string                                // additional addresses of nodes
	dialled []string
}

type fakeRange struct {
	first, last int
	addr        string
}

// bubble runs fn in virtual time, in RESP3 and in RESP2, with three nodes and a Cluster of them.
func bubble(t *testing.T, cfg cluster.Config, fn func(t *testing.T, f *fakes, c *cluster.Cluster)) {
	t.Helper()
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		cfg := cfg
		if cfg.Addrs == nil {
			cfg.Addrs = []string{nodeA}
		}
		cfg.Node.Protocol = proto
		fn(t, f, f.open(cfg))
	})
}

// bareBubble is bubble without the Cluster.
func bareBubble(t *testing.T, fn func(t *testing.T, f *fakes, proto int)) {
	t.Helper()
	for _, proto := range []int{3, 2} {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakes(t)
				defer f.close()
				fn(t, f, proto)
			})
		})
	}
}

// newFakes makes the three nodes. t may be nil for an example, which uses only config and close.
func newFakes(t *testing.T) *fakes {
	f := &fakes{
		t:      t,
		nodes:  map[string]*fakeredis.Server{},
		ranges: []fakeRange{{0, 5460, nodeA}, {5461, 10922, nodeB}, {10923, 16383, nodeC}},
		raw:    map[string]string{},
		hooks:  map[string]func(fakeredis.Cmd) *fakeredis.Action{},
		alias:  map[string]string{},
	}
	for _, addr := range []string{nodeA, nodeB, nodeC} {
		f.add(addr)
	}
	return f
}

func (f *fakes) close() {
	for _, s := range f.nodes {
		s.Close()
	}
}

// add adds a node without slots.
func (f *fakes) add(addr string) *fakeredis.Server {
	s := fakeredis.New()
	f.nodes[addr] = s
	s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return f.intercept(addr, cmd) })
	return s
}

func (f *fakes) intercept(addr string, cmd fakeredis.Cmd) fakeredis.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	if hook := f.hooks[addr]; hook != nil {
		if act := hook(cmd); act != nil {
			return *act
		}
	}
	switch {
	case cmd.Name == "ASKING":
		return fakeredis.Reply("+OK\r\n")
	case strings.EqualFold(cmd.String(), "CLUSTER SLOTS"):
		f.asks++
		if raw, ok := f.raw[addr]; ok {
			return fakeredis.Reply(raw)
		}
		return fakeredis.Reply(f.slotsLocked())
	}
	return fakeredis.Run()
}

func (f *fakes) slotsLocked() string {
	wire := fmt.Sprintf("*%d|", len(f.ranges))
	for _, r := range f.ranges {
		o := strings.LastIndexByte(r.addr, ':')
		wire += fmt.Sprintf("*3|:%d|:%d|*2|%s:%s|", r.first, r.last, str(r.addr[:o]), r.addr[o+1:])
	}
	return strings.ReplaceAll(wire, "|", "\r\n")
}

// dial is conn.Config.Dial.
func (f *fakes) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dialled = append(f.dialled, addr)
	to := addr
	if a, ok := f.alias[addr]; ok {
		to = a
	}
	s := f.nodes[to]
	f.mu.Unlock()
	if s == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return s.Dial(ctx, network, addr)
}

func (f *fakes) config(cfg cluster.Config) cluster.Config {
	cfg.Node.Dial = f.dial
	return cfg
}

func (f *fakes) open(cfg cluster.Config) *cluster.Cluster {
	f.t.Helper()
	c, err := cluster.Open(f.t.Context(), f.config(cfg))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// serve sets the owners of the slots.
func (f *fakes) serve(ranges ...fakeRange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ranges = ranges
}

// says sets a node's answer to CLUSTER SLOTS, in wire format.
func (f *fakes) says(addr, wire string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raw[addr] = strings.ReplaceAll(wire, "|", "\r\n")
}

// hook lets fn decide about the commands of a node. A nil action runs the command.
func (f *fakes) hook(addr string, fn func(fakeredis.Cmd) *fakeredis.Action) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks[addr] = fn
}

// answer makes a node reply raw to each command of a name, a number of times, or for ever if times
// is 0.
func (f *fakes) answer(addr, name, raw string, times int) {
	n := 0
	f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
		if cmd.Name != name || times > 0 && n >= times {
			return nil
		}
		n++
		act := fakeredis.Reply(raw + "\r\n")
		return &act
	})
}

// refuseTx makes a node reply raw to each INCR in a transaction, and refuse EXEC afterwards.
func (f *fakes) refuseTx(addr, raw string) {
	open := false
	f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
		act := fakeredis.Reply("+QUEUED\r\n")
		switch {
		case cmd.Name == "MULTI":
			open = true
			act = fakeredis.Reply("+OK\r\n")
		case !open:
			return nil
		case cmd.Name == "INCR":
			act = fakeredis.Reply(raw + "\r\n")
		case cmd.Name == "EXEC":
			open = false
			act = fakeredis.Reply("-EXECABORT Transaction discarded because of previous errors.\r\n")
		}
		return &act
	})
}

// refreshes returns the number of requests for the topology.
func (f *fakes) refreshes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asks
}

// dials returns the number of dials of an address.
func (f *fakes) dials(addr string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.dialled {
		if a == addr {
			n++
		}
	}
	return n
}

// wantCounts checks the number of commands of a name that each node has received.
func (f *fakes) wantCounts(name string, a, b, c int) {
	f.t.Helper()
	for i, addr := range []string{nodeA, nodeB, nodeC} {
		if got, want := f.nodes[addr].Count(name), []int{a, b, c}[i]; got != want {
			f.t.Errorf("%s got %d %s, want %d", addr, got, name, want)
		}
	}
}

// wantText checks the reply to a command.
func wantText(t *testing.T, c conn.Doer, want string, args ...any) {
	t.Helper()
	v, err := c.Send(t.Context(), resp.Cmd(args...))
	if err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
	if got, err := v.Text(); err != nil || got != want {
		t.Fatalf("%v: %q, %v, want %q", args[0], got, err, want)
	}
}

// took checks the duration of fn.
func took(t *testing.T, least, most time.Duration, fn func()) {
	t.Helper()
	start := time.Now()
	fn()
	if d := time.Since(start); d < least || d > most {
		t.Errorf("it took %v, want %v to %v", d, least, most)
	}
}
