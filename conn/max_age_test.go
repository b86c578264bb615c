package conn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestMaxAge: shared connections are replaced during commands, and no command notices.
func TestMaxAge(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Latency(30 * time.Millisecond)
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: time.Second})
		defer p.Close()
		start := time.Now()
		for time.Since(start) < 20*time.Second {
			for range 3 {
				go want(t, p, "PONG", "PING")
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := srv.Dials(); n < 16 || n > 24 {
			t.Errorf("%d dials in 20s, want one a second", n)
		}
		if n := len(srv.Conns()); n > 2 {
			t.Errorf("%d connections, want the old ones closed", n)
		}
		if s := p.Stats(); s.Lost != 0 || s.Retries != 0 {
			t.Errorf("Stats = %+v, want nothing lost or repeated", s)
		}
	})
}

// TestMaxAgeOfIdle: a command just before the MaxAge of an idle connection does not put the replacement off.
func TestMaxAgeOfIdle(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: time.Second})
		defer p.Close()
		time.Sleep(899 * time.Millisecond) // MaxAge varies by a tenth
		want(t, p, "PONG", "PING")
		time.Sleep(202 * time.Millisecond)
		if n := srv.Dials(); n != 2 {
			t.Errorf("%d dials after 1.1s, want the connection replaced", n)
		}
	})
}

// slowContext calls pause when a command is about to be sent: when Err is called.
type slowContext struct {
	context.Context
	pause func()
}

func (c slowContext) Err() error {
	c.pause()
	return c.Context.Err()
}

// TestMaxAgeBeforeSend: a call that has chosen a connection just before the end of its MaxAge takes the next one, and that
// is no failed attempt. If the same happens again, it is one.
func TestMaxAgeBeforeSend(t *testing.T) {
	for _, again := range []bool{false, true} {
		for name, call := range map[string]func(p *conn.Pool, ctx context.Context) error{
			"Do":        func(p *conn.Pool, ctx context.Context) error { _, err := p.Do(ctx, "PING"); return err },
			"SendBatch": func(p *conn.Pool, ctx context.Context) error { _, err := p.SendBatch(ctx, cmds("PING")); return err },
			"Tx":        func(p *conn.Pool, ctx context.Context) error { _, err := p.Tx(ctx, cmds("PING")); return err },
		} {
			t.Run(fmt.Sprint(name, " again ", again), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *fakeredis.Server) {
					var retries []int
					p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: time.Second, Retry: conn.Retry{Attempts: 1},
						Trace: &conn.Trace{Retry: func(_ context.Context, r conn.RetryInfo) { retries = append(retries, r.Attempt) }}})
					defer p.Close()
					paused := false
					err := call(p, slowContext{t.Context(), func() {
						if !paused || again {
							paused = true
							time.Sleep(1200 * time.Millisecond)
						}
					}})
					if again {
						wantNotSent(t, err, conn.ErrNotSent)
					} else if err != nil {
						t.Errorf("%s = %v, want an answer over the next connection", name, err)
					}
					if n := p.Stats().Retries; n != 1 || len(retries) != 1 || retries[0] != 1 {
						t.Errorf("%d retries, after the attempts %v; want one after the first", n, retries)
					}
				})
			})
		}
	}
}

// TestMaxAgeOfUnreachable: a connection stays if it cannot be replaced.
func TestMaxAgeOfUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: time.Second})
		defer p.Close()
		srv.Refuse(true)
		for range 100 {
			want(t, p, "PONG", "PING")
			time.Sleep(100 * time.Millisecond)
		}
		if n := srv.Dials(); n > 50 {
			t.Errorf("%d dials in 10s, want pauses between them", n)
		}
		srv.Refuse(false)
		time.Sleep(2 * time.Second)
		if n := len(srv.Conns()); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// A connection that has answered READONLY has an age, too, and an attempt to replace it may fail.
func TestMaxAgeOfReadOnly(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(notYet("SET", "READONLY x", 1<<30))
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: time.Minute})
		defer p.Close()
		if _, err := p.Do(t.Context(), "SET", "k", "v"); !errors.Is(err, resp.ErrReadOnly) {
			t.Fatalf("SET = %v, want READONLY", err)
		}
		srv.Refuse(true)
		time.Sleep(2 * time.Minute)
		srv.Refuse(false)
		before := srv.Dials()
		time.Sleep(2 * time.Minute)
		if n := srv.Dials() - before; n == 0 {
			t.Error("the connection was not replaced after its MaxAge, since a dial had failed")
		}
	})
}

// A dial in place of a connection of MaxAge fails at the moment of that connection's first READONLY. Only the race detector
// can see a fault, and not each time.
func TestMaxAgeBesideReadOnly(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			now := make(chan struct{})
			cfg := scripted(t, func(p *peer) {
				p.welcome()
				p.expect("GET k")
				p.expect("SET k v")
				p.reply("+v|")
				<-now
				p.reply("-READONLY x|")
				p.written()
			})
			first, dialled := cfg.Dial, false
			cfg.MaxAge, cfg.Retry.Attempts = time.Second, 1
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !dialled {
					dialled = true
					return first(ctx, network, addr)
				}
				<-now
				return nil, errors.New("not reachable")
			}
			p := openPool(t, cfg)
			defer p.Close()
			for _, args := range [][]any{{"GET", "k"}, {"SET", "k", "v"}} {
				go p.Do(context.Background(), args...)
				synctest.Wait()
			}
			time.Sleep(2 * time.Second)
			close(now)
			synctest.Wait()
		})
	}
}
