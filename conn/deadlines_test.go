package conn_test

import (
	"context"
	"errors"
	"os"
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

// TestTimeout: a connection without answers fails in time, for commands sent at any moment between two ticks.
func TestTimeout(t *testing.T) {
	for idle := range 7 * 4 {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
			defer c.Close()
			time.Sleep(time.Duration(idle) * 250 * time.Millisecond / 3)
			srv.Mute(true)
			start := time.Now()
			_, err := c.Do(t.Context(), "GET", "key")
			between(t, "the connection failed", time.Since(start), time.Second, 1200*time.Millisecond)
			wantUncertain(t, err, os.ErrDeadlineExceeded)
			<-c.Done()
		})
	}
}

// TestTimeoutCountsTheOldest: new commands keep coming, and the oldest command counts.
func TestTimeoutCountsTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
		defer c.Close()
		srv.Mute(true)
		start := time.Now()
		for c.Err() == nil {
			go c.Do(t.Context(), "GET", "key")
			time.Sleep(10 * time.Millisecond)
		}
		between(t, "the connection failed", time.Since(start), time.Second, 1200*time.Millisecond)
	})
}

// TestTimeoutSparesTheBusy: a connection answers slowly, but every command in time.
func TestTimeoutSparesTheBusy(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
		defer c.Close()
		srv.Latency(400 * time.Millisecond)
		for range 20 {
			for range 5 {
				go c.Do(t.Context(), "GET", "key")
			}
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if err := c.Err(); err != nil {
			t.Errorf("Err = %v, want none", err)
		}
	})
}

// TestLaterDeadline: the deadline of a ctx extends the time of a command.
func TestLaterDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(8*time.Second)))
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Do(ctx, "GET", "key"); err != nil {
			t.Errorf("GET = %v, want the answer that came after 8s of 10", err)
		}
	})
}

// TestLaterDeadlineOfMany: an exclusive connection has commands with a deadline in an hour, and one without a
// deadline. The connection fails at the deadline, neither earlier nor never.
func TestLaterDeadlineOfMany(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
		defer c.Close()
		srv.Mute(true)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range 10 {
			go c.Do(ctx, "GET", "key")
			synctest.Wait()
		}
		_, err := c.Do(t.Context(), "GET", "key")
		between(t, "the connection failed", time.Since(start), time.Hour, time.Hour+200*time.Millisecond)
		wantUncertain(t, err, os.ErrDeadlineExceeded)
	})
}

// TestNoTimeout: with a negative Timeout a command waits without limit.
func TestNoTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(24*time.Hour)))
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: -1})
		defer c.Close()
		want(t, c, "null", "GET", "key")
	})
}

// TestPing: an idle connection sends a PING, and fails without an answer.
func TestPing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: 2 * time.Second, PingInterval: 10 * time.Second})
		defer c.Close()
		time.Sleep(time.Minute + time.Second)
		if n := srv.Count("PING"); n < 5 || n > 6 {
			t.Errorf("%d PING in a minute, want one every 10s", n)
		}
		if err := c.Err(); err != nil {
			t.Fatalf("Err = %v, want none", err)
		}
		srv.Mute(true)
		start := time.Now()
		<-c.Done()
		between(t, "the mute server was noticed", time.Since(start), 2*time.Second, 12*time.Second+time.Second)
		if !errors.Is(c.Err(), os.ErrDeadlineExceeded) {
			t.Errorf("Err = %v, want a timeout", c.Err())
		}
	})
}

// TestNoPingWhenBusy: no PING while replies arrive.
func TestNoPingWhenBusy(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, PingInterval: 2 * time.Second})
		defer c.Close()
		for range 100 {
			want(t, c, "null", "GET", "key")
			time.Sleep(time.Second)
		}
		if n := srv.Count("PING"); n != 0 {
			t.Errorf("%d PING on a busy connection, want none", n)
		}
	})
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

// TestPingIntoFullSocket: the PING itself blocks, in the timer's goroutine.
func TestPingIntoFullSocket(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(4)
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		srv.Stall(true)
		start := time.Now()
		<-c.Done()
		between(t, "the connection failed", time.Since(start), 9*time.Second, 11*time.Second)
		c.Close()
		srv.Stall(false)
	})
}

// TestIdleCostsNothing: the timers of an idle connection without PING stand still. In a bubble, only the test's own
// sleep then advances the time.
func TestIdleCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial, PingInterval: -1})
		defer c.Close()
		want(t, c, "PONG", "PING")
		time.Sleep(1000 * time.Hour)
		want(t, c, "PONG", "PING")
		if n := srv.Count("PING"); n != 2 {
			t.Errorf("%d PING, want the test's own 2", n)
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
