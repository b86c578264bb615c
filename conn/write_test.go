package conn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

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

// welcomeOne answers the handshake of the first connection to ln, and sends the connection to the channel.
func welcomeOne(t *testing.T, ln net.Listener) <-chan net.Conn {
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
	return accepted
}

// TestMuteSocket is like TestFullSocket, on a kernel socket with larger buffers of unknown size.
func TestMuteSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := welcomeOne(t, ln)
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
	accepted := welcomeOne(t, ln)
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
