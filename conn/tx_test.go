package conn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// texts renders replies as text, errors by their prefix.
func texts(values []resp.Value) string {
	var list []string
	for _, v := range values {
		s, err := v.Text()
		if e, ok := errors.AsType[resp.Error](err); ok {
			s = "-" + e.Prefix()
		} else if v.IsNull() {
			s = "null"
		} else if v.Kind() == resp.Array {
			s = "[" + texts(elements(v)) + "]"
		}
		list = append(list, s)
	}
	return strings.Join(list, " ")
}

func elements(v resp.Value) (list []resp.Value) {
	for e := range v.All() {
		list = append(list, e)
	}
	return list
}

// cmds makes commands of texts; spaces separate their words.
func cmds(lines ...string) (list []resp.Command) {
	for _, line := range lines {
		var args []any
		for w := range strings.FieldsSeq(line) {
			args = append(args, w)
		}
		list = append(list, resp.Cmd(args...))
	}
	return list
}

func TestTx(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		values, err := p.Tx(t.Context(), cmds("SET k v", "LPUSH k x", "GET k", "BLPOP nothing 0"))
		if got := texts(values); err != nil || got != "OK -WRONGTYPE v null" {
			t.Errorf("Tx = %s, %v; want the error in its place", got, err)
		}
		_, err = p.Tx(t.Context(), cmds("GET k", "NOSUCH k", "GET k"))
		if !errors.Is(err, resp.ErrGeneral) || !errors.Is(err, resp.ErrExecAbort) || !strings.Contains(err.Error(), "NOSUCH") {
			t.Errorf("Tx with an unknown command = %v, want its error and EXECABORT", err)
		}
		if values, err := p.Tx(t.Context(), nil); err != nil || values != nil {
			t.Errorf("Tx of nothing = %v, %v", values, err)
		}
		want(t, p, "v", "GET", "k")
	})
}

// TestTxAdjacent: many callers run transactions on one connection, and no transactions mix.
func TestTxAdjacent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		done := make(chan struct{})
		for i := range 50 {
			go func() {
				defer func() { done <- struct{}{} }()
				values, err := p.Tx(t.Context(), cmds(fmt.Sprint("SET k ", i), "GET k"))
				if got := texts(values); err != nil || got != fmt.Sprint("OK ", i) {
					t.Errorf("Tx %d = %s, %v", i, got, err)
				}
				want(t, p, "PONG", "PING")
			}()
		}
		for range 50 {
			<-done
		}
	})
}

func TestTxAborted(t *testing.T) {
	for _, proto := range []int{2, 3} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			p := openPool(t, conn.Config{Dial: srv.Dial, Protocol: proto})
			defer p.Close()
			err := p.With(t.Context(), func(c *conn.Conn) error {
				want(t, c, "OK", "WATCH", "k")
				want(t, p, "OK", "SET", "k", "other")
				_, err := c.Tx(t.Context(), cmds("SET k mine"))
				return err
			})
			if !errors.Is(err, conn.ErrTxAborted) || conn.SafeToRetry(err) || errors.Is(err, conn.ErrUncertain) {
				t.Errorf("Tx after a change = %v, want ErrTxAborted", err)
			}
			want(t, p, "other", "GET", "k")
		})
	}
}

func TestTxInOpenMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		defer c.Close()
		want(t, c, "OK", "MULTI")
		_, err := c.Tx(t.Context(), cmds("SET k v"))
		wantNotSent(t, err, err)
		want(t, c, "OK", "DISCARD")
		want(t, c, "null", "GET", "k")
	})
}

// TestTxNotReady: the server refuses a transaction, while queueing or at EXEC, and the transaction is repeated as a
// whole.
func TestTxNotReady(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.welcome()
		whole := []string{"MULTI", "INCR n", "INCR n", "EXEC"}
		p.expect(whole...)
		p.reply("+OK|", "-LOADING x|", "+QUEUED|", "-EXECABORT x|")
		p.expect(whole...)
		p.reply("+OK|", "+QUEUED|", "+QUEUED|", "-TRYAGAIN x|")
		p.expect(whole...)
		p.reply("+OK|", "+QUEUED|", "+QUEUED|", "-EXECABORT Transaction discarded because of: NOREPLICAS x|")
		p.expect(whole...)
		p.reply("+OK|", "+QUEUED|", "+QUEUED|", "*2|:1|:2|")
		p.expectClose()
	})
	p := openPool(t, cfg)
	defer p.Close()
	values, err := p.Tx(t.Context(), cmds("INCR n", "INCR n"))
	if got := texts(values); err != nil || got != "1 2" {
		t.Errorf("Tx = %s, %v", got, err)
	}
	if n := p.Stats().Retries; n != 3 {
		t.Errorf("%d retries, want 3", n)
	}
}

// TestTxDiscardedAtExec: the error wraps the reason that the server gives for discarding the transaction.
func TestTxDiscardedAtExec(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.welcome()
		p.expect("MULTI", "INCR n", "EXEC")
		p.reply("+OK|", "+QUEUED|", "-EXECABORT Transaction discarded because of: NOPERM x|")
		p.expectClose()
	})
	p := openPool(t, cfg)
	defer p.Close()
	_, err := p.Tx(t.Context(), cmds("INCR n"))
	if !errors.Is(err, resp.ErrNoPerm) || !errors.Is(err, resp.ErrExecAbort) || conn.SafeToRetry(err) {
		t.Errorf("Tx = %v, want NOPERM and EXECABORT", err)
	}
}

// TestTxNonsense: the reply to EXEC is not the list of replies.
func TestTxNonsense(t *testing.T) {
	for _, exec := range []string{"+OK|", "*0|", "*2|:1|:2|"} {
		cfg := scripted(t, func(p *peer) {
			p.welcome()
			p.expect("MULTI", "INCR n", "EXEC")
			p.reply("+OK|", "+QUEUED|", exec)
			p.expectClose()
		})
		p := openPool(t, cfg)
		_, err := p.Tx(t.Context(), cmds("INCR n"))
		wantUncertain(t, err, conn.ErrUncertain)
		p.Close()
	}
}

// TestTxLeftOpen: the server refuses EXEC and keeps the transaction open, like old servers. It queues other callers'
// commands on the connection: they must not get QUEUED as their reply. The outcome is uncertain, since another
// caller's EXEC may run the transaction.
func TestTxLeftOpen(t *testing.T) {
	tests := map[string]func(t *testing.T, p *conn.Pool){
		"waiting": func(t *testing.T, p *conn.Pool) {
			_, err := p.Tx(context.Background(), cmds("ECHO a"))
			wantUncertain(t, err, resp.ErrBusy)
		},
		"gone": func(t *testing.T, p *conn.Pool) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := p.Tx(ctx, cmds("ECHO a"))
			wantUncertain(t, err, context.DeadlineExceeded)
		},
	}
	for name, tx := range tests {
		for _, others := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, others=%d", name, others), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *fakeredis.Server) {
					p := openPool(t, conn.Config{Dial: srv.Dial})
					defer p.Close()
					srv.Intercept(onName("EXEC", 1, fakeredis.Reply("-BUSY x\r\n").Late(time.Second)))
					var wg sync.WaitGroup
					wg.Go(func() { tx(t, p) })
					synctest.Wait()
					for range others {
						wg.Go(func() {
							_, err := p.Do(context.Background(), "ECHO", "b")
							wantUncertain(t, err, conn.ErrUncertain)
						})
					}
					wg.Wait()
					time.Sleep(2 * time.Second) // until abandoned replies have arrived too
					want(t, p, "c", "ECHO", "c")
				})
			})
		}
	}
}

// TestTxLeftOpenAtOnce: another caller's replies arrive together with the refusal of EXEC, and that caller's EXEC has
// run both transactions. Neither is sent again.
func TestTxLeftOpenAtOnce(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.welcome()
		p.expect("MULTI", "INCR n", "EXEC")
		p.expect("MULTI", "INCR m", "EXEC")
		p.reply("+OK|+QUEUED|-BUSY x|-ERR MULTI calls can not be nested|+QUEUED|*2|:1|:1|")
		p.expectClose()
	})
	p := openPool(t, cfg)
	defer p.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := p.Tx(context.Background(), cmds("INCR n"))
		wantUncertain(t, err, resp.ErrBusy)
	})
	eventually(t, func() bool { return p.Stats().InFlight == 1 })
	_, err := p.Tx(context.Background(), cmds("INCR m"))
	wantUncertain(t, err, conn.ErrUncertain)
	wg.Wait()
}

// TestTxRefused: refusals of EXEC that end the transaction, and leave the connection usable.
func TestTxRefused(t *testing.T) {
	for _, text := range []string{"EXECABORT x", "MOVED 1 a:1", "ASK 1 a:1", "CROSSSLOT x"} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			p := openPool(t, conn.Config{Dial: srv.Dial})
			defer p.Close()
			srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				switch cmd.Name {
				case "MULTI":
					return fakeredis.Reply("+OK\r\n")
				case "GET":
					return fakeredis.Reply("+QUEUED\r\n")
				case "EXEC":
					return fakeredis.Reply("-" + text + "\r\n")
				}
				return fakeredis.Run()
			})
			_, err := p.Tx(t.Context(), cmds("GET k"))
			if e, ok := errors.AsType[resp.Error](err); !ok || string(e) != text {
				t.Errorf("Tx = %v, want %s", err, text)
			}
			want(t, p, "c", "ECHO", "c")
			if n := srv.Dials(); n != 1 {
				t.Errorf("%s: %d connections, want 1", text, n)
			}
		})
	}
}

// TestTxWithoutMulti: the server refuses MULTI, and the following commands may have run by themselves.
func TestTxWithoutMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Intercept(onName("MULTI", 1, fakeredis.Reply("-NOPERM no\r\n")))
		_, err := p.Tx(t.Context(), cmds("INCR n"))
		wantUncertain(t, err, resp.ErrNoPerm)
	})
}

// TestTxUnanswered: the connection is lost before the reply to EXEC.
func TestTxUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Intercept(onName("EXEC", 1, fakeredis.RunThenClose()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.Tx(ctx, cmds("INCR n"))
		wantUncertain(t, err, conn.ErrUncertain)
		want(t, p, "1", "GET", "n")
	})
}

// A transaction whose caller has left is over once the server has executed it: the Conn can have another, and sends PINGs.
// A Pool does not lend the connection again.
func TestTxLeft(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *conn.Conn) error{
		"Tx": func(ctx context.Context, c *conn.Conn) error { _, err := c.Tx(ctx, cmds("INCR n")); return err },
		"EXEC": func(ctx context.Context, c *conn.Conn) error {
			want(t, c, "OK", "MULTI")
			want(t, c, "QUEUED", "INCR", "n")
			_, err := c.Do(ctx, "EXEC")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(onName("EXEC", 1, fakeredis.Delay(2*time.Second, fakeredis.Run())))
				c := dialConn(t, conn.Config{Dial: srv.Dial, PingInterval: time.Second})
				defer c.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantUncertain(t, call(ctx, c), context.DeadlineExceeded)
				if values, err := c.Tx(t.Context(), cmds("INCR n")); err != nil || texts(values) != "2" {
					t.Errorf("the next Tx = %q, %v", texts(values), err)
				}
				srv.ClearLog()
				time.Sleep(10 * time.Second)
				if n := srv.Count("PING"); n < 8 {
					t.Errorf("%d PING in 10s, want one each second", n)
				}
			})
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(onName("EXEC", 1, fakeredis.Delay(2*time.Second, fakeredis.Run())))
				p := openPool(t, conn.Config{Dial: srv.Dial})
				defer p.Close()
				with(t, p, func(c *conn.Conn) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					wantUncertain(t, call(ctx, c), context.DeadlineExceeded)
					time.Sleep(5 * time.Second)
				})
				with(t, p, func(*conn.Conn) {})
				if n := srv.Dials(); n != 3 {
					t.Errorf("%d connections, want a new one", n)
				}
			})
		})
	}
}

// RESET ends a transaction, and a refused MULTI begins none.
func TestTxNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("MULTI", 2, fakeredis.Reply("-NOPERM x\r\n")))
		c := dialConn(t, conn.Config{Dial: srv.Dial, PingInterval: time.Second})
		defer c.Close()
		want(t, c, "OK", "MULTI")
		want(t, c, "RESET", "RESET")
		if _, err := c.Do(t.Context(), "MULTI"); !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("MULTI = %v, want NOPERM", err)
		}
		if _, err := c.Tx(t.Context(), cmds("INCR n")); err != nil {
			t.Errorf("Tx = %v", err)
		}
		srv.ClearLog()
		time.Sleep(10 * time.Second)
		if n := srv.Count("PING"); n < 8 {
			t.Errorf("%d PING in 10s, want one each second", n)
		}
	})
}

// With a PingInterval that is short beside Timeout, too, no PING is sent inside MULTI, where EXEC would have its reply, and none
// behind a command without an answer.
func TestNoPingInMultiAtShortIntervals(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 500 * time.Millisecond, 100 * time.Millisecond, time.Nanosecond} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			c := dialConn(t, conn.Config{Dial: srv.Dial, PingInterval: interval})
			defer c.Close()
			want(t, c, "OK", "MULTI")
			time.Sleep(time.Minute)
			want(t, c, "QUEUED", "ECHO", "a")
			time.Sleep(time.Minute)
			v, err := c.Do(t.Context(), "EXEC")
			if got := texts(elements(v)); err != nil || got != "a" {
				t.Errorf("PingInterval %v: EXEC = %s, %v", interval, got, err)
			}
			time.AfterFunc(time.Minute, func() { srv.Do("RPUSH", "list", "x") })
			if v, err := c.Do(t.Context(), "BLPOP", "list", 0); err != nil || v.Len() != 2 {
				t.Errorf("PingInterval %v: BLPOP = %d elements, %v", interval, v.Len(), err)
			}
			if n := srv.Count("PING"); n != 0 {
				t.Errorf("PingInterval %v: %d PING", interval, n)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Do("SET", "n", "1")
		calls, changes := 0, 2
		double := func(c *conn.Conn) ([]resp.Command, error) {
			n, err := resp.As[int](c.Do(t.Context(), "GET", "n"))
			if calls++; calls <= changes {
				srv.Do("INCR", "n")
			}
			return []resp.Command{resp.Cmd("SET", "n", 2*n), resp.Cmd("GET", "n")}, err
		}
		values, err := p.Watch(t.Context(), []string{"n", "m"}, double)
		if got := texts(values); got != "OK 6" || err != nil || calls != 3 {
			t.Errorf("Watch = %s, %v after %d calls, want the double of 3", got, err, calls)
		}
		calls = 0
		err = p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.Watch(t.Context(), []string{"n"}, double)
			return err
		})
		if !errors.Is(err, conn.ErrTxAborted) || calls != 1 {
			t.Errorf("Watch of a Conn = %v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = p.Watch(ctx, []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
			srv.Do("INCR", "n")
			if calls++; calls == 5 {
				defer cancel()
			}
			return []resp.Command{resp.Cmd("SET", "n", 0)}, nil
		})
		if err == nil || calls != 5 {
			t.Errorf("Watch of a key that always changes = %v after %d calls", err, calls)
		}
	})
}

// A call that changes nothing leaves the connection as it was.
func TestWatchOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		no := errors.New("no")
		for _, want := range []error{nil, no} {
			values, err := p.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) { return nil, want })
			if err != want || len(values) != 0 {
				t.Errorf("Watch = %v, %v, want %v", values, err, want)
			}
		}
		if n := p.Stats(); n.Idle != 1 || srv.Count("EXEC") != 0 || srv.Count("UNWATCH") != 2 {
			t.Errorf("%+v after %d EXEC and %d UNWATCH", n, srv.Count("EXEC"), srv.Count("UNWATCH"))
		}
		if _, err := p.Watch(t.Context(), nil, nil); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Watch without keys = %v", err)
		}
	})
}

// An error of fn ends Watch, even if it says that a transaction was aborted.
func TestWatchReturnsTheErrorOfFn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		calls := 0
		mine := fmt.Errorf("mine: %w", conn.ErrTxAborted)
		_, err := p.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			if calls++; calls > 1 {
				return nil, nil
			}
			return nil, mine
		})
		if err != mine || calls != 1 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// Watch pauses before it begins anew, and the end of ctx ends the pause.
func TestWatchPauses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{MinBackoff: 40 * time.Millisecond}})
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		calls := 0
		_, err := p.Watch(ctx, []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			srv.Do("INCR", "n")
			calls++
			return []resp.Command{resp.Cmd("SET", "n", 0)}, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) || calls < 5 || calls > 20 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// Commands that are refused before they are sent leave no WATCH open.
func TestWatchOfRefusedCommands(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c, err := conn.Dial(t.Context(), conn.Config{Addr: "x:1", Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			return []resp.Command{resp.Cmd("SET", "n", nil)}, nil
		})
		if !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Watch = %v", err)
		}
		srv.Do("SET", "n", "other")
		if _, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("SET", "m", "1")}); err != nil {
			t.Errorf("the next Tx = %v", err)
		}
	})
}

// Inside a MULTI of the caller, UNWATCH would become a part of the transaction.
func TestWatchInsideAnOpenMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		_ = p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.Watch(t.Context(), []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
				_, err := c.Do(t.Context(), "MULTI")
				return []resp.Command{resp.Cmd("SET", "n", 0)}, err
			})
			if !errors.Is(err, conn.ErrRefused) {
				t.Errorf("Watch = %v, want ErrRefused", err)
			}
			return nil
		})
		if n := srv.Count("UNWATCH"); n != 0 {
			t.Errorf("%d UNWATCH inside the MULTI", n)
		}
	})
}
