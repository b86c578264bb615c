package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// bubble runs fn in virtual time with a server in memory, which ends with fn.
func bubble(t *testing.T, fn func(t *testing.T, srv *fakeredis.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		fn(t, srv)
		srv.Close()
	})
}

// openPool opens a Pool, and fails the test on an error. The caller closes the Pool.
func openPool(t testing.TB, cfg conn.Config) *conn.Pool {
	t.Helper()
	p, err := conn.Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	return p
}

// dialConn dials a Conn, and fails the test on an error. The caller closes the Conn.
func dialConn(t testing.TB, cfg conn.Config) *conn.Conn {
	t.Helper()
	c, err := conn.Dial(context.Background(), cfg)
	if err != nil {
		t.Fatalf("Dial = %v", err)
	}
	return c
}

// doer is the set of methods that Pool and Conn share, besides conn.Doer.
type doer interface {
	conn.Doer
	Do(ctx context.Context, args ...any) (resp.Value, error)
}

// want fails the test unless the command's reply is text; "null" stands for a null reply. Any goroutine may call it.
func want(t testing.TB, d doer, reply string, args ...any) {
	t.Helper()
	v, err := d.Do(context.Background(), args...)
	if err != nil {
		t.Errorf("Do(%v) = %v, want %q", args, err, reply)
		return
	}
	if v.IsNull() && reply == "null" {
		return
	}
	if s, err := v.Text(); err != nil || s != reply {
		t.Errorf("Do(%v) = %q, %v; want %q", args, s, err, reply)
	}
}

// wantUncertain fails the test unless err matches ErrUncertain and cause.
func wantUncertain(t testing.TB, err, cause error) {
	t.Helper()
	if !errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) || conn.SafeToRetry(err) {
		t.Errorf("error = %v, want ErrUncertain", err)
	}
	if !errors.Is(err, cause) {
		t.Errorf("error = %v, want it to wrap %v", err, cause)
	}
}

// wantNotSent fails the test unless err matches ErrNotSent and cause.
func wantNotSent(t testing.TB, err, cause error) {
	t.Helper()
	if !errors.Is(err, conn.ErrNotSent) || errors.Is(err, conn.ErrUncertain) || !conn.SafeToRetry(err) {
		t.Errorf("error = %v, want ErrNotSent", err)
	}
	if !errors.Is(err, cause) {
		t.Errorf("error = %v, want it to wrap %v", err, cause)
	}
}

// onName returns an interceptor for the n-th command with a name.
func onName(name string, n int, a fakeredis.Action) func(fakeredis.Cmd) fakeredis.Action {
	return func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == name && cmd.N == n {
			return a
		}
		return fakeredis.Run()
	}
}

// TestSplitReply: an aggregate with an error in it arrives in two pieces, and the following replies stay in step.
// (B01)
func TestSplitReply(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		reply := "*2\r\n-OOM x\r\n$6\r\nSECRET\r\n"
		srv.Intercept(onName("LRANGE", 1, fakeredis.Reply(reply).Split(30*time.Millisecond, 12)))
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		want(t, p, "OK", "SET", "key1", "one")
		want(t, p, "OK", "SET", "key2", "two")
		v, err := p.Do(t.Context(), "LRANGE", "list", 0, -1)
		if err != nil || v.Len() != 2 || !errors.Is(v.At(0).Err(), resp.ErrOOM) {
			t.Fatalf("LRANGE = %v elements, %v; want an error and a string", v.Len(), err)
		}
		want(t, p, "one", "GET", "key1")
		want(t, p, "two", "GET", "key2")
		if n := srv.Dials(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestLeave: a caller whose ctx ends leaves at once, and its late reply reaches no other caller. (B02, B03, B04)
func TestLeave(t *testing.T) {
	ends := map[string]struct {
		ctx   func() (context.Context, context.CancelFunc)
		cause error
	}{
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 200*time.Millisecond)
		}, context.DeadlineExceeded},
		"cancel": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(200*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
		"cause": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), 200*time.Millisecond, io.ErrNoProgress)
		}, io.ErrNoProgress},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(onName("GET", 1, fakeredis.Run().Late(300*time.Millisecond)))
				p := openPool(t, conn.Config{Dial: srv.Dial})
				defer p.Close()
				want(t, p, "OK", "SET", "slow", "wrong")
				want(t, p, "OK", "SET", "key", "right")
				ctx, cancel := end.ctx()
				defer cancel()
				start := time.Now()
				_, err := p.Do(ctx, "GET", "slow")
				if d := time.Since(start); d != 200*time.Millisecond {
					t.Errorf("left after %v, want 200ms", d)
				}
				wantUncertain(t, err, end.cause)
				wantUncertain(t, err, ctx.Err())
				want(t, p, "right", "GET", "key")
				if n := srv.Dials(); n != 1 {
					t.Errorf("%d connections, want 1", n)
				}
			})
		})
	}
}

// TestLeaveAtEveryByte cancels after n bytes of the reply, for every n, and checks the next reply.
func TestLeaveAtEveryByte(t *testing.T) {
	reply := "*3\r\n$5\r\nSECRE\r\n-ERR no\r\n|1\r\n+a\r\n:1\r\n%1\r\n+k\r\n_\r\n"
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "LRANGE" {
				return fakeredis.Reply(reply).Split(time.Millisecond)
			}
			return fakeredis.Run()
		})
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for n := range len(reply) + 1 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond+time.Microsecond)
			_, err := p.Do(ctx, "LRANGE", "list", 0, -1)
			cancel()
			if err != nil {
				wantUncertain(t, err, context.DeadlineExceeded)
			} else if n < len(reply)-1 {
				t.Fatalf("a reply after %d of %d bytes", n, len(reply))
			}
			want(t, p, fmt.Sprint(n), "ECHO", n)
		}
		if n := srv.Dials(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestLeaveBatch: a caller leaves between the replies of its batch.
func TestLeaveBatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("ECHO", 2, fakeredis.Run().Late(time.Second)))
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := p.SendBatch(ctx, []resp.Command{resp.Cmd("ECHO", 1), resp.Cmd("ECHO", 2), resp.Cmd("ECHO", 3)})
		wantUncertain(t, err, context.DeadlineExceeded)
		want(t, p, "4", "ECHO", 4)
		if n := srv.Dials(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestUnanswered: a command sent and not answered is reported, and not sent again. (B06, B07)
func TestUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		action fakeredis.Action
		cause  error
	}{
		"withheld": {fakeredis.Drop(), nil},
		"closed":   {fakeredis.RunThenClose(), io.EOF},
		"reset":    {fakeredis.Drop().ThenReset(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(onName("INCR", 1, c.action))
				p := openPool(t, conn.Config{Dial: srv.Dial})
				defer p.Close()
				start := time.Now()
				_, err := p.Do(t.Context(), "INCR", "n")
				if c.cause == nil {
					c.cause = conn.ErrUncertain
				}
				wantUncertain(t, err, c.cause)
				if d := time.Since(start); name == "withheld" && (d < 5*time.Second || d > 6*time.Second) {
					t.Errorf("connection failed after %v, want Timeout", d)
				}
				if n := srv.Count("INCR"); n != 1 {
					t.Errorf("server saw %d INCR, want 1", n)
				}
				want(t, p, "1", "GET", "n")
			})
		})
	}
}

// TestUnasked: a reply without a command ends the connection, without other harm. (B18)
func TestUnasked(t *testing.T) {
	for _, raw := range []string{"+OK\r\n", "-ERR surprise\r\n", "*0\r\n", "%1\r\n+a\r\n+b\r\n"} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			c := dialConn(t, conn.Config{Dial: srv.Dial})
			defer c.Close()
			want(t, c, "PONG", "PING")
			srv.Push(1, raw)
			<-c.Done()
			if err := c.Err(); err == nil || !strings.Contains(err.Error(), "without a command") {
				t.Errorf("after %q Err = %v, want a reply without a command", raw, err)
			}
			_, err := c.Do(t.Context(), "PING")
			wantNotSent(t, err, c.Err())
		})
	}
}

// TestHostileReply: an invalid reply ends its connection; other connections and the process go on. (B37)
func TestHostileReply(t *testing.T) {
	for _, raw := range []string{"$9223372036854775807\r\n", "*4294967295\r\n", "HTTP/1.1 400 Bad Request\r\n"} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			srv.Intercept(onName("GET", 1, fakeredis.Reply(raw)))
			bad, good := dialConn(t, conn.Config{Dial: srv.Dial}), dialConn(t, conn.Config{Dial: srv.Dial})
			defer bad.Close()
			defer good.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := bad.Do(ctx, "GET", "key")
			wantUncertain(t, err, conn.ErrUncertain)
			select {
			case <-bad.Done():
			default:
				t.Errorf("%q did not end the connection: %v", raw, err)
			}
			want(t, good, "PONG", "PING")
		})
	}
}

// TestPushes: a push between replies is delivered to OnPush, and the replies stay in step. (B26)
func TestPushes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		const push = ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n"
		const marked = "|1\r\n+a\r\n+b\r\n" + push // attributes may precede a push
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch cmd.Name + cmd.Args[len(cmd.Args)-1] {
			case "HELLO3", "ECHO1":
				return fakeredis.Run().Before(push)
			case "ECHO2":
				return fakeredis.Run().Before(marked).After(push)
			case "ASKINGASKING":
				return fakeredis.Reply("+0\r\n").After(push)
			}
			return fakeredis.Run()
		})
		var kinds []string
		cfg := conn.Config{Dial: srv.Dial, OnPush: func(v resp.Value) {
			s, _ := v.At(0).Text()
			kinds = append(kinds, s)
		}}
		p := openPool(t, cfg)
		values, err := p.SendBatch(t.Context(), cmds("ASKING", "ECHO 1", "ECHO 2", "ECHO 3"))
		if got := texts(values); err != nil || got != "0 1 2 3" {
			t.Errorf("SendBatch = %s, %v", got, err)
		}
		synctest.Wait()
		p.Close()
		if got := strings.Join(kinds, " "); got != strings.TrimSpace(strings.Repeat("invalidate ", 5)) {
			t.Errorf("pushes delivered: %s; want 5", got)
		}
	})
}

func TestCloseTwice(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Drop()))
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		lost := make(chan error)
		go func() {
			_, err := c.Do(t.Context(), "GET", "key")
			lost <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		}
		err := <-lost
		wantUncertain(t, err, conn.ErrClosed)
		if !errors.Is(c.Err(), conn.ErrClosed) {
			t.Errorf("Err = %v, want ErrClosed", c.Err())
		}
		_, err = c.Do(t.Context(), "GET", "key")
		wantNotSent(t, err, conn.ErrClosed)
	})
}

func TestBadArguments(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.ClearLog()
		bad := resp.Cmd("SET", "secret", time.Second)
		_, e1 := p.Do(t.Context())
		_, e2 := p.Do(t.Context(), "SET", "secret", time.Second)
		_, e3 := p.Send(t.Context(), bad)
		_, e4 := p.SendBatch(t.Context(), []resp.Command{resp.Cmd("PING"), bad})
		_, e5 := p.Tx(t.Context(), []resp.Command{bad})
		e6 := p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.SendBatch(t.Context(), []resp.Command{bad})
			return err
		})
		for i, err := range []error{e1, e2, e3, e4, e5, e6} {
			wantNotSent(t, err, err)
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %d = %v, want one without arguments", i+1, err)
			}
		}
		if n := srv.Count("SET"); n != 0 {
			t.Errorf("server saw %d SET, want none", n)
		}
	})
}

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
