package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// within returns a context that ends with the test, or after a time longer than any step of a test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens a Cluster that is closed at the end of the test.
func open(t testing.TB, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Open(within(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

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

// loadTime returns the duration of a test's load: LOCKWIRE_TORTURE_TIME, or short by default.
func loadTime(t *testing.T, short time.Duration) time.Duration {
	text := os.Getenv("LOCKWIRE_TORTURE_TIME")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("LOCKWIRE_TORTURE_TIME: %v", err)
	}
	return d
}

// load is a set of callers that count in the keys of a cluster, through every method that sends
// commands.
type load struct {
	t    *testing.T
	c    *cluster.Cluster
	keys []counter
	stop context.CancelFunc
	ctx  context.Context
	wg   sync.WaitGroup

	calls  atomic.Int64
	failed atomic.Int64          // calls that certainly ran nothing
	mayErr func(key string) bool // whether a call on the key may fail; nil: no call may
}

// counter is a key with the known outcomes of its calls.
type counter struct {
	name      string
	done      atomic.Int64 // acknowledged
	uncertain atomic.Int64
}

var incr = script.New("return redis.call('INCR', KEYS[1])")

// loads distinguishes the keys of successive loads, because a replica that takes over may bring
// deleted keys back.
var loads atomic.Int64

// startLoad begins to count in perTag keys of each tag.
func startLoad(t *testing.T, c *cluster.Cluster, tags []string, perTag int, mayErr func(string) bool) *load {
	l := &load{t: t, c: c, keys: make([]counter, len(tags)*perTag), mayErr: mayErr}
	load := loads.Add(1)
	for i := range l.keys {
		l.keys[i].name = fmt.Sprintf("{%s}%d:%d", tags[i/perTag], load, i%perTag)
	}
	l.ctx, l.stop = context.WithCancel(t.Context())
	for i := range 24 {
		l.wg.Go(func() {
			for n := 0; l.ctx.Err() == nil; n++ {
				l.once(i, perTag)
			}
		})
	}
	return l
}

// once makes one call. The worker decides the kind of call.
func (l *load) once(worker, perTag int) {
	at := rand.IntN(len(l.keys))
	k := &l.keys[at]
	sibling := &l.keys[at/perTag*perTag+rand.IntN(perTag)]
	switch worker % 6 {
	case 0, 1:
		_, err := l.c.Do(l.t.Context(), "INCR", k.name)
		l.count(k, err)
	case 2:
		_, err := incr.Run(l.t.Context(), l.c, []string{k.name})
		l.count(k, err)
	case 3:
		l.batch()
	case 4:
		values, err := l.c.Tx(l.t.Context(), []resp.Command{resp.Cmd("INCR", k.name), resp.Cmd("INCR", sibling.name)})
		if err == nil && len(values) != 2 {
			l.t.Errorf("a transaction of 2 has %d replies", len(values))
		}
		l.count(k, err)
		l.count(sibling, err)
	case 5:
		v, err := l.c.Do(l.t.Context(), "MGET", k.name, sibling.name)
		l.calls.Add(1)
		if err != nil && (l.mayErr == nil || !l.mayErr(k.name)) {
			l.t.Errorf("MGET: %v", err)
		} else if err == nil && v.Len() != 2 {
			l.t.Errorf("MGET has %d values", v.Len())
		}
	}
}

func (l *load) batch() {
	keys := make([]*counter, 10)
	cmds := make([]resp.Command, 10)
	for i := range cmds {
		keys[i] = &l.keys[rand.IntN(len(l.keys))]
		cmds[i] = resp.Cmd("INCR", keys[i].name)
	}
	values, err := l.c.SendBatch(l.t.Context(), cmds)
	all, divided := errors.AsType[*cluster.BatchError](err)
	for i, k := range keys {
		var v resp.Value
		outcome := err
		switch {
		case divided:
			v, outcome = all.At(i)
		case i < len(values):
			v, outcome = values[i], nil
		}
		if outcome == nil {
			outcome = v.Err()
		}
		l.count(k, outcome)
	}
}

// count records the outcome of a counting call.
func (l *load) count(k *counter, err error) {
	l.calls.Add(1)
	switch {
	case err == nil:
		k.done.Add(1)
	case l.mayErr == nil || !l.mayErr(k.name):
		l.t.Errorf("%s: %v", k.name, err)
	case errors.Is(err, conn.ErrUncertain):
		k.uncertain.Add(1)
	default:
		l.failed.Add(1)
	}
}

// end ends the load and checks the counters. If acknowledged writes may be lost, end only checks
// that no call counted twice.
func (l *load) end(mayLose bool) {
	l.t.Helper()
	l.stop()
	l.wg.Wait()
	lost := int64(0)
	for i := range l.keys {
		k := &l.keys[i]
		done, uncertain := k.done.Load(), k.uncertain.Load()
		v, err := l.c.Do(l.t.Context(), "GET", k.name)
		if err != nil {
			l.t.Fatalf("%s: %v", k.name, err)
		}
		if v.IsNull() && done > 0 && !mayLose {
			l.t.Errorf("%s is gone", k.name)
			continue
		}
		var n int64
		if !v.IsNull() {
			if n, err = v.Int(); err != nil {
				l.t.Fatal(err)
			}
		}
		if n > done+uncertain || n < done && !mayLose {
			l.t.Errorf("%s is %d, want %d to %d", k.name, n, done, done+uncertain)
		}
		lost += max(done-n, 0)
	}
	l.t.Logf("%d calls, %d failed, %d acknowledged writes lost, %+v", l.calls.Load(), l.failed.Load(), lost, l.c.Stats())
}

// await lets the load continue for d.
func (l *load) await(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// tagsOf returns count tags in slots of a node.
func tagsOf(rc *redistest.Cluster, s *redistest.Server, count int) (tags []string) {
	for i := 0; len(tags) < count; i++ {
		tag := fmt.Sprint("tag", i)
		if rc.Owner(cluster.Slot(tag)) == s {
			tags = append(tags, tag)
		}
	}
	return tags
}
