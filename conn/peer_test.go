package conn_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// secret is the password of all scripted peers. No error may contain it.
const secret = "s3cr3t-Pa55"

// peer is the server's end of a scripted connection. The script calls its methods, which fail the test on unexpected
// input.
type peer struct {
	net.Conn
	t      testing.TB
	closed <-chan struct{} // closes when the client closes; nil unless in memory
}

// clientEnd is the client's end of a connection in memory.
type clientEnd struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *clientEnd) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// expect reads one whole write of the client, which must consist of the given commands; spaces separate their words.
func (p *peer) expect(commands ...string) bool {
	p.t.Helper()
	want := ""
	for _, c := range commands {
		want += encode(c)
	}
	if got := p.written(); got != want {
		p.t.Errorf("client wrote %q, want %q", got, want)
		return false
	}
	return true
}

// written returns one write of the client, or "" after the client has closed. It replaces the library's version,
// which depends on the build, by devel.
func (p *peer) written() string {
	b := make([]byte, 64<<10)
	n, _ := p.Read(b)
	return version.ReplaceAllString(string(b[:n]), "LIB-VER\r\n$$5\r\ndevel")
}

var version = regexp.MustCompile(`LIB-VER\r\n\$\d+\r\nv[^\r]+`)

// reply sends replies in wire format, with | in place of \r\n.
func (p *peer) reply(replies ...string) {
	for _, r := range replies {
		if _, err := p.Write([]byte(strings.ReplaceAll(r, "|", "\r\n"))); err != nil {
			return // the client has closed
		}
	}
}

// expectClose waits for the client to close without another write.
func (p *peer) expectClose() {
	p.t.Helper()
	if got := p.written(); got != "" {
		p.t.Errorf("client wrote %q, want the connection closed", got)
	}
}

// welcome completes the shortest possible handshake.
func (p *peer) welcome() bool {
	p.t.Helper()
	if !p.expect("HELLO 3", libName, libVersion) {
		return false
	}
	p.reply(hello3, "+OK|", "+OK|")
	return true
}

const (
	hello3     = "%2|$6|server|$5|redis|$5|proto|:3|"
	libName    = "CLIENT SETINFO LIB-NAME lockwire"
	libVersion = "CLIENT SETINFO LIB-VER devel"
)

func encode(command string) string {
	var args []any
	for w := range strings.SplitSeq(command, " ") {
		args = append(args, w)
	}
	return string(resp.Cmd(args...).AppendTo(nil))
}

// scripted returns a Config whose n-th dial gets an in-memory connection to the n-th script; an extra dial fails.
// Connections are synchronous: one write of the client is one read of the peer.
func scripted(t testing.TB, scripts ...func(p *peer)) conn.Config {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	t.Cleanup(func() {
		wg.Wait()
		if next != len(scripts) {
			t.Errorf("client dialled %d times, want %d", next, len(scripts))
		}
	})
	return conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(scripts) {
			t.Error("client dialled more often than scripted")
			return nil, errors.New("no script for this dial")
		}
		script := scripts[next]
		next++
		client, server := net.Pipe()
		closed := make(chan struct{})
		wg.Go(func() {
			defer server.Close()
			script(&peer{Conn: server, t: t, closed: closed})
		})
		return &clientEnd{Conn: client, closed: closed}, nil
	}}
}

// open dials a Stream, fails the test on an error, and closes the Stream at the end of the test.
func open(t testing.TB, cfg conn.Config) *conn.Stream {
	t.Helper()
	s, err := conn.DialStream(t.Context(), cfg)
	if err != nil {
		t.Fatalf("DialStream = %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// refused dials a Stream, fails the test without an error, and checks the properties of every dial's error.
func refused(t testing.TB, ctx context.Context, cfg conn.Config) error {
	t.Helper()
	s, err := conn.DialStream(ctx, cfg)
	if err == nil {
		s.Close()
		t.Fatal("DialStream succeeded, want an error")
	}
	checkDialError(t, err)
	return err
}

func checkDialError(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, conn.ErrNotSent) || errors.Is(err, conn.ErrUncertain) || !conn.SafeToRetry(err) {
		t.Errorf("error of a dial is not ErrNotSent: %v", err)
	}
	if e, ok := errors.AsType[*conn.Error](err); !ok || e.Op != "dial" {
		t.Errorf("error of a dial is not a *conn.Error with Op dial: %v", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("error holds the password: %v", err)
	}
}

func ping(t testing.TB, s *conn.Stream) {
	t.Helper()
	if err := s.Write(t.Context(), resp.Cmd("PING")); err != nil {
		t.Fatalf("Write = %v", err)
	}
	v, err := s.Read()
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	if text, err := v.Text(); text != "PONG" || err != nil {
		t.Fatalf("reply to PING = %q, %v; want PONG", text, err)
	}
}

// answerPing answers one ping and waits for the client to close.
func (p *peer) answerPing() {
	p.t.Helper()
	if p.expect("PING") {
		p.reply("+PONG|")
	}
	p.expectClose()
}

// Addresses of a fleet.
const (
	serverA, serverB, serverC       = "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"
	sentinelA, sentinelB, sentinelC = "10.1.0.1:26379", "10.1.0.2:26379", "10.1.0.3:26379"
)

// fleet is three servers, one of them the master, and three sentinels, each with its own view.
type fleet struct {
	t     testing.TB
	nodes map[string]*fakeredis.Server

	mu       sync.Mutex
	master   map[string]bool  // the role that each server reports
	views    map[string]*view // the views of the sentinels
	dials    []fleetDial      // dials to all nodes
	silent   map[string]bool  // sentinels without epochs
	replicas []string         // a sentinel's description of each replica
	minority bool             // the sentinels do not reach a majority
	flags    string           // of the master, as the sentinels see it
}

// view is a sentinel's answer.
type view struct {
	master string // "" for null
	epoch  int
	others []string
	hello  string // the age of the last announcement of each of the others in ms; "" for one of a moment ago
	fresh  bool   // it has just started
}

type fleetDial struct {
	at   time.Time
	addr string
}

// inFleet runs fn in a bubble with a fleet, whose master is serverA.
func inFleet(t *testing.T, fn func(t *testing.T, f *fleet)) {
	t.Helper()
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprintf("resp%d", proto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				fn(t, f)
				for _, srv := range f.nodes {
					srv.Close()
				}
			})
		})
	}
}

func newFleet(t testing.TB) *fleet {
	f := &fleet{
		t: t, nodes: map[string]*fakeredis.Server{}, master: map[string]bool{serverA: true},
		views: map[string]*view{}, silent: map[string]bool{},
	}
	for _, addr := range []string{serverA, serverB, serverC} {
		srv := fakeredis.New()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return f.serve(addr, cmd) })
		f.nodes[addr] = srv
	}
	for _, addr := range []string{sentinelA, sentinelB, sentinelC} {
		srv := fakeredis.New()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return f.answer(addr, cmd) })
		f.nodes[addr] = srv
		f.views[addr] = &view{master: serverA, epoch: 1}
	}
	return f
}

// serve is a server that refuses writes unless it is a master.
func (f *fleet) serve(addr string, cmd fakeredis.Cmd) fakeredis.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.master[addr]:
	case cmd.Name == "ROLE":
		return fakeredis.Reply("*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:6379\r\n$9\r\nconnected\r\n:1\r\n")
	case cmd.Name == "SET" || cmd.Name == "INCR":
		return fakeredis.Reply("-READONLY You can't write against a read only replica.\r\n")
	}
	return fakeredis.Run()
}

// answer is a sentinel that supports SENTINEL and the commands for connections and channels.
func (f *fleet) answer(addr string, cmd fakeredis.Cmd) fakeredis.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.views[addr]
	switch {
	case cmd.Name == "INFO" && !v.fresh:
		return fakeredis.Reply("$24\r\nuptime_in_seconds:3600\r\n\r\n")
	case cmd.Name != "SENTINEL":
		return fakeredis.Run()
	}
	if cmd.Args[2] != "prime" || v.master == "" {
		return fakeredis.Reply("*-1\r\n")
	}
	host, port, _ := net.SplitHostPort(v.master)
	switch strings.ToLower(cmd.Args[1]) {
	case "get-master-addr-by-name":
		return fakeredis.Reply(bulks(host, port))
	case "master":
		if f.silent[addr] {
			return fakeredis.Reply("-ERR unknown subcommand\r\n")
		}
		return fakeredis.Reply(bulks("name", "prime", "ip", host, "port", port, "flags", f.flags, "config-epoch", fmt.Sprint(v.epoch)))
	case "sentinels":
		reply := fmt.Sprintf("*%d\r\n", len(v.others))
		for _, other := range v.others {
			host, port, _ := net.SplitHostPort(other)
			reply += bulks("name", "x", "ip", host, "port", port, "last-hello-message", cmp.Or(v.hello, "2100"))
		}
		return fakeredis.Reply(reply)
	case "replicas":
		return fakeredis.Reply(fmt.Sprintf("*%d\r\n", len(f.replicas)) + strings.Join(f.replicas, ""))
	case "ckquorum":
		if f.minority {
			return fakeredis.Reply("-NOQUORUM 1 usable Sentinels.\r\n")
		}
		return fakeredis.Reply("+OK 3 usable Sentinels.\r\n")
	}
	return fakeredis.Run()
}

// answers makes a sentinel answer each command of a name by act.
func (f *fleet) answers(addr, name string, act fakeredis.Action) {
	f.nodes[addr].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == name {
			return act
		}
		return f.answer(addr, cmd)
	})
}

func bulks(words ...string) string {
	b := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		b += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// Dial connects to the node at addr.
func (f *fleet) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, fleetDial{time.Now(), addr})
	f.mu.Unlock()
	if srv := f.nodes[addr]; srv != nil {
		return srv.Dial(ctx, network, addr)
	}
	return nil, syscall.ECONNREFUSED
}

// config returns a Config with the given sentinels, by default all three.
func (f *fleet) config(sentinels ...string) conn.Config {
	if len(sentinels) == 0 {
		sentinels = []string{sentinelA, sentinelB, sentinelC}
	}
	proto := 3
	if strings.HasSuffix(f.t.Name(), "resp2") {
		proto = 2
	}
	return conn.Config{
		Protocol: proto, Dial: f.Dial,
		Sentinel: conn.Sentinel{Master: "prime", Addrs: sentinels},
	}
}

// promote makes another server the master and the others replicas. The sentinels keep their views.
func (f *fleet) promote(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.master)
	f.master[addr] = true
}

// tell changes the view of the named sentinels, or of all sentinels.
func (f *fleet) tell(master string, epoch int, sentinels ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(sentinels) == 0 {
		sentinels = []string{sentinelA, sentinelB, sentinelC}
	}
	for _, s := range sentinels {
		f.views[s].master, f.views[s].epoch = master, epoch
	}
}

// introduce sets the other sentinels named by a sentinel.
func (f *fleet) introduce(sentinel string, others ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.views[sentinel].others = others
}

// forget clears the record of dials.
func (f *fleet) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials = nil
}

// announce publishes a switch on all sentinels.
func (f *fleet) announce(from, to string) {
	a, b, _ := strings.Cut(from, ":")
	c, d, _ := strings.Cut(to, ":")
	for _, s := range []string{sentinelA, sentinelB, sentinelC} {
		f.nodes[s].Do("PUBLISH", "+switch-master", strings.Join([]string{"prime", a, b, c, d}, " "))
	}
}

// dialled returns the times of dials to the given nodes.
func (f *fleet) dialled(addrs ...string) (times []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.dials {
		for _, addr := range addrs {
			if d.addr == addr {
				times = append(times, d.at)
			}
		}
	}
	return times
}

// densest returns the largest number of times within a second.
func densest(times []time.Time) (most int) {
	for i := range times {
		n := 0
		for _, t := range times[i:] {
			if t.Sub(times[i]) < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// holds reports whether a server's key k has the value.
func (f *fleet) holds(addr, value string) bool { return f.nodes[addr].Do("GET", "k") == any(value) }

// echoServer is a server on a kernel socket that answers ECHO; the test may write to the client too.
type echoServer struct {
	ln net.Listener
	wg sync.WaitGroup

	mu   sync.Mutex
	last net.Conn // the last accepted connection
}

// newEchoServer starts a server, with TLS if secure is set.
func newEchoServer(t *testing.T, secure *tls.Config) *echoServer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	s := &echoServer{ln: ln}
	s.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.last = nc
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(nc) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		s.wg.Wait()
	})
	return s
}

func (s *echoServer) serve(nc net.Conn) {
	defer nc.Close()
	r := resp.NewReader(bufio.NewReader(nc), resp.Limits{})
	for {
		v, err := r.Read()
		if err != nil {
			return
		}
		name, _ := v.At(0).Text()
		reply := "+OK\r\n"
		switch strings.ToUpper(name) {
		case "HELLO":
			reply = "%1\r\n$5\r\nproto\r\n:3\r\n"
		case "ECHO":
			word, _ := v.At(1).Text()
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
		if _, err := nc.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// disturb writes b to the client, or closes the connection if b is empty. On return the client's kernel has received
// the bytes or the end.
func (s *echoServer) disturb(unasked string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unasked == "" {
		s.last.Close()
		return
	}
	s.last.Write([]byte(unasked))
}

// TestUnaskedInSocket: an event coincides with the next call: an unsolicited reply, one behind a push, a push, or the
// end. No call gets an answer other than its own.
func TestUnaskedInSocket(t *testing.T) {
	for name, unasked := range map[string]string{
		"stray": "_\r\n", "stray behind push": ">1\r\n+x\r\n_\r\n", "push": ">1\r\n+x\r\n", "close": "",
	} {
		for _, ending := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ending=%v", name, ending), func(t *testing.T) {
				testUnasked(t, unasked, ending, nil)
			})
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fmt.Sprintf("%s, %s", name, tls.VersionName(version)), func(t *testing.T) {
				ca := newAuthority(t)
				testUnasked(t, unasked, true, &tls.Config{Certificates: []tls.Certificate{ca.issue("x")}, MinVersion: version, MaxVersion: version})
			})
		}
	}
}

func testUnasked(t *testing.T, unasked string, ending bool, secure *tls.Config) {
	const calls = 300
	s := newEchoServer(t, secure)
	cfg := conn.Config{Addr: s.ln.Addr().String()}
	if secure != nil {
		cfg.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	p := openPool(t, cfg)
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !ending {
		ctx = context.Background()
	}
	lost := 0
	for i := range calls {
		echo(t, ctx, p, i)
		s.disturb(unasked)
		v, err := p.Do(ctx, "ECHO", i)
		if got, _ := v.Int(); err == nil && got != int64(i) {
			t.Fatalf("ECHO %d = %d: the answer of another call", i, got)
		} else if err != nil {
			wantUncertain(t, err, conn.ErrUncertain)
			lost++
		}
	}
	most := calls // after an unsolicited reply a call may fail
	switch {
	case unasked == "":
		most = calls / 4 // sometimes the bytes were read, but not parsed, when the connection ended
	case !strings.Contains(unasked, "_"):
		most = 0
	}
	if lost > most {
		t.Errorf("%d of %d calls failed, want at most %d", lost, calls, most)
	}
}
