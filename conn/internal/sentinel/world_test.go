package sentinel_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/resp"
)

// The servers and sentinels of the tests.
const (
	serverA, serverB = "10.0.0.1:6379", "10.0.0.2:6379"
	one, two, three  = "10.0.1.1:26379", "10.0.1.2:26379", "10.0.1.3:26379"
)

var (
	errDown     = errors.New("down")
	errReplica  = errors.New("a replica")
	errPassword = resp.Error("WRONGPASS no")
)

// view is what one sentinel says.
type view struct {
	master   string // "" knows none
	id       string // of the master; "" for one made of its address
	epoch    int
	others   []string
	flags    string // of the master; "" is master
	quorum   string // reply to ckquorum; "" is OK
	replicas []string
}

// world is the other side of a Resolver: sentinels with their views, and servers.
type world struct {
	mu       sync.Mutex
	views    map[string]view  // the sentinels that answer
	hung     string           // a sentinel without an answer
	servers  map[string]error // nil for a master
	dials    []string         // servers dialed
	open     int              // connections to servers
	during   func()           // called once, at the end of the next dial that succeeds
	asks     []time.Time      // connections to sentinels
	switches []string         // "from>to"
	streams  []*stream
}

// newWorld returns a world in which all sentinels name serverA.
func newWorld() *world {
	w := &world{views: make(map[string]view), servers: map[string]error{serverA: nil, serverB: errReplica}}
	for _, addr := range []string{one, two, three} {
		w.views[addr] = view{master: serverA, epoch: 1}
	}
	return w
}

// promote makes serverB the master. The sentinels named learn it.
func (w *world) promote(epoch int, sentinels ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[serverA], w.servers[serverB] = errDown, nil
	for _, addr := range sentinels {
		w.views[addr] = view{master: serverB, epoch: epoch}
	}
}

// resolver returns a Resolver for the world, which polls every ten seconds.
func (w *world) resolver(sentinels ...string) *sentinel.Resolver {
	return sentinel.New(sentinel.Config{
		Master:       "mymaster",
		Addrs:        sentinels,
		Timeout:      time.Second,
		PollInterval: 10 * time.Second,
		Map:          func(announced string) string { return announced },
		Dial:         w.dial,
		Ask:          w.ask,
		Failure:      func(addr string, err error) error { return fmt.Errorf("dial %s: %w", addr, err) },
		Warn:         func(string, ...any) {},
		Checked:      func(time.Time, string, *pipeline.Session, error) {},
		Go: func(run func(ctx context.Context)) error {
			go run(context.Background())
			return nil
		},
		OnSwitch: func(from, to string, seq uint64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.switches = append(w.switches, fmt.Sprintf("%s>%s %d", from, to, seq))
		},
	})
}

// follow runs Follow and Watch until stop.
func follow(r *sentinel.Resolver) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Follow(ctx) })
	wg.Go(func() { r.Watch(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// asked returns the number of connections to sentinels.
func (w *world) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asks)
}

// dialled returns the servers dialed.
func (w *world) dialled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dials)
}

// lastSwitch returns the last change of the master.
func (w *world) lastSwitch() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.switches[len(w.switches)-1]
}

func (w *world) dial(_ context.Context, announced string) (*pipeline.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = append(w.dials, announced)
	if err := w.servers[announced]; err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	_ = server.Close()
	w.open++
	nc := &counted{Conn: client, w: w}
	s := pipeline.NewSession(nc, nc, resp.Limits{})
	s.Addr = announced
	if during := w.during; during != nil {
		w.during = nil
		w.mu.Unlock()
		during()
		w.mu.Lock()
	}
	return s, nil
}

// counted is a connection to a server, counted in open.
type counted struct {
	net.Conn
	w *world
}

func (c *counted) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.open--
	return c.Conn.Close()
}

func (w *world) ask(ctx context.Context, _, addr string) (sentinel.Stream, error) {
	if addr == w.hung {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks = append(w.asks, time.Now())
	if _, ok := w.views[addr]; !ok {
		return nil, errDown
	}
	s := &stream{w: w, addr: addr, replies: make(chan resp.Value, 64), closed: make(chan struct{})}
	w.streams = append(w.streams, s)
	return s, nil
}

// announce publishes a change of the master on all subscriptions.
func (w *world) announce(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := "mymaster " + strings.ReplaceAll(from+" "+to, ":", " ")
	for _, s := range w.streams {
		if s.subscribed {
			s.replies <- value(array(bulk("message"), bulk("+switch-master"), bulk(text)))
		}
	}
}

// stream is a connection to a sentinel.
type stream struct {
	w          *world
	addr       string
	replies    chan resp.Value
	subscribed bool // guarded by the world's mu
	once       sync.Once
	closed     chan struct{}
}

func (s *stream) Read() (resp.Value, error) {
	select {
	case v := <-s.replies:
		return v, nil
	case <-s.closed:
		return resp.Value{}, io.ErrClosedPipe
	}
}

func (s *stream) Write(_ context.Context, cmds ...resp.Command) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	v := s.w.views[s.addr]
	for _, cmd := range cmds {
		if cmd.Name() == "SUBSCRIBE" {
			s.subscribed = true
		}
		s.replies <- value(v.reply(cmd))
	}
	return nil
}

func (s *stream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// reply returns the sentinel's reply to cmd, in wire format.
func (v view) reply(cmd resp.Command) string {
	switch words := cmd.Name() + " " + cmd.Arg(1); words {
	case "SENTINEL get-master-addr-by-name":
		if v.master == "" {
			return "*-1\r\n"
		}
		host, port, _ := strings.Cut(v.master, ":")
		return array(bulk(host), bulk(port))
	case "SENTINEL master":
		flags := v.flags
		if flags == "" {
			flags = "master"
		}
		return array(append(address(v.master), bulk("config-epoch"), bulk(fmt.Sprint(v.epoch)), bulk("flags"), bulk(flags), bulk("runid"), bulk(cmp.Or(v.id, "id of "+v.master)))...)
	case "SENTINEL sentinels":
		var list []string
		for _, addr := range v.others {
			list = append(list, array(address(addr)...))
		}
		return array(list...)
	case "SENTINEL replicas":
		return array(v.replicas...)
	case "SENTINEL ckquorum":
		if v.quorum != "" {
			return v.quorum
		}
		return "+OK\r\n"
	case "INFO server":
		return "-NOPERM no\r\n"
	case "SUBSCRIBE +switch-master":
		return array(bulk("subscribe"), bulk("+switch-master"), ":1\r\n")
	}
	return "+PONG\r\n"
}

func address(addr string) []string {
	host, port, _ := strings.Cut(addr, ":")
	return []string{bulk("ip"), bulk(host), bulk("port"), bulk(port)}
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func array(elements ...string) string {
	return fmt.Sprintf("*%d\r\n%s", len(elements), strings.Join(elements, ""))
}

// value parses a reply.
func value(wire string) resp.Value {
	v, err := resp.NewReader(strings.NewReader(wire), resp.Limits{}).Read()
	if err != nil {
		panic(err)
	}
	return v
}

// bubble runs fn in virtual time.
func bubble(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, newWorld()) })
}

// lands fails the test unless Dial leads to addr.
func lands(t *testing.T, r *sentinel.Resolver, addr string) {
	t.Helper()
	s, err := r.Dial(t.Context())
	if err != nil {
		t.Fatalf("Dial = %v, want a connection to %s", err, addr)
	}
	s.HangUp()
	if s.Addr != addr || r.Known() != addr {
		t.Fatalf("Dial led to %s, and the known master is %s, want %s", s.Addr, r.Known(), addr)
	}
}
