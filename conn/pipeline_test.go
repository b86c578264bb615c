package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// busy makes many sequential calls.
func busy(t testing.TB, ctx context.Context, d doer) {
	t.Helper()
	for i := range 1000 {
		echo(t, ctx, d, i)
	}
}

// echo makes a call whose answer is its own argument.
func echo(t testing.TB, ctx context.Context, d doer, n int) {
	t.Helper()
	if v, err := d.Do(ctx, "ECHO", n); err != nil {
		t.Fatalf("ECHO %d = %v", n, err)
	} else if got, _ := v.Int(); got != int64(n) {
		t.Fatalf("ECHO %d = %d: the answer of another call", n, got)
	}
}

// TestNoticedAtOnce: an idle connection with one caller notices events at once, for every kind of connection and
// context.
func TestNoticedAtOnce(t *testing.T) {
	events := map[string]func(srv *fakeredis.Server, id int64){
		"stray": func(srv *fakeredis.Server, id int64) { srv.Push(id, "_\r\n") },
		"close": func(srv *fakeredis.Server, id int64) { srv.KillConns(nil) },
	}
	for _, ending := range []bool{false, true} {
		for name, event := range events {
			t.Run(fmt.Sprintf("%s, ending=%v", name, ending), func(t *testing.T) {
				everyConn(t, conn.Config{}, ending, func(t *testing.T, ctx context.Context, srv *fakeredis.Server, c *conn.Conn) {
					event(srv, srv.Conns()[len(srv.Conns())-1].ID)
					synctest.Wait()
					select {
					case <-c.Done():
					default:
						t.Fatal("the event was not noticed")
					}
					_, err := c.Do(ctx, "ECHO", 1)
					wantNotSent(t, err, conn.ErrNotSent)
				})
				bubble(t, func(t *testing.T, srv *fakeredis.Server) {
					p := openPool(t, conn.Config{Dial: srv.Dial})
					defer p.Close()
					ctx, cancel := maybeEnding(t, ending)
					defer cancel()
					busy(t, ctx, p)
					event(srv, srv.Conns()[0].ID)
					synctest.Wait()
					busy(t, ctx, p)
					if n := srv.Dials(); n != 2 {
						t.Errorf("%d connections, want 2", n)
					}
				})
			})
		}
	}
}

func maybeEnding(t *testing.T, ending bool) (context.Context, context.CancelFunc) {
	if ending {
		return context.WithTimeout(t.Context(), time.Hour)
	}
	return context.Background(), func() {}
}

// everyConn runs fn with a Conn from Dial and with a lent Conn, both after many calls.
func everyConn(t *testing.T, cfg conn.Config, ending bool,
	fn func(t *testing.T, ctx context.Context, srv *fakeredis.Server, c *conn.Conn)) {
	t.Helper()
	for _, lent := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			cfg.Dial = srv.Dial
			ctx, cancel := maybeEnding(t, ending)
			defer cancel()
			if !lent {
				c := dialConn(t, cfg)
				defer c.Close()
				busy(t, ctx, c)
				fn(t, ctx, srv, c)
				return
			}
			p := openPool(t, cfg)
			defer p.Close()
			with(t, p, func(c *conn.Conn) {
				busy(t, ctx, c)
				fn(t, ctx, srv, c)
			})
		})
	}
}

// TestPushAtOnce: an idle connection delivers a push at once.
func TestPushAtOnce(t *testing.T) {
	for _, ending := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			var pushes atomic.Int32
			p := openPool(t, conn.Config{Dial: srv.Dial, OnPush: func(resp.Value) { pushes.Add(1) }})
			defer p.Close()
			ctx, cancel := maybeEnding(t, ending)
			defer cancel()
			busy(t, ctx, p)
			srv.Push(srv.Conns()[0].ID, ">2\r\n+invalidate\r\n*1\r\n+key\r\n")
			synctest.Wait()
			if n := pushes.Load(); n != 1 {
				t.Errorf("%d pushes delivered, want 1 (ending=%v)", n, ending)
			}
			busy(t, ctx, p)
		})
	}
}

// TestUnaskedBehindAnswer: an extra reply arrives together with the answer of a call, a batch or a transaction. No
// later call gets the extra reply, however soon it follows.
func TestUnaskedBehindAnswer(t *testing.T) {
	calls := map[string]func(d doer) error{
		"GET": func(d doer) error { _, err := d.Do(context.Background(), "GET", "key"); return err },
		"batch": func(d doer) error {
			_, err := d.(conn.Doer).SendBatch(context.Background(), cmds("ECHO a", "GET key"))
			return err
		},
		"transaction": func(d doer) error {
			_, err := d.(interface {
				Tx(context.Context, []resp.Command) ([]resp.Value, error)
			}).Tx(context.Background(), cmds("ECHO a"))
			return err
		},
	}
	last := map[string]string{"GET": "GET", "batch": "GET", "transaction": "EXEC"}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			tooMany := func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == last[name] {
					return fakeredis.Run().After("+surprise\r\n")
				}
				return fakeredis.Run()
			}
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(tooMany)
				p := openPool(t, conn.Config{Dial: srv.Dial})
				defer p.Close()
				for i := range 100 {
					if err := call(p); err != nil {
						t.Fatal(err)
					}
					if v, err := p.Do(context.Background(), "ECHO", i); err == nil {
						if got, _ := v.Int(); got != int64(i) {
							t.Fatalf("ECHO %d = %d: the answer of another call", i, got)
						}
					} else {
						wantUncertain(t, err, conn.ErrUncertain)
					}
				}
			})
			everyConn(t, conn.Config{}, false, func(t *testing.T, ctx context.Context, srv *fakeredis.Server, c *conn.Conn) {
				srv.Intercept(tooMany)
				if err := call(c); err != nil {
					t.Fatal(err)
				}
				<-c.Done()
			})
		})
	}
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

// TestRepliesBehindAFailedWrite: replies to the commands in front of a failed write count, although they arrive behind it.
func TestRepliesBehindAFailedWrite(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		cmds := []resp.Command{resp.Cmd("INCR", "n"), resp.Cmd("INCR", "n"), resp.Cmd("INCR", "m")}
		whole := 2 * len(cmds[0].Encoded())
		first := true
		p := openPool(t, conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := srv.Dial(ctx, network, addr)
			if first {
				nc = &brokenConn{Conn: nc, n: 1, bytes: whole + 1}
			}
			first = false
			return nc, err
		}})
		defer p.Close()
		values, err := p.SendBatch(t.Context(), cmds)
		wantUncertain(t, err, io.ErrShortWrite)
		if len(values) != 2 {
			t.Fatalf("%d replies, want 2", len(values))
		}
		if n, err := values[1].Int(); err != nil || n != 2 {
			t.Errorf("the second INCR = %v, %v", n, err)
		}
		if _, err := p.Do(t.Context(), "PING"); err != nil || srv.Dials() != 2 {
			t.Errorf("PING = %v, over %d connections", err, srv.Dials())
		}
	})
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
	p := openPool(t, conn.Config{Addr: ln.Addr().String(), Timeout: -1, PingInterval: -1})
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
		case <-time.After(redistest.Patience):
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
		case <-time.After(redistest.Patience):
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

// TestSlowPushes: replies do not wait for a blocked callback, and the oldest pushes are dropped.
func TestSlowPushes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		const n = 3000
		var got []int64
		release := make(chan struct{})
		p := openPool(t, conn.Config{Dial: srv.Dial, OnPush: func(v resp.Value) {
			i, _ := v.At(1).Int()
			got = append(got, i)
			<-release
		}})
		for i := range n {
			srv.Push(1, fmt.Sprintf(">2\r\n+test\r\n:%d\r\n", i))
			synctest.Wait()
		}
		want(t, p, "PONG", "PING")
		close(release)
		time.Sleep(time.Second)
		lost := p.Stats().PushesLost
		p.Close()
		if lost == 0 || len(got)+int(lost) != n || got[len(got)-1] != n-1 {
			t.Errorf("%d pushes delivered, %d lost, of %d", len(got), lost, n)
		}
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Errorf("push %d delivered after %d", got[i], got[i-1])
			}
		}
	})
}

// TestLargePushes: the pushes that wait for a blocked callback take 16 MiB at most, or are a single one.
func TestLargePushes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		delivered := 0
		release := make(chan struct{})
		p := openPool(t, conn.Config{Dial: srv.Dial, OnPush: func(resp.Value) {
			delivered++
			<-release
		}})
		defer p.Close()
		push := func(mib int) {
			text := strings.Repeat("x", mib<<20)
			srv.Push(1, fmt.Sprintf(">2\r\n+test\r\n*1\r\n$%d\r\n%s\r\n", len(text), text))
			synctest.Wait()
		}
		for i, tt := range []struct{ mib, lost int }{{1, 0}, {7, 0}, {7, 0}, {1, 0}, {1, 1}, {17, 4}, {1, 5}, {14, 5}} {
			push(tt.mib) // the callback has the first
			if lost := p.Stats().PushesLost; lost != uint64(tt.lost) {
				t.Errorf("%d pushes lost after push %d, want %d", lost, i, tt.lost)
			}
		}
		close(release)
		synctest.Wait()
		if delivered != 3 {
			t.Errorf("%d pushes delivered, want the first and the last two", delivered)
		}
	})
}

// TestPushesOnExclusive: pushes on a lent connection are dropped, pushes on a Conn from Dial are delivered.
func TestPushesOnExclusive(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		pushes := 0
		cfg := conn.Config{Dial: srv.Dial, OnPush: func(resp.Value) { pushes++ }}
		p := openPool(t, cfg)
		defer p.Close()
		hold(t, p, 0)
		srv.Push(2, ">1\r\n+lent\r\n")
		synctest.Wait()
		if pushes != 0 {
			t.Error("a push on a lent connection was delivered")
		}
		c := dialConn(t, cfg)
		srv.Push(3, ">1\r\n+own\r\n")
		synctest.Wait()
		c.Close()
		if pushes != 1 {
			t.Errorf("%d pushes delivered, want 1", pushes)
		}
	})
}
