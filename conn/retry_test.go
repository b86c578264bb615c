package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// notYet answers the first n commands of a name with an error instead of running them.
func notYet(name, text string, n int) func(fakeredis.Cmd) fakeredis.Action {
	return func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == name && cmd.N <= n {
			return fakeredis.Reply("-" + text + "\r\n")
		}
		return fakeredis.Run()
	}
}

// TestNotExecuted: a command refused as not executed is repeated until it runs once.
func TestNotExecuted(t *testing.T) {
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down",
		"READONLY You can't write against a read only replica.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOREPLICAS Not enough good replicas to write.",
		"BUSY Redis is busy running a script.",
		"ERR max number of clients reached",
		"ERR Error running script (call to f_ab): @user_script:1: @user_script: 1: -READONLY You can't write",
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			refusals := uint64(4)
			if strings.Contains(text, "READONLY") {
				refusals = 2 // and then the caller gets the refusal
			}
			srv.Intercept(notYet("INCR", text, int(refusals)))
			p := openPool(t, conn.Config{Dial: srv.Dial})
			defer p.Close()
			want(t, p, "1", "INCR", "n")
			if s := p.Stats(); s.Retries != refusals {
				t.Errorf("%s: %d retries, want %d", text, s.Retries, refusals)
			}
		})
	}
}

// TestExecutedOrHopeless: some errors go to the caller at once.
func TestExecutedOrHopeless(t *testing.T) {
	for _, text := range []string{
		"ERR unknown", "WRONGTYPE x", "NOSCRIPT x", "MOVED 1 a:1", "ASK 1 a:1", "OOM x", "MISCONF x", "BUSYGROUP x", "BUSYKEY x", "NOPERM x", "UNBLOCKED x", "ERR max number of something else",
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			srv.Intercept(notYet("INCR", text, 1))
			p := openPool(t, conn.Config{Dial: srv.Dial})
			defer p.Close()
			_, err := p.Do(t.Context(), "INCR", "n")
			if got, ok := errors.AsType[resp.Error](err); !ok || string(got) != text {
				t.Errorf("INCR = %v, want the server's error", err)
			}
			if conn.SafeToRetry(err) {
				t.Errorf("SafeToRetry(%v) = true", err)
			}
			if n := srv.Count("INCR"); n != 1 {
				t.Errorf("%s: sent %d times, want once", text, n)
			}
		})
	}
}

// TestRetryEnds measures the attempts within the budget.
func TestRetryEnds(t *testing.T) {
	tests := map[string]struct {
		retry    conn.Retry
		ctx      time.Duration
		attempts [2]int
		elapsed  time.Duration
	}{
		"default":  {conn.Retry{}, time.Hour, [2]int{14, 25}, 5 * time.Second},
		"once":     {conn.Retry{Attempts: -1}, time.Hour, [2]int{1, 1}, 0},
		"attempts": {conn.Retry{Attempts: 3}, time.Hour, [2]int{3, 3}, 24 * time.Millisecond},
		"budget":   {conn.Retry{Attempts: 1000, Budget: time.Second}, time.Hour, [2]int{7, 14}, time.Second},
		"ctx":      {conn.Retry{Attempts: 1000, Budget: -1}, 2 * time.Second, [2]int{9, 16}, 2 * time.Second},
		"backoff":  {conn.Retry{MinBackoff: time.Second, MaxBackoff: time.Second}, time.Hour, [2]int{5, 10}, 5 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(notYet("INCR", "LOADING x", 1<<30))
				p := openPool(t, conn.Config{Dial: srv.Dial, Retry: test.retry})
				defer p.Close()
				ctx, cancel := context.WithTimeout(t.Context(), test.ctx)
				defer cancel()
				start := time.Now()
				_, err := p.Do(ctx, "INCR", "n")
				between(t, "the call ended", time.Since(start), test.elapsed/3, test.elapsed)
				if !errors.Is(err, resp.ErrLoading) {
					t.Errorf("error = %v, want the last answer", err)
				}
				if name == "ctx" {
					wantNotSent(t, err, context.DeadlineExceeded)
				}
				if n := srv.Count("INCR"); n < test.attempts[0] || n > test.attempts[1] {
					t.Errorf("%d attempts, want %d to %d", n, test.attempts[0], test.attempts[1])
				}
			})
		})
	}
}

// TestReadOnly: the server turns out to be a replica. The connection is replaced, and its other commands do not fail.
func TestReadOnly(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case cmd.Conn == 1 && cmd.Name == "GET":
				return fakeredis.Run().Late(time.Second)
			case cmd.Conn < 3 && cmd.Name == "SET":
				return fakeredis.Reply("-READONLY You can't write against a read only replica.\r\n")
			}
			return fakeredis.Run()
		})
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		slow := make(chan struct{})
		go func() {
			defer close(slow)
			time.Sleep(time.Millisecond)
			want(t, p, "null", "GET", "other")
		}()
		want(t, p, "OK", "SET", "key", "value")
		<-slow
		want(t, p, "value", "GET", "key")
		synctest.Wait()
		if n, open := srv.Dials(), len(srv.Conns()); n != 3 || open != 1 {
			t.Errorf("%d dials, %d open; want 3, 1 open", n, open)
		}
	})
}

// TestReadOnlyStorm: a server stays read-only for many callers, and dials stay rare.
func TestReadOnlyStorm(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(notYet("SET", "READONLY x", 1<<30))
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		start := time.Now()
		for time.Since(start) < 5*time.Second {
			for range 5 {
				go p.Do(t.Context(), "SET", "key", "value")
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if n := srv.Dials(); n > 40 {
			t.Errorf("%d dials in 5s", n)
		}
	})
}

// TestBatchKeepsWhatIsKnown: a batch ends in the middle, in several ways.
func TestBatchKeepsWhatIsKnown(t *testing.T) {
	batch := cmds("INCR a", "INCR b", "INCR c")
	incr := func(actions ...fakeredis.Action) func(fakeredis.Cmd) fakeredis.Action {
		return func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INCR" && cmd.N <= len(actions) {
				return actions[cmd.N-1]
			}
			return fakeredis.Run()
		}
	}
	run, later := fakeredis.Run(), fakeredis.Reply("-TRYAGAIN x\r\n")
	for name, test := range map[string]struct {
		action  func(fakeredis.Cmd) fakeredis.Action
		replies string
		certain bool
	}{
		"lost in the middle":   {incr(run, fakeredis.RunThenClose()), "1", false},
		"lost when repeated":   {incr(run, later, later, fakeredis.RunThenClose()), "1", false},
		"lost at second":       {incr(later, later, later, run, fakeredis.RunThenClose()), "1", false},
		"once is enough":       {incr(run, later, run), "1 -TRYAGAIN 1", true},
		"never ready":          {incr(run, run, later, later, later, later, later, later), "1 1 -TRYAGAIN", true},
		"closed at the repeat": {incr(run, later, later, fakeredis.Close()), "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(test.action)
				p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{Attempts: 6}})
				defer p.Close()
				values, err := p.SendBatch(t.Context(), batch)
				if got := texts(values); got != test.replies {
					t.Errorf("SendBatch = %s, want %s", got, test.replies)
				}
				if test.certain {
					if err != nil {
						t.Errorf("error = %v, want none", err)
					}
					return
				}
				wantUncertain(t, err, conn.ErrUncertain)
			})
		})
	}
}

// TestBatchWithAsking: a command without the ASKING before it has another meaning, so both are repeated or neither.
func TestBatchWithAsking(t *testing.T) {
	for asking, get := range map[string]string{"+OK": "-TRYAGAIN", "-LOADING": "-LOADING"} {
		sent := 1
		if asking == "-LOADING" {
			sent = 3 // ASKING is repeated too
		}
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				switch cmd.Name {
				case "ASKING":
					return fakeredis.Reply(asking + "\r\n")
				case "GET":
					return fakeredis.Reply(get + " x\r\n")
				}
				return fakeredis.Run()
			})
			p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{Attempts: 3}})
			defer p.Close()
			values, err := p.SendBatch(t.Context(), cmds("ASKING", "GET k"))
			if got := texts(values); err != nil || got != strings.TrimPrefix(asking, "+")+" "+get {
				t.Errorf("SendBatch = %s, %v", got, err)
			}
			if a, g := srv.Count("ASKING"), srv.Count("GET"); a != sent || g != sent {
				t.Errorf("sent ASKING %d times and GET %d times, want %d", a, g, sent)
			}
		})
	}
}

// callName is the key of the name of a call in the context that TestTrace returns from CommandStart.
type callName struct{}

// TestTrace checks the arguments of the callbacks.
func TestTrace(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var log []string
		note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
		trace := &conn.Trace{
			Dial: func(i conn.DialInfo) { note("dial %s %v %d %v", i.Addr, i.Exclusive, i.Protocol, i.Err != nil) },
			CommandStart: func(ctx context.Context, i conn.CommandStart) context.Context {
				return context.WithValue(ctx, callName{}, i.Operation())
			},
			CommandEnd: func(ctx context.Context, i conn.CommandEnd) {
				note("command %v %s %d %v %v %d %v", ctx.Value(callName{}), i.Server, i.Count, i.Elapsed, i.Err != nil, i.Attempts, i.Sent)
			},
			Wait:  func(ctx context.Context, i conn.WaitInfo) { note("wait %v %v", ctx.Value(callName{}), i.Exclusive) },
			Retry: func(_ context.Context, i conn.RetryInfo) { note("retry %s %s %d %v", i.Name, i.Addr, i.Attempt, i.Err) },
			Lost: func(i conn.LostInfo) {
				note("lost %s %v %v %d %v", i.Addr, i.Exclusive, i.Age, i.InFlight, i.Err != nil)
			},
		}
		srv.Intercept(notYet("INCR", "LOADING x", 1))
		quick := conn.Retry{MaxBackoff: 8 * time.Millisecond}
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: trace, Protocol: 2, Retry: quick})
		srv.Latency(time.Second)
		want(t, p, "PONG", "PING")
		srv.Latency(0)
		p.Do(t.Context(), "INCR", "secret")
		p.SendBatch(t.Context(), cmds("GET secret", "GET secret"))
		p.SendBatch(t.Context(), cmds("GET secret", "SET secret secret"))
		p.Tx(t.Context(), cmds("GET secret", "GET secret"))
		p.With(t.Context(), func(c *conn.Conn) error { want(t, c, "PONG", "PING"); return nil })
		time.Sleep(time.Second)
		srv.KillConns(func(c fakeredis.Conn) bool { return c.ID == 1 })
		synctest.Wait()
		srv.Refuse(true)
		p.Do(t.Context(), "my secret", "secret")
		p.Close()
		wantTrace(t, log)
	})
}

// wantTrace compares the log of TestTrace, in which some durations are random.
func wantTrace(t *testing.T, log []string) {
	t.Helper()
	const addr = "127.0.0.1:6379"
	expected := []string{
		"dial " + addr + " false 2 false",
		"wait <nil> false",
		"command PING " + addr + " 1 2s false 1 true",
		"retry INCR " + addr + " 1 LOADING x",
		"command INCR *",
		"command PIPELINE GET " + addr + " 2 0s false 1 true",
		"command PIPELINE " + addr + " 2 0s false 1 true",
		"command MULTI GET " + addr + " 2 0s false 1 true",
		"dial " + addr + " true 2 false",
		"wait <nil> true",
		"command PING " + addr + " 1 0s false 1 true",
		"lost *",
		"dial " + addr + " false 0 true",
		"wait command false",
		"retry command *",
	}
	for i, e := range expected {
		if i >= len(log) {
			t.Errorf("trace ends before %q", e)
		} else if prefix := len(e) - 1; e != log[i] && (e[prefix] != '*' || log[i][:prefix] != e[:prefix]) {
			t.Errorf("trace %d = %q, want %q", i, log[i], e)
		}
	}
	if last := log[len(log)-1]; len(last) < 16 || last[:16] != "command command " {
		t.Errorf("trace ends with %q, want the command", last)
	}
}

func TestError(t *testing.T) {
	tests := []struct {
		err       *conn.Error
		text      string
		retryable bool
	}{
		{&conn.Error{Op: "GET", Addr: "db:1", Sent: true, Err: io.EOF}, "conn: GET db:1: sent but not answered: EOF", false},
		{&conn.Error{Op: "GET", Addr: "db:1", Err: conn.ErrClosed}, "conn: GET db:1: not sent: closed", true},
		{&conn.Error{Op: "dial", Addr: "db:1", Err: io.EOF}, "conn: dial db:1: EOF", true},
		{&conn.Error{Op: "GET"}, "conn: GET: not sent", true},
	}
	for _, test := range tests {
		if got := test.err.Error(); got != test.text {
			t.Errorf("text = %q, want %q", got, test.text)
		}
		wrapped := fmt.Errorf("more: %w", test.err)
		if conn.SafeToRetry(wrapped) != test.retryable || errors.Is(wrapped, conn.ErrNotSent) != test.retryable ||
			errors.Is(wrapped, conn.ErrUncertain) == test.retryable {
			t.Errorf("%v matches the wrong one of ErrNotSent and ErrUncertain", wrapped)
		}
		if test.err.Err != nil && !errors.Is(wrapped, test.err.Err) {
			t.Errorf("%v does not wrap its cause", wrapped)
		}
	}
}

func TestSafeToRetry(t *testing.T) {
	not, sent := &conn.Error{Op: "GET"}, &conn.Error{Op: "GET", Sent: true}
	for _, err := range []error{nil, io.EOF, context.Canceled, resp.ErrLoading, conn.ErrClosed, conn.ErrTxAborted,
		conn.ErrUncertain, errors.Join(not, sent), &conn.Error{Op: "GET", Sent: true, Err: not}} {
		if conn.SafeToRetry(err) {
			t.Errorf("SafeToRetry(%v) = true", err)
		}
	}
	if !conn.SafeToRetry(conn.ErrNotSent) {
		t.Error("SafeToRetry(ErrNotSent) = false")
	}
}

// A batch with WAIT is one call, with the names of its commands.
func TestTraceOfAckedBatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var ends []conn.CommandEnd
		p := openPool(t, conn.Config{Dial: srv.Dial, DB: 1, Trace: &conn.Trace{
			CommandEnd: func(_ context.Context, end conn.CommandEnd) { ends = append(ends, end) },
		}})
		defer p.Close()
		if err := increment(t.Context(), p, "k"); err != nil {
			t.Fatal(err)
		}
		if len(ends) != 1 || ends[0].Operation() != "PIPELINE" || !slices.Equal(ends[0].Names, []string{"INCR", "WAIT"}) ||
			ends[0].Attempts != 1 || ends[0].DB != 1 || !ends[0].Sent {
			t.Errorf("calls %+v", ends)
		}
	})
}

// A call of Block includes its wait for a connection, also if none becomes free.
func TestTraceOfBlock(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var ends []conn.CommandEnd
		waits := 0
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1, Trace: &conn.Trace{
			CommandStart: func(ctx context.Context, s conn.CommandStart) context.Context {
				return context.WithValue(ctx, callName{}, s.Name)
			},
			Wait: func(ctx context.Context, w conn.WaitInfo) {
				if w.Exclusive && ctx.Value(callName{}) == "BLPOP" {
					waits++
				}
			},
			CommandEnd: func(_ context.Context, end conn.CommandEnd) { ends = append(ends, end) },
		}})
		defer p.Close()
		go p.With(t.Context(), func(*conn.Conn) error { time.Sleep(3 * time.Second); return nil })
		synctest.Wait()
		for _, patience := range []time.Duration{time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := p.Block(ctx, "BLPOP", "jobs", 1)
			if len(ends) != 1 || ends[0].Err != err || ends[0].Attempts != 1 || ends[0].Sent != (err == nil) ||
				ends[0].Server == "" || ends[0].Elapsed != min(patience, 3*time.Second) {
				t.Errorf("with a patience of %v: calls %+v", patience, ends)
			}
			ends = nil
		}
		if waits != 2 {
			t.Errorf("%d waits of the calls, want 2", waits)
		}
		if _, err := p.Block(t.Context(), "SUBSCRIBE", "c"); !errors.Is(err, conn.ErrRefused) || len(ends) > 0 {
			t.Errorf("a refused command: %v, calls %+v", err, ends)
		}
	})
}

// Sent tells a call without any effect from a call whose answer is missing.
func TestTraceTellsWhetherSent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var end conn.CommandEnd
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: &conn.Trace{
			CommandEnd: func(_ context.Context, e conn.CommandEnd) { end = e },
		}})
		defer p.Close()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Do(done, "GET", "k"); err == nil || end.Sent || end.Attempts != 1 || end.Server == "" || end.Err != err {
			t.Errorf("under a cancelled context: %+v, %v", end, err)
		}
		srv.Latency(time.Hour)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Do(late, "GET", "k"); !errors.Is(err, conn.ErrUncertain) || !end.Sent || end.Elapsed != time.Second {
			t.Errorf("without an answer: %+v, %v", end, err)
		}
		srv.Latency(0)
		if _, err := p.Do(t.Context(), "NOSUCH"); err == nil || !end.Sent || end.Err != err {
			t.Errorf("refused by the server: %+v, %v", end, err)
		}
	})
}

// StartCall makes one call of several, of which those under another context are no part.
func TestStartCall(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var begun, ended []string
		trace := &conn.Trace{
			CommandStart: func(ctx context.Context, s conn.CommandStart) context.Context {
				begun = append(begun, s.Name)
				return ctx
			},
			CommandEnd: func(_ context.Context, e conn.CommandEnd) { ended = append(ended, e.Name) },
		}
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: trace})
		defer p.Close()
		ctx, call := conn.StartCall(t.Context(), p, conn.CommandStart{Name: "BOTH", Count: 1})
		if _, inner := conn.StartCall(ctx, p, conn.CommandStart{Name: "INNER", Count: 1}); inner != nil {
			t.Error("a call within a call")
		}
		p.Do(ctx, "GET", "k")
		p.SendBatch(ctx, []resp.Command{resp.Cmd("GET", "k"), resp.Cmd("GET", "k")})
		p.Do(t.Context(), "PING")
		p.With(ctx, func(c *conn.Conn) error { _, err := c.Do(ctx, "GET", "k"); return err })
		call.End(ctx, nil)
		want := []string{"PING", "BOTH"}
		if !slices.Equal(begun, []string{"BOTH", "PING"}) || !slices.Equal(ended, want) {
			t.Errorf("begun %v, ended %v, want %v", begun, ended, want)
		}
	})
}

// The contexts of joined traces are nested, and nil traces cost nothing.
func TestJoinTraces(t *testing.T) {
	if conn.JoinTraces() != nil || conn.JoinTraces(nil, nil) != nil {
		t.Error("JoinTraces of nothing is a Trace")
	}
	only := &conn.Trace{Switch: func(conn.SwitchInfo) {}}
	if conn.JoinTraces(nil, only) != only {
		t.Error("JoinTraces of one Trace is another one")
	}
	var events []string
	type key struct{}
	named := func(name string) *conn.Trace {
		return &conn.Trace{
			CommandStart: func(ctx context.Context, _ conn.CommandStart) context.Context {
				path, _ := ctx.Value(key{}).(string)
				return context.WithValue(ctx, key{}, path+name)
			},
			CommandEnd: func(ctx context.Context, _ conn.CommandEnd) {
				events = append(events, name+" ends "+ctx.Value(key{}).(string))
			},
			Dial: func(conn.DialInfo) { events = append(events, name+" dial") },
		}
	}
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: conn.JoinTraces(named("a"), only, nil, named("b"))})
		defer p.Close()
		want(t, p, "PONG", "PING")
	})
	if expected := []string{"a dial", "b dial", "b ends ab", "a ends ab"}; !slices.Equal(events, expected) {
		t.Errorf("events %q, want %q", events, expected)
	}
}
