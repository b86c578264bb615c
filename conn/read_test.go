package conn_test

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// alone makes so many calls, one after the other, that the caller reads its own replies from then on.
func alone(t testing.TB, d doer) {
	t.Helper()
	for i := range 1000 {
		want(t, d, []string{"0", "1", "2"}[i%3], "ECHO", i%3)
	}
}

// TestAbandonedReplyAndPush has a push with attributes come when the next reply is to be skipped: it is not the reply.
func TestAbandonedReplyAndPush(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		defer c.Close()
		srv.Intercept(onName("GET", 1, fakeredis.Run().Before("|1\r\n+a\r\n+b\r\n>1\r\n+test\r\n").Late(time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Do(ctx, "GET", "key")
		wantUncertain(t, err, context.DeadlineExceeded)
		want(t, c, "next", "ECHO", "next")
		want(t, c, "last", "ECHO", "last")
	})
}

// whenAlone runs fn with a connection whose callers read their own replies, as long as there is one at a time.
// Everything is to happen that happens otherwise.
func whenAlone(t *testing.T, fn func(t *testing.T, srv *fakeredis.Server, c *conn.Conn)) {
	t.Helper()
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		defer c.Close()
		alone(t, c)
		fn(t, srv, c)
	})
}

func TestAloneNoMore(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(time.Second)))
		var wg sync.WaitGroup
		wg.Go(func() { want(t, c, "null", "GET", "key") })
		for i := range 10 {
			synctest.Wait()
			wg.Go(func() { want(t, c, []string{"0", "1"}[i%2], "ECHO", i%2) })
		}
		wg.Wait()
		alone(t, c)
	})
}

func TestAloneLeave(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := c.Do(ctx, "GET", "key")
		wantUncertain(t, err, context.DeadlineExceeded)
		between(t, "the caller left", time.Since(start), time.Millisecond, time.Millisecond)
		want(t, c, "next", "ECHO", "next")
		alone(t, c)
	})
}

func TestAloneUnanswered(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		srv.Intercept(onName("GET", 1, fakeredis.Drop()))
		start := time.Now()
		_, err := c.Do(context.Background(), "GET", "key")
		wantUncertain(t, err, os.ErrDeadlineExceeded)
		between(t, "the connection failed", time.Since(start), 5*time.Second, 6*time.Second)
	})
}

func TestAloneLost(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		srv.Intercept(onName("GET", 1, fakeredis.RunThenClose()))
		_, err := c.Do(context.Background(), "GET", "key")
		wantUncertain(t, err, io.EOF)
	})
}

// TestAloneLostIdle has the end of a connection noticed that nobody reads, however long Timeout is.
func TestAloneLostIdle(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second, time.Hour} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: timeout, PingInterval: -1})
			defer c.Close()
			alone(t, c)
			srv.KillConns(nil)
			start := time.Now()
			<-c.Done()
			between(t, "the end was noticed", time.Since(start), 0, time.Second)
		})
	}
}

// TestAloneBehindWriter has a caller come when nobody reads and a write is not over yet that has been answered.
func TestAloneBehindWriter(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var w heldWriter
		c := dialConn(t, conn.Config{Dial: w.dial(srv)})
		defer c.Close()
		alone(t, c)
		release := w.hold()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := c.Do(ctx, "PING"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { want(t, c, "x", "ECHO", "x") })
		synctest.Wait()
		release()
		wg.Wait()
		between(t, "the reply was read", time.Since(start), 0, 0)
	})
}

func TestAloneClose(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		srv.Intercept(onName("GET", 1, fakeredis.Drop()))
		time.AfterFunc(time.Second, func() { c.Close() })
		_, err := c.Do(context.Background(), "GET", "key")
		wantUncertain(t, err, conn.ErrClosed)
	})
}

func TestAloneCloseIdle(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		c.Close()
		_, err := c.Do(context.Background(), "GET", "key")
		wantNotSent(t, err, conn.ErrClosed)
	})
}

func TestAloneUnasked(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().After("+surprise\r\n")))
		want(t, c, "null", "GET", "key")
		<-c.Done()
	})
}

func TestAlonePing(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		time.Sleep(12 * time.Second)
		if n := srv.Count("PING"); n != 2 {
			t.Errorf("%d PING in 12s, want 2", n)
		}
		alone(t, c)
	})
}

func TestAloneBatch(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		for range 1000 {
			values, err := c.SendBatch(context.Background(), cmds("ECHO 1", "ECHO 2"))
			if got := texts(values); err != nil || got != "1 2" {
				t.Fatalf("SendBatch = %s, %v", got, err)
			}
		}
	})
}

func TestAloneBig(t *testing.T) {
	whenAlone(t, func(t *testing.T, srv *fakeredis.Server, c *conn.Conn) {
		want(t, c, "OK", "SET", "big", make([]byte, 1<<20))
		if v, err := c.Do(context.Background(), "STRLEN", "big"); err != nil || v.IsNull() {
			t.Errorf("STRLEN = %v, %v", v, err)
		}
	})
}

// TestAlonePush has pushes come to a caller who reads its own replies.
func TestAlonePush(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		pushes := 0
		p := openPool(t, conn.Config{Dial: srv.Dial, OnPush: func(resp.Value) { pushes++ }})
		alone(t, p)
		srv.Intercept(onName("GET", 1, fakeredis.Run().Before(">1\r\n+test\r\n")))
		want(t, p, "null", "GET", "key")
		synctest.Wait()
		p.Close()
		if pushes != 1 {
			t.Errorf("%d pushes delivered, want 1", pushes)
		}
	})
}

// TestAloneReally makes sure that the tests above are about what they say: a caller alone is woken by nobody.
func TestAloneReally(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		defer c.Close()
		alone(t, c)
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(time.Second)))
		done := make(chan struct{})
		go func() {
			want(t, c, "null", "GET", "key")
			close(done)
		}()
		synctest.Wait()
		if !goroutineIn("readOwn") {
			t.Error("the caller does not read its own reply")
		}
		<-done
	})
}

// goroutineIn reports whether a goroutine is in a function of that name.
func goroutineIn(name string) bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), ")."+name+"(")
}
