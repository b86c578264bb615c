package conn_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

const readOnly = "-READONLY You can't write against a read only replica.\r\n"

// reads counts the GETs of some readers in a second, each sequential.
func reads(t *testing.T, p *conn.Pool) int {
	t.Helper()
	const readers = 4
	var n atomic.Int64
	stop := make(chan struct{})
	done := make(chan struct{}, readers)
	for range readers {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.Do(t.Context(), "GET", "k"); err != nil {
					t.Error("GET:", err)
					return
				}
				n.Add(1)
			}
		}()
	}
	time.Sleep(time.Second)
	close(stop)
	for range readers {
		<-done
	}
	return int(n.Load())
}

// A pool on a replica serves readers at the same rate, whatever the writers do, and reports the refusal to the
// writers.
func TestReadersOfAReplica(t *testing.T) {
	for name, writers := range map[string]int{"one": 1, "many": 50} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name == "SET" {
						return fakeredis.Reply(readOnly)
					}
					return fakeredis.Run()
				})
				srv.Latency(time.Millisecond)
				p := openPool(t, conn.Config{Dial: srv.Dial})
				defer p.Close()
				alone := reads(t, p)
				ctx, cancel := context.WithCancel(t.Context())
				var told atomic.Int64
				for range writers {
					go func() {
						for ctx.Err() == nil {
							_, err := p.Do(ctx, "SET", "k", "v")
							if ctx.Err() == nil && !errors.Is(err, resp.ErrReadOnly) {
								t.Error("SET:", err)
							}
							told.Add(1)
						}
					}()
				}
				beside := reads(t, p)
				cancel()
				synctest.Wait()
				if beside < alone*9/10 {
					t.Errorf("%d GETs in a second beside writers, %d alone", beside, alone)
				}
				if n := told.Load(); n < 100 {
					t.Errorf("writers got %d refusals in a second, want each refusal at once", n)
				}
				if n := srv.Dials(); n > 1+2+2 {
					t.Errorf("%d dials in a second, want the first, two for READONLY and one each second", n)
				}
			})
		})
	}
}

// A writer gets the refusal after the second fresh connection, and reaches the new master once the name resolves to
// it.
func TestReadOnlyIsToldAfterTwoDials(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var promoted atomic.Bool
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "SET" && (!promoted.Load() || cmd.Conn <= 3) { // connections to the former master keep their role
				return fakeredis.Reply(readOnly)
			}
			return fakeredis.Run()
		})
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		start := time.Now()
		_, err := p.Do(t.Context(), "SET", "k", "v")
		if !errors.Is(err, resp.ErrReadOnly) || conn.SafeToRetry(err) || time.Since(start) > time.Second {
			t.Errorf("SET = %v after %v", err, time.Since(start))
		}
		if n := srv.Dials(); n != 3 {
			t.Errorf("%d dials, want the first and two fresh ones", n)
		}
		promoted.Store(true)
		time.Sleep(time.Second)
		want(t, p, "OK", "SET", "k", "v")
	})
}

// Dials because of a replica do not delay callers that need a connection for another reason.
func TestReadOnlyHoldsNobodyBack(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(notYet("SET", "READONLY x", 1<<30))
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for range 20 {
			p.Do(t.Context(), "SET", "k", "v")
		}
		start := time.Now()
		hold(t, p, 0)
		if d := time.Since(start); d > time.Millisecond {
			t.Errorf("With waited %v", d)
		}
	})
}

// The server forgets the user: the connection is replaced once.
func TestNoAuthOnLiveConnection(t *testing.T) {
	for name, send := range map[string]func(ctx context.Context, p *conn.Pool) error{
		"Do": func(ctx context.Context, p *conn.Pool) error { _, err := p.Do(ctx, "GET", "k"); return err },
		"SendBatch": func(ctx context.Context, p *conn.Pool) error {
			values, err := p.SendBatch(ctx, cmds("GET k", "GET l"))
			if err == nil {
				err = errors.Join(values[0].Err(), values[1].Err())
			}
			return err
		},
		"Tx": func(ctx context.Context, p *conn.Pool) error { _, err := p.Tx(ctx, cmds("GET k")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				var forgets atomic.Int64 // connections up to this number are no longer authenticated
				forgets.Store(1)
				srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Conn <= forgets.Load() && cmd.Name != "HELLO" && cmd.Name != "CLIENT" {
						return fakeredis.Reply("-NOAUTH Authentication required.\r\n")
					}
					return fakeredis.Run()
				})
				p := openPool(t, conn.Config{Dial: srv.Dial})
				defer p.Close()
				for range 20 {
					if err := send(t.Context(), p); err != nil {
						t.Fatal(err)
					}
				}
				if n := srv.Dials(); n != 2 {
					t.Errorf("%d dials, want 2", n)
				}
				synctest.Wait()
				forgets.Store(1 << 30)
				time.Sleep(time.Minute)
				for range 20 {
					if err := send(t.Context(), p); !errors.Is(err, resp.ErrNoAuth) {
						t.Fatalf("%v, want NOAUTH", err)
					}
				}
				if n := srv.Dials(); n != 3 {
					t.Errorf("%d dials, want one more", n)
				}
			})
		})
	}
}

// TestBatchOrder: servers refuse some commands of a batch. Refused commands at the end are repeated, no others.
func TestBatchOrder(t *testing.T) {
	for _, refusal := range []string{"LOADING", "BUSY", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOAUTH"} {
		for refused, replies := range map[string]string{ // the key: refusals (x) in the first attempt
			"x..": "-" + refusal + " OK OK",
			".x.": "OK -" + refusal + " OK",
			"..x": "OK OK OK",
			".xx": "OK OK OK",
			"xxx": "OK OK OK",
			"x.x": "-" + refusal + " OK OK",
		} {
			t.Run(refusal+refused, func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *fakeredis.Server) {
					srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if cmd.Name == "SET" && cmd.N <= 3 && refused[cmd.N-1] == 'x' {
							return fakeredis.Reply("-" + refusal + " x\r\n")
						}
						return fakeredis.Run()
					})
					p := openPool(t, conn.Config{Dial: srv.Dial})
					defer p.Close()
					values, err := p.SendBatch(t.Context(), cmds("SET k 1", "SET k 2", "SET k 3"))
					if got := texts(values); err != nil || got != replies {
						t.Errorf("SendBatch = %s, %v, want %s", got, err, replies)
					}
					var ran []string
					for _, cmd := range srv.Log() {
						if cmd.Name == "SET" {
							ran = append(ran, cmd.Args[2])
						}
					}
					again := strings.Repeat("x", len(refused)-len(strings.TrimRight(refused, "x")))
					if wanted := 3 + len(again); len(ran) != wanted {
						t.Errorf("the server saw SET %v, want %d of them", ran, wanted)
					}
					want(t, p, "3", "GET", "k")
				})
			})
		}
	}
}

// A call uses its whole budget and so survives a shorter absence of the server.
func TestBudgetIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for name, call := range map[string]func(ctx context.Context) error{
			"Do":        func(ctx context.Context) error { _, err := p.Do(ctx, "PING"); return err },
			"SendBatch": func(ctx context.Context) error { _, err := p.SendBatch(ctx, cmds("PING")); return err },
			"Tx":        func(ctx context.Context) error { _, err := p.Tx(ctx, cmds("PING")); return err },
			"With":      func(ctx context.Context) error { return p.With(ctx, func(*conn.Conn) error { return nil }) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			srv.Refuse(true)
			srv.KillConns(nil)
			synctest.Wait()
			back := time.AfterFunc(4*time.Second, func() { srv.Refuse(false) })
			start := time.Now()
			err := call(ctx)
			between(t, name+" ended", time.Since(start), 4*time.Second, 4*time.Second+600*time.Millisecond)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			back.Stop()
			srv.Refuse(true)
			srv.KillConns(nil)
			synctest.Wait()
			start = time.Now()
			if err := call(ctx); !conn.SafeToRetry(err) {
				t.Errorf("%s: %v, want ErrNotSent", name, err)
			}
			between(t, name+" gave up", time.Since(start), 4400*time.Millisecond, 5600*time.Millisecond)
			cancel()
		}
	})
}
