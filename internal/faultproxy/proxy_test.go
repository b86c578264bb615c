package faultproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const patience = redistest.Patience

// setUp returns a proxy in front of a fake server, which a listener puts on a port.
func setUp(t *testing.T) (*faultproxy.Proxy, *fakeredis.Server) {
	t.Helper()
	srv := fakeredis.New()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { join(srv, nc) })
		}
	})
	p := start(t, "tcp", ln.Addr().String())
	t.Cleanup(func() {
		p.Close()
		_ = ln.Close()
		srv.Close()
		wg.Wait()
	})
	return p, srv
}

// join connects a TCP connection with the fake server until either side ends.
func join(srv *fakeredis.Server, nc net.Conn) {
	defer func() { _ = nc.Close() }()
	fake, err := srv.Dial(context.Background(), "tcp", "fake")
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(fake, nc)
		_ = fake.Close()
	})
	_, _ = io.Copy(nc, fake)
	_ = nc.Close()
	wg.Wait()
}

func start(t *testing.T, network, addr string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

type client struct {
	t  *testing.T
	nc net.Conn
	r  *resp.Reader
}

func dial(t *testing.T, p *faultproxy.Proxy) *client {
	t.Helper()
	nc, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &client{t, nc, resp.NewReader(nc, resp.Limits{})}
}

// send writes commands, each a line of words, at once.
func (c *client) send(lines ...string) {
	c.t.Helper()
	var buf []byte
	for _, line := range lines {
		buf = resp.CmdStrings(strings.Fields(line)).AppendTo(buf)
	}
	if _, err := c.nc.Write(buf); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// expect reads values and compares their texts.
func (c *client) expect(want ...string) {
	c.t.Helper()
	for _, w := range want {
		v, err := c.r.Read()
		if err != nil {
			c.t.Fatalf("read: %v, want %s", err, w)
		}
		if got := text(v); got != w {
			c.t.Fatalf("read %s, want %s", got, w)
		}
	}
}

func text(v resp.Value) string {
	if v.Err() != nil {
		return v.Err().Error()
	}
	if s, err := v.Text(); err == nil {
		return s
	}
	var words []string
	for e := range v.All() {
		words = append(words, text(e))
	}
	return fmt.Sprint(words)
}

func (c *client) expectEnd(want error) {
	c.t.Helper()
	if v, err := c.r.Read(); !errors.Is(err, want) {
		c.t.Fatalf("read %s, %v, want %v", text(v), err, want)
	}
}

// eventually waits until done.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

func lost(t *testing.T, p *faultproxy.Proxy, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " lost"), func() bool { return p.Stats().Lost == n })
}

func TestHandsOn(t *testing.T) {
	p, _ := setUp(t)
	c := dial(t, p)
	big := strings.Repeat("x", 1<<20)
	c.send("SET k "+big, "STRLEN k", "GET k", "PING")
	c.expect("OK", "1048576", big, "PONG")
	if got := p.Count("get"); got != 1 {
		t.Errorf("Count = %d, want 1", got)
	}
	if got := p.Stats(); got != (faultproxy.Stats{Accepted: 1, Open: 1}) {
		t.Errorf("Stats = %+v", got)
	}
	c.send("QUIT")
	c.expect("OK")
	c.expectEnd(io.EOF)
	eventually(t, "link gone", func() bool { return p.Stats().Open == 0 })
}

func TestDropReply(t *testing.T) {
	p, srv := setUp(t)
	p.DropReply("incr", 2)
	p.DropReply("INCR", 4)
	c := dial(t, p)
	c.send("INCR n", "INCR n", "GET n", "INCR n", "INCR n", "PING")
	c.expect("1", "2", "3", "PONG")
	if got := srv.Do("GET", "n"); got != "4" {
		t.Errorf("n = %v: each request must have run once", got)
	}
	p.DropReply("INCR", 1)
	other := dial(t, p)
	other.send("INCR n", "PING")
	other.expect("PONG")
	lost(t, p, 3)
}

func TestDropReplyAmongPushes(t *testing.T) {
	p, srv := setUp(t)
	c := dial(t, p)
	c.send("HELLO 3")
	if _, err := c.r.Read(); err != nil {
		t.Fatal(err)
	}
	srv.Script("push", func(call *fakeredis.Call) any { return call.Publish("news", "x") })
	p.DropReply("INCR", 1)
	p.DropReply("SUBSCRIBE", 2)
	c.send("SUBSCRIBE news", "EVAL push 0", "INCR n", "GET n", "SUBSCRIBE a b", "UNSUBSCRIBE", "EVAL push 0", "PING")
	c.expect("[subscribe news 1]", "[message news x]", "1", "1")
	c.expect("[unsubscribe news 2]", "[unsubscribe a 1]", "[unsubscribe b 0]", "0", "PONG")
	lost(t, p, 3)
}

func TestDropReplyAmongMessagesOfRESP2(t *testing.T) {
	p, srv := setUp(t)
	c := dial(t, p)
	p.DropReply("PING", 2)
	c.send("SUBSCRIBE news")
	c.expect("[subscribe news 1]")
	srv.Do("PUBLISH", "news", "x")
	c.send("PING a", "PING b", "SUBSCRIBE", "PING c")
	c.expect("[message news x]", "[pong a]", "ERR wrong number of arguments for 'subscribe' command", "[pong c]")
}

func TestVerdicts(t *testing.T) {
	tests := map[string]struct {
		verdict faultproxy.Verdict
		replies []string // to INCR n, PING
		n       any      // afterwards
		end     error
	}{
		"deliver":    {faultproxy.Verdict{}, []string{"1", "PONG"}, "1", nil},
		"delay":      {faultproxy.Verdict{Delay: 20 * time.Millisecond}, []string{"1", "PONG"}, "1", nil},
		"lose reply": {faultproxy.Verdict{Fate: faultproxy.LoseReply}, []string{"PONG"}, "1", nil},
		"swallow":    {faultproxy.Verdict{Fate: faultproxy.Swallow}, []string{"PONG"}, nil, nil},
		"cut before": {faultproxy.Verdict{Fate: faultproxy.CutBefore}, nil, nil, io.EOF},
		"cut after":  {faultproxy.Verdict{Fate: faultproxy.CutAfter}, nil, "1", io.EOF},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, srv := setUp(t)
			p.Intercept(func(cmd []string) faultproxy.Verdict {
				if cmd[0] == "INCR" && cmd[1] == "n" {
					return test.verdict
				}
				return faultproxy.Verdict{}
			})
			c := dial(t, p)
			begin := time.Now()
			c.send("INCR n")
			if test.end == nil {
				c.send("PING")
			}
			c.expect(test.replies...)
			if took := time.Since(begin); took < test.verdict.Delay {
				t.Errorf("took %v, want at least %v", took, test.verdict.Delay)
			}
			if test.end != nil {
				c.expectEnd(test.end)
			}
			if got := srv.Do("GET", "n"); got != test.n {
				t.Errorf("n = %v, want %v", got, test.n)
			}
		})
	}
}

func TestTiming(t *testing.T) {
	const d = 30 * time.Millisecond
	tests := map[string]struct {
		set   func(p *faultproxy.Proxy)
		least time.Duration
	}{
		"latency": {func(p *faultproxy.Proxy) { p.Latency(d, 0) }, 2 * d},
		"jitter":  {func(p *faultproxy.Proxy) { p.Latency(d/2, d) }, d},
		"delay":   {func(p *faultproxy.Proxy) { p.Delay("ping", d) }, d},
		"slices":  {func(p *faultproxy.Proxy) { p.Slice(6, d) }, 3 * d},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, _ := setUp(t)
			test.set(p)
			c := dial(t, p)
			begin := time.Now()
			c.send("PING", "ECHO 1", "ECHO 2")
			c.expect("PONG", "1", "2")
			if took := time.Since(begin); took < test.least {
				t.Errorf("took %v, want at least %v", took, test.least)
			}
		})
	}
}

func TestSlicesKeepTheBytes(t *testing.T) {
	p, _ := setUp(t)
	p.Slice(1, 0)
	c := dial(t, p)
	c.send("RPUSH l a b c", "LRANGE l 0 -1", "NOSUCH", "PING")
	c.expect("3", "[a b c]", "ERR unknown command 'NOSUCH'", "PONG")
}

func TestHalfOpen(t *testing.T) {
	tests := map[string]struct {
		dir  faultproxy.Direction
		want string // n after two INCR, the first of which was swallowed in part
	}{
		"requests": {faultproxy.ToServer, "1"},
		"replies":  {faultproxy.ToClient, "2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, srv := setUp(t)
			c := dial(t, p)
			c.send("PING")
			c.expect("PONG")
			p.HalfOpen(test.dir, true)
			c.send("INCR n")
			lost(t, p, 1)
			p.HalfOpen(test.dir, false)
			c.send("INCR n")
			c.expect(test.want)

			// The end of the connection is swallowed as well, until it is cut.
			p.HalfOpen(faultproxy.ToClient, true)
			srv.KillConns(nil)
			p.HalfOpen(faultproxy.ToServer, true)
			c.send("INCR n")
			lost(t, p, 2)
			p.Cut()
			c.expectEnd(io.EOF)
		})
	}
}

func TestCut(t *testing.T) {
	p, srv := setUp(t)
	c := dial(t, p)
	c.send("PING")
	c.expect("PONG")
	p.Cut()
	c.expectEnd(io.EOF)
	eventually(t, "server's end closed", func() bool { return len(srv.Conns()) == 0 })
	c = dial(t, p)
	c.send("PING")
	c.expect("PONG")
}

func TestReset(t *testing.T) {
	p, _ := setUp(t)
	c := dial(t, p)
	c.send("PING")
	c.expect("PONG")
	p.Reset()
	c.expectEnd(syscall.ECONNRESET)
}

func TestRefuse(t *testing.T) {
	p, _ := setUp(t)
	c := dial(t, p)
	c.send("PING")
	c.expect("PONG") // the proxy has taken the connection
	if err := p.Refuse(true); err != nil {
		t.Fatal(err)
	}
	if nc, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial = %v, %v, want connection refused", nc, err)
	}
	c.send("PING")
	c.expect("PONG")
	if err := p.Refuse(false); err != nil {
		t.Fatal(err)
	}
	c = dial(t, p)
	c.send("PING")
	c.expect("PONG")
}

func TestServerGone(t *testing.T) {
	p, srv := setUp(t)
	c := dial(t, p)
	c.send("PING")
	c.expect("PONG")
	srv.Close()
	c.expectEnd(io.EOF)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	dial(t, start(t, "tcp", ln.Addr().String())).expectEnd(io.EOF)
}

func TestRequestsBeforeTheClientsEndRun(t *testing.T) {
	p, srv := setUp(t)
	p.Latency(20*time.Millisecond, 0)
	c := dial(t, p)
	c.send("INCR n", "INCR n")
	_ = c.nc.Close()
	eventually(t, "both ran", func() bool { return srv.Do("GET", "n") == "2" })
}

// TestOpaque sends what is not RESP through a proxy, by a server that echoes.
func TestOpaque(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(nc, nc)
		_ = nc.Close()
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	p := start(t, "tcp", ln.Addr().String())
	p.Slice(7, 0)
	c := dial(t, p)
	sent := append([]byte("*1\r\n$4\r\nPING\r\n\x16\x03\x01 no RESP\r\n"), bytes.Repeat([]byte("*1\r\nx"), 20_000)...)
	wg.Go(func() { _, _ = c.nc.Write(sent) })
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(bufio.NewReader(c.nc), got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("the echo differs: %v", err)
	}
	if got := p.Count("PING"); got != 1 {
		t.Errorf("Count = %d, want 1", got)
	}
	_ = c.nc.(*net.TCPConn).CloseWrite()
	if n, err := c.nc.Read(got); n != 0 || err != io.EOF {
		t.Errorf("read = %d, %v, want EOF", n, err)
	}
}

// TestFaultsAtRandom checks that a reply never belongs to another request, whatever happens, and that Close ends all.
func TestFaultsAtRandom(t *testing.T) {
	p, _ := setUp(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				converse(t, p.Addr(), fmt.Sprintf("%d-%d", i, n))
			}
		})
	}
	faults := []func(){
		p.Cut, p.Reset,
		func() { _ = p.Refuse(true) }, func() { _ = p.Refuse(false) },
		func() { p.HalfOpen(faultproxy.ToClient, true) }, func() { p.HalfOpen(faultproxy.ToClient, false) },
		func() { p.Latency(time.Millisecond, time.Millisecond) }, func() { p.Latency(0, 0) },
		func() { p.Slice(3, 0) }, func() { p.Slice(0, 0) },
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		<-tick.C
		faults[i%len(faults)]()
	}
	p.Close()
	p.Close()
	wg.Wait()
	if got := p.Stats().Open; got != 0 {
		t.Errorf("%d connections are open after Close", got)
	}
}

// converse sends a few commands on a connection of its own and checks what it gets, be it nothing.
func converse(t *testing.T, addr, name string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(50 * time.Millisecond))
	r := resp.NewReader(nc, resp.Limits{})
	for i := range 20 {
		word := fmt.Sprint(name, "-", i)
		if _, err := nc.Write(resp.Cmd("ECHO", word).AppendTo(nil)); err != nil {
			return
		}
		v, err := r.Read()
		if err != nil {
			return
		}
		if got := text(v); got != word {
			t.Errorf("ECHO %s = %s", word, got)
		}
	}
}
