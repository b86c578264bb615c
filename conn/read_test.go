package conn_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
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
