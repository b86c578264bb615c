package conn_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// between fails the test unless lo <= d <= hi.
func between(t testing.TB, what string, d, lo, hi time.Duration) {
	t.Helper()
	if d < lo || d > hi {
		t.Errorf("%s after %v, want %v to %v", what, d, lo, hi)
	}
}

// TestNoPingInMulti: a MULTI stays open for long without a PING, which would be queued and add a reply to EXEC.
func TestNoPingInMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		defer c.Close()
		for _, end := range []string{"EXEC", "DISCARD"} {
			srv.Intercept(onName("MULTI", 1, fakeredis.Run().Late(time.Second)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := c.Do(ctx, "MULTI") // by a caller that leaves
			cancel()
			wantUncertain(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			want(t, c, "QUEUED", "ECHO", "a")
			time.Sleep(time.Minute)
			v, err := c.Do(t.Context(), end)
			if got := texts(elements(v)); err != nil || end == "EXEC" && got != "a" {
				t.Errorf("%s = %s, %v", end, got, err)
			}
			if n := srv.Count("PING"); n != 0 {
				t.Errorf("%d PING before %s", n, end)
			}
			time.Sleep(time.Minute + time.Second) // ends between two PINGs
			if n := srv.Count("PING"); n < 10 {
				t.Errorf("%d PING in the minute after %s, want one every 5s", n, end)
			}
			srv.ClearLog()
		}
	})
}

// TestBlockingHasNoLimit: a blocking command outlasts Timeout; its caller closes the connection by leaving.
func TestBlockingHasNoLimit(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
		defer c.Close()
		time.AfterFunc(time.Minute, func() { srv.Do("RPUSH", "list", "x") })
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			time.Sleep(time.Second)
			want(t, c, "PONG", "PING") // answered after the blocking command
		})
		v, err := c.Do(t.Context(), "blpop", "list", 0)
		if err != nil || v.Len() != 2 {
			t.Fatalf("BLPOP = %d elements, %v", v.Len(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		_, err = c.SendBatch(ctx, []resp.Command{resp.Cmd("PING"), resp.Cmd("BLPOP", "list", 0)})
		wantUncertain(t, err, context.Canceled)
		<-c.Done()
		synctest.Wait()
		if n := len(srv.Conns()); n != 0 {
			t.Errorf("%d connections, want the blocked one closed", n)
		}
	})
}
