package conn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestSwitchAnnounced: commands reach the new master within 100 ms of +switch-master, although commands on the former
// master are unanswered. These end with their answer if it comes soon, and otherwise as uncertain. (B29)
func TestSwitchAnnounced(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var log strings.Builder
		var switches []conn.SwitchInfo
		cfg := f.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.Trace = &conn.Trace{Switch: func(info conn.SwitchInfo) { switches = append(switches, info) }}
		p := openFleet(t, cfg)
		defer p.Close()
		f.nodes[serverA].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch cmd.String() {
			case "INCR soon":
				return fakeredis.Run().Late(200 * time.Millisecond)
			case "INCR never":
				return fakeredis.Drop()
			}
			return fakeredis.Run()
		})
		var calls sync.WaitGroup
		begin := time.Now()
		calls.Go(func() {
			want(t, p, "1", "INCR", "soon")
			between(t, "the late answer", time.Since(begin), 150*time.Millisecond, 200*time.Millisecond)
		})
		calls.Go(func() {
			time.Sleep(time.Millisecond)
			_, err := p.Do(t.Context(), "INCR", "never")
			if !errors.Is(err, conn.ErrUncertain) || conn.SafeToRetry(err) {
				t.Errorf("INCR that the old master never answers = %v, want ErrUncertain", err)
			}
			between(t, "the end of the call", time.Since(begin), 200*time.Millisecond, 500*time.Millisecond)
		})
		time.Sleep(50 * time.Millisecond)
		f.promote(serverB)
		f.announce(serverA, serverB) // the only announcement
		time.Sleep(50 * time.Millisecond)
		lands(t, f, p, serverB, "new")
		calls.Wait()
		synctest.Wait()
		if n := len(f.nodes[serverA].Conns()); n > 0 {
			t.Errorf("%d connections to the old master are left", n)
		}
		if want := (conn.SwitchInfo{Master: "prime", From: serverA, To: serverB}); len(switches) != 1 || switches[0] != want {
			t.Errorf("Trace.Switch got %v, want %v", switches, want)
		}
		if n := strings.Count(log.String(), "another server is the master"); n != 1 {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

// TestPromoted: the leader of a failover announces the promotion, earlier than the switch.
func TestPromoted(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		f.promote(serverB)
		f.tell(serverB, 2, sentinelA)
		f.nodes[sentinelA].Do("PUBLISH", "+promoted-slave", "slave 10.0.0.2:6379 10.0.0.2 6379 @ prime 10.0.0.1 6379")
		time.Sleep(100 * time.Millisecond)
		if n := p.Stats().Switches; n != 1 {
			t.Errorf("%d switches, want 1", n)
		}
		lands(t, f, p, serverB, "new")
	})
}

// TestSwitchUnannounced: the Pool finds a switch without an announcement within the poll interval. (B30)
func TestSwitchUnannounced(t *testing.T) {
	for name, silent := range map[string]bool{"epochs": false, "no epochs": true} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				for addr := range f.views {
					f.silent[addr] = silent
				}
				cfg := f.config()
				cfg.Sentinel.PollInterval = 2 * time.Second
				p := openFleet(t, cfg)
				defer p.Close()
				f.mu.Lock()
				f.master[serverB] = true // A still reports the role of a master
				f.mu.Unlock()
				f.tell(serverB, 2)
				time.Sleep(2100 * time.Millisecond)
				lands(t, f, p, serverB, "new")
			})
		})
	}
}

// TestSwitchWhileSentinelIsMute: the sentinel listened to falls silent, and the Pool subscribes to another one in
// time.
func TestSwitchWhileSentinelIsMute(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		cfg := f.config()
		cfg.Sentinel.PollInterval = -1
		p := openFleet(t, cfg)
		defer p.Close()
		f.nodes[sentinelA].Stall(true)
		time.Sleep(5*time.Second + time.Second + time.Second) // time for a PING, its time limit, and the next connection
		f.promote(serverB)
		f.tell(serverB, 2, sentinelB, sentinelC)
		f.announce(serverA, serverB)
		time.Sleep(100 * time.Millisecond)
		lands(t, f, p, serverB, "new")
		f.nodes[sentinelA].Stall(false)
	})
}

// TestDoubts: the master and the sentinel listened to die together. Before the others announce a new master, the Pool
// has subscribed to one of them.
func TestDoubts(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		cfg := f.config()
		cfg.PingInterval, cfg.Sentinel.PollInterval = -1, -1
		p := openFleet(t, cfg)
		defer p.Close()
		f.nodes[sentinelA].Stall(true)
		f.nodes[serverA].Refuse(true)
		f.nodes[serverA].KillConns(nil)
		synctest.Wait()
		var calls sync.WaitGroup
		calls.Go(func() { want(t, p, "OK", "SET", "k", "v") })
		time.Sleep(1500 * time.Millisecond)
		f.promote(serverB)
		begin := time.Now()
		f.announce(serverA, serverB)
		calls.Wait()
		between(t, "SET ended", time.Since(begin), 0, 100*time.Millisecond)
		f.nodes[sentinelA].Stall(false)
	})
}

// TestFalseAlarm: after an announcement of a switch that did not happen the connections stay.
func TestFalseAlarm(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		lands(t, f, p, serverA, "one")
		before := f.nodes[serverA].Conns()
		f.announce(serverC, serverB)
		time.Sleep(time.Second)
		f.announce(serverA, serverB)
		time.Sleep(time.Second)
		for _, text := range []string{"", "prime", "prime 10.0.0.1 6379 x y", "other 10.0.0.1 6379 10.0.0.2 6379", "prime 10.0.0.1 6379 10.0.0.2 0"} {
			f.nodes[sentinelA].Do("PUBLISH", "+switch-master", text)
		}
		f.nodes[sentinelA].Do("PUBLISH", "switch-master", "prime 10.0.0.1 6379 10.0.0.3 6379")
		time.Sleep(30 * time.Second)
		lands(t, f, p, serverA, "two")
		if after := f.nodes[serverA].Conns(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("connections changed from %v to %v", before, after)
		}
		if n := f.nodes[serverB].Count("ROLE"); n == 0 || n > 20 || f.nodes[serverC].Dials() > 0 {
			t.Errorf("the replicas were asked %d times, and dialled %d times", n, f.nodes[serverC].Dials())
		}
	})
}

// TestFlapping changes the master all the time. Every command runs once, on a server that was the master, and dials
// to sentinels and servers stay limited.
func TestFlapping(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		f.mu.Lock()
		f.master[serverB] = true // both are always masters, so every command runs on the server it was sent to
		f.mu.Unlock()
		f.forget()
		var calls sync.WaitGroup
		done := make(chan struct{})
		var succeeded, uncertain int
		calls.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(3 * time.Millisecond):
				}
				switch _, err := p.Do(t.Context(), "INCR", "n"); {
				case err == nil:
					succeeded++
				case errors.Is(err, conn.ErrUncertain):
					uncertain++
				default:
					t.Errorf("INCR = %v", err)
				}
			}
		})
		from, to := serverA, serverB
		for i := range 500 {
			f.tell(to, i+2)
			f.announce(from, to)
			from, to = to, from
			time.Sleep(20 * time.Millisecond)
		}
		close(done)
		calls.Wait()
		total := 0
		for _, addr := range []string{serverA, serverB} {
			n := 0
			fmt.Sscan(fmt.Sprint(f.nodes[addr].Do("GET", "n")), &n)
			total += n
		}
		if total < succeeded || total > succeeded+uncertain || succeeded < 1000 {
			t.Errorf("%d ran; %d succeeded and %d are uncertain", total, succeeded, uncertain)
		}
		if n := densest(f.dialled(sentinelA, sentinelB, sentinelC)); n > 20 {
			t.Errorf("%d dials to sentinels in a second", n)
		}
		if n := densest(f.dialled(serverA, serverB)); n > 60 {
			t.Errorf("%d dials to servers in a second", n)
		}
		f.promote(from)
		time.Sleep(11 * time.Second)
		lands(t, f, p, from, "last")
	})
}

// TestReadOnlyAsksSentinels: the master becomes a replica before any announcement. Refused commands are repeated on
// the master named by the sentinels.
func TestReadOnlyAsksSentinels(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		f.promote(serverB)
		time.AfterFunc(time.Second, func() { f.tell(serverB, 2) })
		begin := time.Now()
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				if _, err := p.Do(t.Context(), "INCR", "n"); err != nil {
					t.Errorf("INCR = %v", err)
				}
			})
		}
		calls.Wait()
		between(t, "all calls ended", time.Since(begin), time.Second, 4*time.Second)
		if n := f.nodes[serverB].Do("GET", "n"); n != any("20") {
			t.Errorf("n = %v on the new master, want 20", n)
		}
		all := f.dialled(sentinelA, sentinelB, sentinelC)
		if n := densest(all); n > 20 {
			t.Errorf("%d dials to sentinels in a second", n)
		}
	})
}

// TestSwitchExclusive: a switch replaces idle and lent exclusive connections, and ends a blocking command.
func TestSwitchExclusive(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		with(t, p, func(*conn.Conn) {}) // leaves one connection idle
		var calls sync.WaitGroup
		begin := time.Now()
		calls.Go(func() {
			with(t, p, func(c *conn.Conn) {
				if _, err := c.Do(t.Context(), "BLPOP", "list", 0); !errors.Is(err, conn.ErrUncertain) {
					t.Errorf("BLPOP = %v, want ErrUncertain", err)
				}
			})
			between(t, "BLPOP ended", time.Since(begin), 0, 500*time.Millisecond)
		})
		calls.Go(func() {
			with(t, p, func(c *conn.Conn) {
				want(t, c, "OK", "WATCH", "k")
				time.Sleep(100 * time.Millisecond)
				if _, err := c.Do(t.Context(), "GET", "k"); !conn.SafeToRetry(err) {
					t.Errorf("GET on a connection lent before the switch = %v, want ErrNotSent", err)
				}
			})
		})
		time.Sleep(10 * time.Millisecond)
		f.promote(serverB)
		f.tell(serverB, 2)
		f.announce(serverA, serverB)
		calls.Wait()
		with(t, p, func(c *conn.Conn) { want(t, c, "OK", "SET", "k", "v") })
		synctest.Wait()
		if n := len(f.nodes[serverA].Conns()); n > 0 || !f.holds(serverB, "v") {
			t.Errorf("%d connections to the old master are left; k on the new one: %v", n, f.holds(serverB, "v"))
		}
		if s := p.Stats(); s.Open != 1 || s.Idle != 1 || s.InFlight != 0 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

// thereAndBack makes A answer GET slow late. After a time B is the master, and A again 20 ms later.
func (f *fleet) thereAndBack(after, late time.Duration) {
	f.mu.Lock()
	f.master[serverB] = true // as A is
	f.mu.Unlock()
	f.nodes[serverA].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.String() == "GET slow" {
			return fakeredis.Run().Late(late)
		}
		return f.serve(serverA, cmd)
	})
	time.AfterFunc(after, func() { f.tell(serverB, 2); f.announce(serverA, serverB) })
	time.AfterFunc(after+20*time.Millisecond, func() { f.tell(serverA, 3); f.announce(serverB, serverA) })
}

// TestSwitchThereAndBack: a connection to a master that is replaced, and soon is the master again, stays with the caller to whom it is lent.
func TestSwitchThereAndBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		f.thereAndBack(10*time.Millisecond, 100*time.Millisecond)
		with(t, p, func(c *conn.Conn) {
			want(t, c, "null", "GET", "slow") // answered after the second switch
			synctest.Wait()
			if s := p.Stats(); s.Lent != 1 || s.Idle != 0 || s.Switches != 2 {
				t.Errorf("Stats = %+v, want a lent connection", s)
			}
			with(t, p, func(other *conn.Conn) {
				want(t, other, "OK", "SELECT", 5)
				want(t, c, "OK", "SET", "k", "v")
			})
		})
		want(t, p, "v", "GET", "k")
		synctest.Wait()
		if s := p.Stats(); s.Open != 1 || s.Idle != 1 {
			t.Errorf("Stats = %+v, want an idle connection", s)
		}
	})
}

// TestSlowAnswerThereAndBack: a master that is the master again may take its time for commands from before.
func TestSlowAnswerThereAndBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		f.thereAndBack(10*time.Millisecond, time.Second)
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := p.Do(t.Context(), "GET", "slow"); err != nil {
				t.Errorf("on a shared connection: %v", err)
			}
		})
		with(t, p, func(c *conn.Conn) { want(t, c, "null", "GET", "slow") })
		calls.Wait()
		synctest.Wait()
		if s := p.Stats(); s.Switches != 2 || s.Shared != 1 || s.Open != 1 || s.Idle != 1 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

// TestReturnedThereAndBack: a returned connection that owes a reply is closed in time, also if its server is replaced and soon the master again.
func TestReturnedThereAndBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		cfg := f.config()
		cfg.MaxConns = 1
		p := openFleet(t, cfg)
		defer p.Close()
		f.thereAndBack(110*time.Millisecond, 4*time.Second)
		_ = p.With(t.Context(), func(c *conn.Conn) error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := c.Do(ctx, "GET", "slow")
			return err
		})
		start := time.Now()
		with(t, p, func(c *conn.Conn) { want(t, c, "OK", "SET", "k", "v") })
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the next caller has waited for %v", took)
		}
	})
}

// TestReadOnlyInWith: a READONLY on a lent connection is enough for the next connections to follow the sentinels.
func TestReadOnlyInWith(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		cfg := f.config()
		cfg.Sentinel.PollInterval = -1
		p := openFleet(t, cfg)
		defer p.Close()
		with(t, p, func(*conn.Conn) {}) // leaves one connection idle
		f.promote(serverB)
		f.tell(serverB, 2)
		with(t, p, func(c *conn.Conn) { fails(t, c, resp.ErrReadOnly, "SET", "k", "v") })
		with(t, p, func(c *conn.Conn) { want(t, c, "OK", "SET", "k", "v") })
	})
}

// TestSwitchStream: a switch closes a Stream to the former master with the reason; the next Stream leads to the new
// master.
func TestSwitchStream(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		closed, err := p.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		s, err := p.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.AfterFunc(time.Second, func() {
			f.promote(serverB)
			f.tell(serverB, 2)
			f.announce(serverA, serverB)
		})
		begin := time.Now()
		_, err = s.Read()
		if err == nil || errors.Is(err, conn.ErrClosed) || !strings.Contains(err.Error(), "another server has become the master") {
			t.Errorf("Read = %v", err)
		}
		between(t, "the end of the stream", time.Since(begin), time.Second, 1100*time.Millisecond)
		next, err := p.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next.Addr() != serverB {
			t.Errorf("the next Stream leads to %s", next.Addr())
		}
		next.Close()
	})
}

// TestSwitchEndsDials: a hanging master blocks dials of all kinds; a switch redirects them at once.
func TestSwitchEndsDials(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		cfg := f.config()
		cfg.DialTimeout = time.Minute
		cfg.Conns = 2
		p := openFleet(t, cfg)
		defer p.Close()
		f.nodes[serverA].Unreachable(true)
		f.nodes[serverA].KillConns(nil)
		synctest.Wait()
		begin := time.Now()
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() { want(t, p, "OK", "SET", "k", "v") })
		}
		calls.Go(func() { with(t, p, func(c *conn.Conn) { want(t, c, "OK", "SET", "k", "v") }) })
		calls.Go(func() {
			s, err := p.Stream(t.Context())
			if err != nil && strings.Contains(err.Error(), "another server has become the master") {
				s, err = p.Stream(t.Context()) // the first has come to the next master before the Pool knew of the switch
			}
			if err != nil {
				t.Errorf("Stream = %v", err)
			} else {
				s.Close()
			}
		})
		time.Sleep(time.Second)
		f.promote(serverB)
		f.tell(serverB, 2)
		f.announce(serverA, serverB)
		calls.Wait()
		between(t, "all calls ended", time.Since(begin), time.Second, 1100*time.Millisecond)
	})
}

// All connections of a pool have the names: those already open at once, and those dialed later.
func TestIntroduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		pool, err := conn.Open(t.Context(), conn.Config{ClientName: "orders", Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		want := func(name string) {
			t.Helper()
			synctest.Wait()
			for _, c := range srv.Conns() {
				if c.Name != name {
					t.Errorf("a connection is named %q, want %q", c.Name, name)
				}
			}
		}
		for _, bad := range []string{"", "a b", "a,b", "\n"} {
			defer pool.Introduce(bad)()
		}
		first, second := pool.Introduce("a"), pool.Introduce("b")
		want("orders,a,b")
		err = pool.With(t.Context(), func(*conn.Conn) error {
			want("orders,a,b")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		srv.KillConns(nil)
		if _, err := pool.Send(t.Context(), resp.Cmd("PING")); err != nil {
			t.Fatal(err)
		}
		want("orders,a,b")
		first()
		first()
		want("orders,b")
		second()
		want("orders")
		var all []string
		for i := range 20 {
			pool.Introduce(fmt.Sprint(i))
			all = append(all, fmt.Sprint(i))
		}
		want("orders," + strings.Join(all[:16], ","))
	})
}

// A Pool without an identity has no names either.
func TestIntroduceWithoutIdentity(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		pool := openPool(t, conn.Config{NoIdentity: true, Dial: srv.Dial})
		defer pool.Close()
		defer pool.Introduce("a")()
		if _, err := pool.Send(t.Context(), resp.Cmd("PING")); err != nil {
			t.Fatal(err)
		}
		for _, c := range srv.Conns() {
			if c.Name != "" {
				t.Errorf("a connection is named %q", c.Name)
			}
		}
	})
}

// A pipeline under way is not disturbed by a change of the name.
func TestIntroduceAmongCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		pool, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		done := make(chan error)
		for i := range 20 {
			go func() {
				text := fmt.Sprint(i)
				v, err := pool.Send(t.Context(), resp.Cmd("ECHO", text))
				if got, _ := v.Text(); err == nil && got != text {
					err = fmt.Errorf("ECHO %s = %s", text, got)
				}
				done <- err
			}()
			defer pool.Introduce(fmt.Sprint("name", i))()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
