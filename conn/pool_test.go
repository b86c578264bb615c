package conn_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestRefusedPort: dials and repetitions share one budget, so a closed port costs few dials. (B20)
func TestRefusedPort(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		srv.Refuse(true)
		_, err := conn.Open(ctx, conn.Config{Dial: srv.Dial})
		wantNotSent(t, err, syscall.ECONNREFUSED)
		if n := srv.Dials(); n < 2 || n > 8 {
			t.Errorf("Open dialled %d times, want 2 to 8", n)
		}
		srv.Refuse(false)
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Refuse(true)
		srv.KillConns(nil)
		synctest.Wait()
		before := srv.Dials()
		_, err = p.Do(ctx, "PING")
		wantNotSent(t, err, syscall.ECONNREFUSED)
		if n := srv.Dials() - before; n < 2 || n > 8 {
			t.Errorf("PING dialled %d times, want 2 to 8", n)
		}
		if !strings.Contains(err.Error(), "PING") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error = %v, want it to name command and cause", err)
		}
	})
}

// TestStampede: a thousand callers find the server gone, and share the dials.
func TestStampede(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Conns: 4})
		defer p.Close()
		srv.Refuse(true)
		srv.KillConns(nil)
		synctest.Wait()
		before := srv.Dials()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				_, err := p.Do(context.Background(), "PING")
				wantNotSent(t, err, syscall.ECONNREFUSED)
			})
		}
		wg.Wait()
		// Two dials at once, for 5 s and the time of a first failure. All pauses but the first three are 384 ms or longer.
		if n := srv.Dials() - before; n > 2*(5+5500/384) {
			t.Errorf("%d dials for 4 connections, want as few as for one caller each", n)
		}
		srv.Refuse(false)
		want(t, p, "PONG", "PING")
	})
}

// TestDialsAtOnce counts the concurrent dials.
func TestDialsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var mu sync.Mutex
		now, most := 0, 0
		cfg := conn.Config{Conns: 8, MaxConns: 8, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return srv.Dial(ctx, network, addr)
		}}
		p := openPool(t, cfg)
		defer p.Close()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				_, err := p.Send(context.Background(), resp.Cmd("PING").On(fmt.Sprint(i)))
				if err == nil && i < 8 {
					err = p.With(context.Background(), func(*conn.Conn) error { time.Sleep(time.Minute); return nil })
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most != 2 || srv.Dials() != 16 {
			t.Errorf("%d dials, %d at once; want 16, 2 at once", srv.Dials(), most)
		}
	})
}

// TestMuteTLS: a caller gives up a handshake without an answer, and no further dial starts. (B21)
func TestMuteTLS(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		cfg := conn.Config{Dial: srv.Dial, TLS: &tls.Config{ServerName: "redis.example"}}
		srv.Mute(true)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := conn.Open(ctx, cfg)
		between(t, "Open returned", time.Since(start), 200*time.Millisecond, 220*time.Millisecond)
		wantNotSent(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		if n := srv.Dials(); n != 1 {
			t.Errorf("%d dials, want 1", n)
		}
	})
}

// TestWhatTheDialWaitsFor: callers leave during a dial; their error names the dial's current step.
func TestWhatTheDialWaitsFor(t *testing.T) {
	for want, setUp := range map[string]func(srv *fakeredis.Server, cfg *conn.Config){
		"TLS handshake of 127.0.0.1:6379 for 1s (the server may not expect TLS)": func(srv *fakeredis.Server, cfg *conn.Config) {
			srv.Mute(true)
			cfg.TLS = &tls.Config{ServerName: "redis.example"}
		},
		": handshake of 127.0.0.1:6379 for 1s": func(srv *fakeredis.Server, cfg *conn.Config) { srv.Mute(true) },
		": connect of 127.0.0.1:6379 for 1s":   func(srv *fakeredis.Server, cfg *conn.Config) { srv.Unreachable(true) },
		": credentials of 127.0.0.1:6379 for 1s": func(srv *fakeredis.Server, cfg *conn.Config) {
			cfg.Credentials = func(ctx context.Context) (string, string, error) {
				<-ctx.Done()
				return "", "", ctx.Err()
			}
		},
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			cfg := conn.Config{Dial: srv.Dial}
			setUp(srv, &cfg)
			p, err := conn.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			errs := make(chan error, 3)
			go func() { _, err := conn.Open(ctx, cfg); errs <- err }()
			go func() { _, err := p.Do(ctx, "PING"); errs <- err }()
			go func() { errs <- p.With(ctx, func(*conn.Conn) error { return nil }) }()
			for range 3 {
				err := <-errs
				wantNotSent(t, err, context.DeadlineExceeded)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want it to hold %q", err, want)
				}
			}
		})
	}
}

// TestNobodyWaits: the only caller leaves during the pause after a failed dial, and no further dial starts.
func TestNobodyWaits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{MinBackoff: time.Second}})
		defer p.Close()
		srv.Refuse(true)
		srv.KillConns(nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		_, err := p.Do(ctx, "PING")
		wantNotSent(t, err, context.DeadlineExceeded)
		err = p.With(ctx, func(*conn.Conn) error { return nil })
		wantNotSent(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		if n := srv.Dials(); n != 2 {
			t.Errorf("%d dials, want 2", n)
		}
		srv.Refuse(false)
		want(t, p, "PONG", "PING")
	})
}

// TestImpatientCaller: one caller leaves while others wait for the same dial. The others and the server do not
// notice.
func TestImpatientCaller(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.KillConns(nil)
		synctest.Wait()
		srv.Latency(time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := p.Do(ctx, "PING")
			wantNotSent(t, err, context.DeadlineExceeded)
			if !strings.Contains(err.Error(), "0 shared") {
				t.Errorf("error = %v, want it to count the connections", err)
			}
		})
		wg.Go(func() { want(t, p, "PONG", "PING") })
		wg.Wait()
		if n := srv.Dials(); n != 2 {
			t.Errorf("%d dials, want 2", n)
		}
		if s := p.Stats(); s.DialErrors != 0 {
			t.Errorf("%d dial errors, want none", s.DialErrors)
		}
	})
}

// TestDeadIdle: the server closes an idle connection, and the next command does not notice. (B08, B39)
func TestDeadIdle(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for range 5 {
			want(t, p, "PONG", "PING")
			srv.KillConns(nil)
			synctest.Wait()
		}
		if s := p.Stats(); s.Lost != 5 || s.Dials != 5 || s.Shared != 0 {
			t.Errorf("Stats = %+v, want 5 dials, 5 lost, none open", s)
		}
	})
}

// TestExclusiveLost: each loss of an exclusive connection, lent or idle, is counted and reported once.
func TestExclusiveLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var lost []conn.LostInfo
		losses := 0
		trace := &conn.Trace{Lost: func(i conn.LostInfo) { lost = append(lost, i) }}
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: trace})
		defer p.Close()
		p.OnLoss(func() { losses++ })
		exclusive := func(c fakeredis.Conn) bool { return c.ID > 1 }
		err := p.With(t.Context(), func(c *conn.Conn) error {
			time.AfterFunc(time.Second, func() { srv.KillConns(exclusive) })
			_, err := c.Do(t.Context(), "BLPOP", "list", 0)
			return err
		})
		if !errors.Is(err, conn.ErrUncertain) {
			t.Errorf("With = %v, want ErrUncertain", err)
		}
		synctest.Wait()
		hold(t, p, 0)
		srv.KillConns(exclusive)
		synctest.Wait()
		if s := counts(t, p, 16); s.Lost != 2 || s.Open != 0 || s.Shared != 1 || losses != 2 {
			t.Errorf("Stats = %+v, %d losses told, want 2 lost, none open and 2 told", s, losses)
		}
		if len(lost) != 2 || !lost[0].Exclusive || lost[0].InFlight != 1 || !lost[1].Exclusive || lost[1].InFlight != 0 {
			t.Errorf("reported %+v, want two exclusive ones, the first with a call", lost)
		}
	})
}

// TestTooManyClients: a refusal for too many clients is temporary. (B40)
func TestTooManyClients(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.MaxClients(1)
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		time.AfterFunc(100*time.Millisecond, func() { c.Close() })
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		if n := srv.Dials(); n < 3 || n > 8 {
			t.Errorf("%d dials, want a few", n)
		}
	})
}

// TestNotLetIn: a refusal of the credentials is not repeated.
func TestNotLetIn(t *testing.T) {
	for want, setUp := range map[string]func(srv *fakeredis.Server, cfg *conn.Config){
		"WRONGPASS": func(srv *fakeredis.Server, cfg *conn.Config) { srv.User("default", "a"); cfg.Password = "b" },
		"NOAUTH":    func(srv *fakeredis.Server, cfg *conn.Config) { srv.User("default", "a") },
		"NOPERM": func(srv *fakeredis.Server, cfg *conn.Config) {
			srv.Intercept(onName("HELLO", 1, fakeredis.Reply("-NOPERM no\r\n")))
		},
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			cfg := conn.Config{Dial: srv.Dial}
			setUp(srv, &cfg)
			p, err := conn.Open(t.Context(), cfg)
			if err == nil {
				p.Close()
			}
			wantNotSent(t, err, resp.Error(want))
			if n := srv.Dials(); n != 1 {
				t.Errorf("%s: %d dials, want 1", want, n)
			}
		})
	}
}

// TestRouting: commands with the same key use the same connection.
func TestRouting(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Conns: 4})
		defer p.Close()
		srv.ClearLog()
		for i := range 100 {
			key := fmt.Sprint("key", i%20)
			cmd := resp.Cmd("SET", key, i).On(key)
			var err error
			switch i % 3 {
			case 0:
				_, err = p.Send(t.Context(), cmd)
			case 1:
				_, err = p.SendBatch(t.Context(), []resp.Command{cmd, resp.Cmd("PING")})
			case 2:
				_, err = p.Tx(t.Context(), []resp.Command{cmd})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		conns := map[string]map[int64]bool{}
		all := map[int64]bool{}
		for _, cmd := range srv.Log() {
			if cmd.Name == "SET" {
				if conns[cmd.Args[1]] == nil {
					conns[cmd.Args[1]] = map[int64]bool{}
				}
				conns[cmd.Args[1]][cmd.Conn] = true
				all[cmd.Conn] = true
			}
		}
		for key, used := range conns {
			if len(used) != 1 {
				t.Errorf("%s went over %d connections, want 1", key, len(used))
			}
		}
		if len(all) < 2 {
			t.Errorf("20 keys went over %d connection, want them spread", len(all))
		}
	})
}

// TestPoolClose: Close ends all waits, and no goroutine runs afterwards.
func TestPoolClose(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1, OnPush: func(resp.Value) {}})
		srv.Intercept(onName("GET", 1, fakeredis.Drop()))
		errs := make(chan error, 4)
		go func() { _, err := p.Do(context.Background(), "GET", "key"); errs <- err }()
		go func() {
			errs <- p.With(context.Background(), func(c *conn.Conn) error {
				_, err := c.Do(context.Background(), "BLPOP", "list", 0)
				return err
			})
		}()
		synctest.Wait()
		go func() { errs <- p.With(context.Background(), func(*conn.Conn) error { return nil }) }()
		synctest.Wait()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		}
		for range 3 {
			if err := <-errs; !errors.Is(err, conn.ErrClosed) {
				t.Errorf("error = %v, want ErrClosed", err)
			}
		}
		_, e1 := p.Do(t.Context(), "PING")
		_, e2 := p.SendBatch(t.Context(), []resp.Command{resp.Cmd("PING")})
		_, e3 := p.Tx(t.Context(), []resp.Command{resp.Cmd("PING")})
		e4 := p.With(t.Context(), func(*conn.Conn) error { return nil })
		_, e5 := p.Stream(t.Context())
		for _, err := range []error{e1, e2, e3, e4, e5} {
			wantNotSent(t, err, conn.ErrClosed)
		}
		if s := p.Stats(); s.Open != 0 || s.Shared != 0 || s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("Stats after Close = %+v", s)
		}
	})
}

// TestCloseWhilePausing: Close ends the pause before the next attempt.
func TestCloseWhilePausing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(notYet("GET", "LOADING x", 1<<30))
		p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{MinBackoff: time.Hour, Budget: -1}})
		time.AfterFunc(time.Second, func() { p.Close() })
		start := time.Now()
		_, err := p.Do(t.Context(), "GET", "key")
		between(t, "the call ended", time.Since(start), time.Second, time.Second)
		wantNotSent(t, err, conn.ErrClosed)
		wantNotSent(t, err, resp.ErrLoading)
	})
}

// TestCloseWhileDialling: Close ends a dial.
func TestCloseWhileDialling(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		srv.Unreachable(true)
		srv.KillConns(nil)
		synctest.Wait()
		errs := make(chan error, 2)
		go func() { _, err := p.Do(context.Background(), "PING"); errs <- err }()
		go func() { errs <- p.With(context.Background(), func(*conn.Conn) error { return nil }) }()
		synctest.Wait()
		start := time.Now()
		p.Close()
		between(t, "Close returned", time.Since(start), 0, 0)
		for range 2 {
			wantNotSent(t, <-errs, conn.ErrClosed)
		}
	})
}

// TestLog: each change of state is logged once, and nothing else is logged.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		srv.User("u", secret)
		srv.Intercept(notYet("SET", "READONLY x", 2))
		p := openPool(t, conn.Config{Dial: srv.Dial, Logger: logger, Username: "u", Password: secret})
		want(t, p, "OK", "SET", "argument", "argument")
		srv.Refuse(true)
		srv.KillConns(nil)
		p.Do(t.Context(), "GET", "argument")
		p.Do(t.Context(), "GET", "argument")
		srv.Refuse(false)
		want(t, p, "OK", "SET", "argument", "argument")
		p.Close()
		log := out.String()
		for text, n := range map[string]int{
			"server is read-only":    1,
			"connection lost":        1,
			"server not reachable":   1,
			"server reachable again": 1,
			"addr=127.0.0.1:6379":    4,
			"level=WARN":             4,
			"argument":               0,
			secret:                   0,
		} {
			if got := strings.Count(log, text); got != n {
				t.Errorf("%q is logged %d times, want %d:\n%s", text, got, n, log)
			}
		}
	})
}

func TestBlock(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for _, want := range []bool{false, true} {
			if want {
				srv.Do("RPUSH", "jobs", "one")
			}
			job, ok, err := resp.Maybe[[]string](p.Block(t.Context(), "BLPOP", "jobs", 1))
			if ok != want || err != nil || ok && !slices.Equal(job, []string{"jobs", "one"}) {
				t.Errorf("BLPOP = %q, %v, %v", job, ok, err)
			}
		}
		if n := p.Stats(); n.Open != 1 || n.Idle != 1 {
			t.Errorf("after two calls one by one: %+v", n)
		}
		if _, err := p.Block(t.Context(), "BLPOP", nil); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Block of an argument that cannot be encoded = %v", err)
		}
		if _, err := p.Block(t.Context(), "LPUSH", "jobs"); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Block of a command that fails = %v", err)
		}
		if _, err := p.Do(t.Context(), "BLPOP", "jobs", 1); err == nil || !strings.Contains(err.Error(), "use Block") {
			t.Errorf("Do of BLPOP = %v", err)
		}
	})
}
