package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
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

// increment increments key and waits for replicas.
func increment(ctx context.Context, p *conn.Pool, key string) error {
	_, err := p.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", key), resp.Cmd("WAIT", 0, 100)})
	return err
}

// A caller whose turn comes too late for an answer passes the turn on to a waiting caller.
func TestAckedTooLate(t *testing.T) {
	for name, others := range map[string]bool{"alone": false, "others wait": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
				defer p.Close()
				srv.Latency(5 * time.Millisecond)
				bg := context.Background()
				for range 40 {
					if err := increment(bg, p, "before"); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { _ = increment(bg, p, "first") })
				time.Sleep(time.Millisecond)
				wg.Go(func() {
					leaves := start.Add(14 * time.Millisecond)
					ctx, cancel := context.WithDeadline(context.WithValue(bg, conn.Leaves, leaves), leaves)
					defer cancel()
					err := increment(ctx, p, "late")
					if errors.Is(err, conn.ErrNotSent) != others || !errors.Is(err, context.DeadlineExceeded) || !time.Now().Equal(leaves) {
						t.Errorf("the late batch ended with %v after %v", err, time.Since(start))
					}
				})
				time.Sleep(time.Millisecond)
				if others {
					wg.Go(func() {
						if err := increment(bg, p, "next"); err != nil || time.Since(start) > 20*time.Millisecond {
							t.Errorf("the next batch ended with %v after %v", err, time.Since(start))
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				if n := srv.Do("EXISTS", "late"); n != int64(map[bool]int{false: 1}[others]) {
					t.Errorf("the batch was executed %v times", n)
				}
			})
		})
	}
}

// brittle is a connection whose next Write fails, once broken is set.
type brittle struct {
	net.Conn
	broken *atomic.Bool
}

func (b brittle) Write(p []byte) (int, error) {
	if b.broken.Swap(false) {
		return 0, io.ErrClosedPipe
	}
	return b.Conn.Write(p)
}

// A batch of which no byte was written, because its connection was idle while it broke, is sent again.
func TestAckedOverABrokenConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var broken atomic.Bool
		p := openPool(t, conn.Config{MaxConns: 1, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := srv.Dial(ctx, network, addr)
			return brittle{nc, &broken}, err
		}})
		defer p.Close()
		for want := range 2 {
			if err := increment(t.Context(), p, "key"); err != nil {
				t.Fatalf("batch %d: %v", want+1, err)
			}
			broken.Store(want == 0)
		}
		if got := srv.Do("GET", "key"); got != "2" || broken.Load() {
			t.Errorf("the key is %v, want 2, and the connection broken", got)
		}
	})
}

// After an outage, callers with little time get answers again.
func TestAckedAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 2})
		defer p.Close()
		srv.Latency(time.Millisecond)
		call := func(patience time.Duration) error {
			leaves := time.Now().Add(patience)
			ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), conn.Leaves, leaves), leaves)
			defer cancel()
			return increment(ctx, p, "key")
		}
		srv.Stall(true)
		if err := call(4 * time.Second); err == nil {
			t.Fatal("the server answers")
		}
		srv.Stall(false)
		time.Sleep(time.Second)
		var mu sync.Mutex
		answered := 0
		for range 20 {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if call(20*time.Millisecond) == nil {
						mu.Lock()
						defer mu.Unlock()
						answered++
					}
				})
			}
			wg.Wait()
		}
		if answered < 100 {
			t.Errorf("%d of 1000 had an answer, want many", answered)
		}
	})
}

// A replica counts in Replicas if a sentinel could promote it, and otherwise in Away.
func TestSuccession(t *testing.T) {
	for name, x := range map[string]struct {
		fields []string
		counts bool
	}{
		"well":                     {[]string{"flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14"}, true},
		"never to be promoted":     {[]string{"flags", "slave", "last-ok-ping-reply", "0", "slave-repl-offset", "14", "slave-priority", "0"}, true},
		"promoted, not yet master": {[]string{"flags", "slave,promoted", "role-reported", "master", "slave-repl-offset", "14"}, true},
		"of which little is said":  {[]string{"flags", "slave"}, true},
		"down":                     {[]string{"flags", "s_down,slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14"}, false},
		"down to the most":         {[]string{"flags", "o_down,slave", "slave-repl-offset", "14"}, false},
		"not connected":            {[]string{"flags", "slave,disconnected", "slave-repl-offset", "14"}, false},
		"just promoted":            {[]string{"flags", "slave,disconnected", "last-ok-ping-reply", "2200", "slave-repl-offset", "14"}, true},
		"cut off":                  {[]string{"flags", "slave,disconnected", "last-ok-ping-reply", "2501", "slave-repl-offset", "14"}, false},
		"just down":                {[]string{"flags", "s_down,slave,disconnected", "last-ok-ping-reply", "2200", "slave-repl-offset", "14"}, false},
		"mute":                     {[]string{"flags", "slave", "last-ok-ping-reply", "5001", "slave-repl-offset", "14"}, false},
		"not seen to follow":       {[]string{"flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.replicas = []string{bulks(x.fields...)}
				p, err := conn.Open(t.Context(), f.config())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				want := conn.Succession{Addr: serverA, Away: 1}
				if x.counts {
					want.Replicas, want.Away = 1, 0
				}
				s, err := p.Succession(t.Context(), "", time.Time{})
				if err != nil || s.Addr != want.Addr || s.Replicas != want.Replicas || s.Away != want.Away {
					t.Errorf("Succession() = %+v, %v, want %+v", s, err, want)
				}
			})
		})
	}
}

// The Pool refreshes the Succession regularly, and at once for a caller that needs a fresh answer. A sentinel without
// a majority does not count, and neither does a sentinel cut off from the master.
func TestSuccessionIsAskedAgain(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p, err := conn.Open(t.Context(), f.config())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		known := func(since time.Time) int {
			t.Helper()
			s, err := p.Succession(t.Context(), "", since)
			if err != nil {
				t.Fatal(err)
			}
			return s.Replicas
		}
		if n := known(time.Time{}); n != 0 {
			t.Errorf("%d replicas where there is none", n)
		}
		add := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.replicas = append(f.replicas, bulks("flags", "slave", "ip", fmt.Sprint("10.0.0.", 2+len(f.replicas)), "port", "6379"))
		}
		add()
		time.Sleep(time.Millisecond)
		if n := known(time.Time{}); n != 0 {
			t.Errorf("%d replicas, so it was asked again", n)
		}
		if n := known(time.Now()); n != 1 {
			t.Errorf("asked anew: %d replicas, want 1", n)
		}
		add()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := known(time.Time{}); n != 2 {
			t.Errorf("some time later: %d replicas, want 2", n)
		}
		f.mu.Lock()
		f.minority = true
		f.mu.Unlock()
		time.Sleep(time.Millisecond)
		if s, err := p.Succession(t.Context(), "", time.Now()); err == nil {
			t.Errorf("sentinels that were left behind: %+v", s)
		}
		for _, flags := range []string{"master", "s_down,master", "s_down,o_down,master", "master,disconnected"} {
			f.mu.Lock()
			f.minority, f.flags = false, flags
			f.mu.Unlock()
			time.Sleep(time.Millisecond)
			if s, err := p.Succession(t.Context(), "", time.Now()); (err == nil) != (flags == "master") {
				t.Errorf("sentinels that find the master %s: %+v, %v", flags, s, err)
			}
		}
	})
}

// While the new master cannot be reached, sentinels do not vouch for the former one, not even a sentinel left behind.
func TestSuccessionOfAFormerMaster(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.replicas = []string{bulks("flags", "slave", "ip", "10.0.0.2", "port", "6379"), bulks("flags", "s_down,slave", "ip", "10.0.0.3", "port", "6379")}
		p := openFleet(t, f.config())
		defer p.Close()
		ask := func() (conn.Succession, error) {
			time.Sleep(time.Millisecond)
			return p.Succession(t.Context(), "", time.Now())
		}
		if s, err := ask(); err != nil || s.Addr != serverA || s.Replicas != 1 || s.Away != 1 || !slices.Equal(s.AwayAddrs, []string{serverC}) {
			t.Fatalf("Succession() = %+v, %v", s, err)
		}
		f.nodes[serverB].Unreachable(true)
		f.tell(serverB, 2)
		if s, err := ask(); err == nil {
			t.Errorf("when all sentinels name another master: %+v", s)
		}
		f.tell(serverA, 1, sentinelC)
		if s, err := ask(); err == nil {
			t.Errorf("when all sentinels but one do: %+v", s)
		}
	})
}

// An answer of a former master to WAIT does not count once another master is known: the new master may have fewer
// replicas.
func TestWaitOfAFormerMaster(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.nodes[serverA].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "WAIT" {
				return fakeredis.Delay(100*time.Millisecond, fakeredis.Reply(":1\r\n"))
			}
			return f.serve(serverA, cmd)
		})
		p := openFleet(t, f.config())
		defer p.Close()
		write := func() error {
			_, err := p.SendBatch(t.Context(), []resp.Command{resp.Cmd("SET", "key", "value"), resp.Cmd("WAIT", 1, 200)})
			return err
		}
		if err := write(); err != nil {
			t.Errorf("SendBatch() = %v", err)
		}
		time.AfterFunc(50*time.Millisecond, func() {
			f.promote(serverB)
			f.tell(serverB, 2)
			f.announce(serverA, serverB)
		})
		if err := write(); !errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrClosed) {
			t.Errorf("SendBatch() answered by a former master = %v", err)
		}
		if n := p.Stats().Switches; n != 1 {
			t.Errorf("%d switches, want 1", n)
		}
	})
}
