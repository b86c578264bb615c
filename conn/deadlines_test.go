package conn_test

import (
	"context"
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

// TestBlockingEnds: a server that falls silent is noticed when the timeouts in blocking commands and Timeout are over.
func TestBlockingEnds(t *testing.T) {
	const forever = time.Hour
	for _, c := range []struct {
		want time.Duration
		cmds []resp.Command
	}{
		{4 * time.Second, []resp.Command{resp.Cmd("blpop", "list", 3)}},
		{2500 * time.Millisecond, []resp.Command{resp.Cmd("BZPOPMIN", "set", 1.5)}},
		{4 * time.Second, []resp.Command{resp.Cmd("BLMOVE", "list", "other", "LEFT", "RIGHT", 3)}},
		{4 * time.Second, []resp.Command{resp.Cmd("BLMPOP", 3, 1, "list", "LEFT")}},
		{4 * time.Second, []resp.Command{resp.Cmd("XREAD", "COUNT", 1, "BLOCK", 3000, "STREAMS", "stream", "$")}},
		{4 * time.Second, []resp.Command{resp.Cmd("XREADGROUP", "GROUP", "block", "block", "block", 3000, "STREAMS", "stream", ">")}},
		{4 * time.Second, []resp.Command{resp.Cmd("WAIT", 1, 3000)}},
		{6 * time.Second, []resp.Command{resp.Cmd("BLPOP", "list", 3), resp.Cmd("PING"), resp.Cmd("BLPOP", "other", 2)}},
		{6 * time.Second, []resp.Command{resp.Cmd("WAIT", 1, 3000), resp.Cmd("WAIT", 1, 2000)}},
		{forever, []resp.Command{resp.Cmd("BLPOP", "list", 0)}},
		{forever, []resp.Command{resp.Cmd("BLPOP", "list", 3), resp.Cmd("BLPOP", "list", 0)}},
		{forever, []resp.Command{resp.Cmd("XREAD", "BLOCK", 0, "STREAMS", "stream", "$")}},
		{forever, []resp.Command{resp.Cmd("BLPOP", "list", "soon")}},
		{forever, []resp.Command{resp.Cmd("BLPOP", "list", 1e300)}},
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			l := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
			defer l.Close()
			srv.Mute(true)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			time.AfterFunc(forever, stop)
			start := time.Now()
			var err error
			if len(c.cmds) == 1 {
				_, err = l.Send(ctx, c.cmds[0])
			} else {
				_, err = l.SendBatch(ctx, c.cmds)
			}
			if c.want == forever {
				wantUncertain(t, err, context.Canceled)
			} else {
				wantUncertain(t, err, os.ErrDeadlineExceeded)
			}
			between(t, c.cmds[0].Name(), time.Since(start), c.want, c.want+200*time.Millisecond)
		})
	}
}

// TestBlockingBehindOthers: the time for a blocking command begins when the server has answered the commands before it.
func TestBlockingBehindOthers(t *testing.T) {
	for _, c := range []struct {
		first    []any
		takes    time.Duration // of the first command
		pushed   time.Duration // when the list gets an element; 0: never
		silent   bool          // from the first answer on
		min, max time.Duration // the end of BLPOP
	}{
		{first: []any{"GET", "key"}, takes: 5 * time.Second, pushed: 7 * time.Second, min: 7 * time.Second, max: 7010 * time.Millisecond},
		{first: []any{"BLPOP", "other", 3}, takes: 3 * time.Second, min: 6 * time.Second, max: 6010 * time.Millisecond},
		{first: []any{"BLPOP", "other", 10}, takes: 10 * time.Second, min: 13 * time.Second, max: 13010 * time.Millisecond},
		{first: []any{"BLPOP", "other", 10}, takes: 10 * time.Second, silent: true, min: 14 * time.Second, max: 14200 * time.Millisecond},
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			srv.Intercept(onName("GET", 1, fakeredis.Delay(c.takes, fakeredis.Run())))
			l := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
			defer l.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				if v, err := l.Do(ctx, c.first...); err != nil || !v.IsNull() {
					t.Errorf("%v = %v, want null", c.first, err)
				}
				srv.Mute(c.silent)
			})
			synctest.Wait()
			if c.pushed > 0 {
				time.AfterFunc(c.pushed, func() { srv.Do("RPUSH", "list", "x") })
			}
			start := time.Now()
			v, err := l.Do(t.Context(), "BLPOP", "list", 3)
			switch {
			case c.silent:
				wantUncertain(t, err, os.ErrDeadlineExceeded)
			case err != nil || v.IsNull() != (c.pushed == 0):
				t.Errorf("BLPOP behind %v = %d elements, %v", c.first, v.Len(), err)
			}
			between(t, "BLPOP", time.Since(start), c.min, c.max)
		})
	}
}

// TestWaitOutlivesCaller: a caller leaves while a batch waits for replicas, at its deadline too. The connection survives.
func TestWaitOutlivesCaller(t *testing.T) {
	for _, limit := range []func(context.Context) (context.Context, context.CancelFunc){
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		},
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			srv.Intercept(onName("WAIT", 1, fakeredis.Delay(3*time.Second, fakeredis.Reply(":0\r\n"))))
			c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
			defer c.Close()
			ctx, cancel := limit(t.Context())
			defer cancel()
			start := time.Now()
			_, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("SET", "key", "x"), resp.Cmd("WAIT", 1, 3000)})
			wantUncertain(t, err, ctx.Err())
			between(t, "the caller left", time.Since(start), 100*time.Millisecond, 100*time.Millisecond)
			want(t, c, "PONG", "PING")
			between(t, "PONG", time.Since(start), 3*time.Second, 3010*time.Millisecond)
		})
	}
}

// TestBlockingUntilDeadline: a ctx with a later deadline gives a blocking command with a timeout more time, and the
// end of a ctx closes the connection.
func TestBlockingUntilDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		for _, limit := range []time.Duration{510 * time.Millisecond, 10_030 * time.Millisecond} {
			c := dialConn(t, conn.Config{Dial: srv.Dial, Timeout: time.Second})
			defer c.Close()
			srv.Mute(true)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			_, err := c.Do(ctx, "BLPOP", "list", 3)
			wantUncertain(t, err, context.DeadlineExceeded)
			between(t, "BLPOP", time.Since(start), limit, limit)
			<-c.Done()
			srv.Mute(false)
		}
	})
}
