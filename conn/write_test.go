package conn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestFullSocket: the peer stops reading. Every caller leaves when its ctx ends, including the writer. Commands that
// no writer has taken are withdrawn and never reach the server.
func TestFullSocket(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1 << 10)
		p := openPool(t, conn.Config{Dial: srv.Dial, Timeout: time.Minute, PingInterval: -1})
		defer p.Close()
		srv.ClearLog()
		srv.Stall(true)
		start := time.Now()
		call := func(after time.Duration, name string) error {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			_, err := p.Do(ctx, "SET", name, strings.Repeat("x", 4<<10))
			if d := time.Since(start); d != after {
				t.Errorf("%s left after %v, want %v", name, d, after)
			}
			return err
		}
		var wg sync.WaitGroup
		var writing, waiting error
		wg.Go(func() { writing = call(2*time.Second, "writing") })
		synctest.Wait()
		wg.Go(func() { waiting = call(time.Second, "waiting") })
		wg.Wait()
		wantUncertain(t, writing, context.DeadlineExceeded)
		wantNotSent(t, waiting, context.DeadlineExceeded)

		srv.Stall(false)
		want(t, p, "PONG", "PING")
		for _, cmd := range srv.Log() {
			if len(cmd.Args) > 1 && cmd.Args[1] == "waiting" {
				t.Error("the server got a command that was withdrawn")
			}
		}
		if n := srv.Count("SET"); n != 1 {
			t.Errorf("server saw %d SET, want 1", n)
		}
	})
}

// TestFullSocketForGood: the connection fails at its limit. Commands that no writer took fail as not sent; the Pool
// repeats them, and they run once.
func TestFullSocketForGood(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1 << 10)
		p := openPool(t, conn.Config{Dial: srv.Dial, Timeout: 4 * time.Second})
		defer p.Close()
		srv.Stall(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Do(context.Background(), "SET", "big", strings.Repeat("x", 4<<10))
			wantUncertain(t, err, conn.ErrUncertain)
		})
		synctest.Wait()
		wg.Go(func() { want(t, p, "1", "INCR", "n") })
		time.Sleep(6 * time.Second)
		srv.Stall(false)
		wg.Wait()
		if n := srv.Count("INCR"); n != 1 {
			t.Errorf("server saw %d INCR, want 1", n)
		}
	})
}

// brokenConn fails its n-th write, from 0, after a given number of bytes.
type brokenConn struct {
	net.Conn
	n, bytes int
}

func (c *brokenConn) Write(b []byte) (int, error) {
	if c.n--; c.n >= 0 {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:c.bytes])
	return n, io.ErrShortWrite
}

// TestFailedWrite: a write fails. Commands without a written byte count as not sent, and are repeated.
func TestFailedWrite(t *testing.T) {
	for bytes, certain := range map[int]bool{0: true, 1: false} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			first := true
			p := openPool(t, conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := srv.Dial(ctx, network, addr)
				if first {
					nc = &brokenConn{Conn: nc, n: 1, bytes: bytes}
				}
				first = false
				return nc, err
			}})
			defer p.Close()
			_, err := p.Do(t.Context(), "INCR", "n")
			if certain {
				if n := srv.Count("INCR"); err != nil || n != 1 || srv.Dials() != 2 {
					t.Errorf("INCR = %v; the server saw %d, on %d connections", err, n, srv.Dials())
				}
				return
			}
			wantUncertain(t, err, io.ErrShortWrite)
		})
	}
}

// TestRoom: more bytes wait than there is room for. Callers wait for room, under their ctx, and go on.
func TestRoom(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1 << 10)
		p := openPool(t, conn.Config{Dial: srv.Dial, Timeout: time.Hour, PingInterval: -1})
		defer p.Close()
		srv.Stall(true)
		big := strings.Repeat("x", 1<<20)
		var wg sync.WaitGroup
		for range 3 { // the first is being written, the second is pending, the third has no room
			wg.Go(func() { want(t, p, "OK", "SET", "big", big) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(ctx, "SET", "late", big)
		wantNotSent(t, err, context.DeadlineExceeded)
		srv.Stall(false)
		wg.Wait()
		if n := srv.Count("SET"); n != 3 {
			t.Errorf("server saw %d SET, want 3", n)
		}
	})
}

// TestMuteSocket is like TestFullSocket, on a kernel socket with larger buffers of unknown size.
func TestMuteSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		p := &peer{Conn: nc, t: t}
		p.welcome()
		accepted <- nc
	}()
	p := openPool(t, conn.Config{Addr: ln.Addr().String()})
	defer p.Close()
	nc := <-accepted
	defer nc.Close()
	big := strings.Repeat("x", 16<<20)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := p.Do(ctx, "SET", "big", big)
			left <- err
		}()
		eventually(t, func() bool { return p.Stats().InFlight > 0 })
		cancel()
		select {
		case err := <-left:
			if !conn.SafeToRetry(err) {
				wantUncertain(t, err, context.Canceled)
			}
		case <-time.After(4 * time.Second):
			t.Fatal("a caller did not leave when its ctx ended")
		}
	}
}

// TestMuteUnixSocket: many small commands fill a buffer in which they take more than their bytes. Callers still
// leave.
func TestMuteUnixSocket(t *testing.T) {
	path := t.TempDir() + "/socket"
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		p := &peer{Conn: nc, t: t}
		p.welcome()
		accepted <- nc
	}()
	p := openPool(t, conn.Config{Network: "unix", Addr: path, Timeout: -1, PingInterval: -1})
	defer p.Close()
	nc := <-accepted
	defer nc.Close()
	for i := range 400 {
		before := p.Stats().InFlight
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := p.Do(ctx, "GET", "key")
			left <- err
		}()
		eventually(t, func() bool { return p.Stats().InFlight > before })
		cancel()
		select {
		case err := <-left:
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("caller %d = %v, want Canceled", i, err)
			}
		case <-time.After(4 * time.Second):
			t.Fatalf("caller %d did not leave when its ctx ended", i)
		}
	}
}

// heldWriter makes connections that can block after a Write.
type heldWriter struct {
	net.Conn
	next chan chan struct{}
}

func (w *heldWriter) dial(srv *fakeredis.Server) func(ctx context.Context, network, addr string) (net.Conn, error) {
	w.next = make(chan chan struct{}, 1)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := srv.Dial(ctx, network, addr)
		return &heldWriter{Conn: nc, next: w.next}, err
	}
}

// hold makes the next Write return only after release.
func (w *heldWriter) hold() (release func()) {
	ch := make(chan struct{})
	w.next <- ch
	return func() { close(ch) }
}

func (w *heldWriter) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	select {
	case ch := <-w.next:
		<-ch
	default:
	}
	return n, err
}

// TestWithdrawnFromRetired: a retired connection closes after the last outstanding command is withdrawn.
func TestWithdrawnFromRetired(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var w heldWriter
		srv.Intercept(notYet("SET", "READONLY x", 1))
		p := openPool(t, conn.Config{Dial: w.dial(srv), PingInterval: -1})
		defer p.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		srv.Latency(time.Second)
		release := w.hold()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Do(ctx, "SET", "key", "value"); err != nil {
				t.Errorf("SET = %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			_, err := p.Do(ctx, "GET", "key")
			wantNotSent(t, err, context.DeadlineExceeded)
		})
		wg.Wait()
		release()
		time.Sleep(time.Minute)
		if n := len(srv.Conns()); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestOrder: many callers, some with batches, share one connection. Each gets its own replies, and no batch is split.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Latency(time.Millisecond)
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.ClearLog()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for j := range 20 {
					if j%5 != 0 {
						n := i*100 + j
						v, err := p.Do(context.Background(), "ECHO", n)
						if got, _ := v.Int(); err != nil || got != int64(n) {
							t.Errorf("ECHO %d = %d, %v", n, got, err)
						}
						continue
					}
					batch := []resp.Command{resp.Cmd("ECHO", i), resp.Cmd("ECHO", -i), resp.Cmd("ECHO", i)}
					values, err := p.SendBatch(context.Background(), batch)
					if err != nil || len(values) != 3 {
						t.Errorf("SendBatch = %d values, %v", len(values), err)
						return
					}
					for k, v := range values {
						if got, _ := v.Text(); got != batch[k].Arg(1) {
							t.Errorf("reply %d of a batch = %s, want %s", k, got, batch[k].Arg(1))
						}
					}
				}
			})
		}
		wg.Wait()
		log := srv.Log()
		for i, cmd := range log {
			n, inside := strings.CutPrefix(cmd.Args[1], "-")
			if inside && (log[i-1].Args[1] != n || log[i+1].Args[1] != n) {
				t.Errorf("commands around %v are %v and %v", cmd, log[i-1], log[i+1])
			}
		}
		if len(log) != 50*(16+3*4) {
			t.Errorf("server saw %d commands, want %d", len(log), 50*(16+3*4))
		}
	})
}

// countedWrites makes connections that count their writes.
type countedWrites struct {
	net.Conn
	n *atomic.Int64
}

func (c countedWrites) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// TestWritesAreShared: many callers call at once, repeatedly, on one processor, and most commands share a write.
// Without the yield before a write each command would have its own write.
func TestWritesAreShared(t *testing.T) {
	const callers, calls = 64, 50
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var writes atomic.Int64
		p := openPool(t, conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := srv.Dial(ctx, network, addr)
			return countedWrites{nc, &writes}, err
		}})
		defer p.Close()
		srv.Latency(time.Millisecond)
		writes.Store(0)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range calls {
					echo(t, context.Background(), p, i)
				}
			})
		}
		wg.Wait()
		if n := writes.Load(); n > callers*calls/8 {
			t.Errorf("%d writes for %d commands, want at least 8 commands to a write", n, callers*calls)
		}
	})
}
