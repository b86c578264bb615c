package conn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// hold borrows a connection for a time and returns the server's client id.
func hold(t testing.TB, p *conn.Pool, d time.Duration) (id int64) {
	t.Helper()
	err := p.With(context.Background(), func(c *conn.Conn) error {
		v, err := c.Do(context.Background(), "CLIENT", "ID")
		if err != nil {
			return err
		}
		id, err = v.Int()
		time.Sleep(d)
		return err
	})
	if err != nil {
		t.Errorf("With = %v", err)
	}
	return id
}

// counts returns the Stats, after checking the invariants.
func counts(t testing.TB, p *conn.Pool, most int) conn.Stats {
	t.Helper()
	s := p.Stats()
	if s.Open != s.Idle+s.Lent+s.Dialing || s.Open > most || s.Idle < 0 || s.Lent < 0 || s.Dialing < 0 {
		t.Errorf("Stats = %+v, want Open = Idle + Lent + Dialing <= %d", s, most)
	}
	if s.Waiting > 0 && s.Idle > 0 {
		t.Errorf("Stats = %+v: callers wait although a connection is idle", s)
	}
	return s
}

func TestWithReuses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 3})
		defer p.Close()
		var wg sync.WaitGroup
		ids := make([]int64, 3)
		for i := range ids {
			wg.Go(func() { ids[i] = hold(t, p, time.Duration(i+1)*time.Second) })
		}
		wg.Wait()
		if s := counts(t, p, 3); s.Idle != 3 {
			t.Fatalf("Stats = %+v, want 3 idle", s)
		}
		for range 3 { // the connection returned last is lent first
			if id := hold(t, p, 0); id != ids[2] {
				t.Errorf("lent connection %d, want %d", id, ids[2])
			}
		}
	})
}

// TestWithInTurn: callers queue for one connection and get it in order of arrival. A caller that leaves does not
// delay the others.
func TestWithInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
		defer p.Close()
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				if i%3 == 2 {
					ctx, cancel = context.WithTimeout(ctx, 1500*time.Millisecond)
				}
				defer cancel()
				err := p.With(ctx, func(*conn.Conn) error {
					order = append(order, i)
					time.Sleep(time.Second)
					return nil
				})
				if i%3 != 2 {
					if err != nil {
						t.Errorf("With %d = %v", i, err)
					}
					return
				}
				wantNotSent(t, err, context.DeadlineExceeded)
				if text := err.Error(); !strings.Contains(text, "1 open, 0 idle, 1 lent") || strings.Contains(text, "a dial under way") {
					t.Errorf("error = %v, want it to count the connections, and no dial", err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if got := fmt.Sprint(order); got != "[0 1 3 4 6 7 9]" {
			t.Errorf("callers were served in the order %s", got)
		}
		if s := counts(t, p, 1); s.Idle != 1 || s.Waiting != 0 {
			t.Errorf("Stats = %+v, want 1 idle", s)
		}
	})
}

// TestWithAtTheLastMoment: a connection is returned at the moment when the waiting caller's ctx ends.
func TestWithAtTheLastMoment(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
		defer p.Close()
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			go p.With(t.Context(), func(*conn.Conn) error {
				time.Sleep(time.Second)
				cancel()
				return nil
			})
			synctest.Wait()
			if err := p.With(ctx, func(*conn.Conn) error { return nil }); err != nil {
				wantNotSent(t, err, context.Canceled)
			}
		}
		synctest.Wait()
		if s := counts(t, p, 1); s.Idle != 1 || s.Waiting != 0 {
			t.Errorf("Stats = %+v, want 1 idle", s)
		}
	})
}

// TestWithNoConns: the error tells why no connection was available.
func TestWithNoConns(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Refuse(true)
		before := srv.Dials()
		err := p.With(t.Context(), func(*conn.Conn) error { t.Error("fn ran, want no connection"); return nil })
		wantNotSent(t, err, syscall.ECONNREFUSED)
		if n := srv.Dials() - before; n < 2 || n > 18 {
			t.Errorf("With dialled %d times, want 2 to 18", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = p.With(ctx, func(*conn.Conn) error { return nil })
		wantNotSent(t, err, context.DeadlineExceeded)
		wantNotSent(t, err, syscall.ECONNREFUSED)
		if !strings.Contains(err.Error(), "ago: connect") {
			t.Errorf("error = %v, want it to tell of the last dial", err)
		}
		srv.Refuse(false)
		time.Sleep(time.Second)
		hold(t, p, 0)
		counts(t, p, 16)
	})
}

// TestWithNotLetIn: a refusal of the credentials is not repeated.
func TestWithNotLetIn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.User("default", secret)
		err := p.With(t.Context(), func(*conn.Conn) error { return nil })
		wantNotSent(t, err, resp.ErrNoAuth)
		if n := srv.Dials(); n != 2 {
			t.Errorf("%d dials, want one for With", n-1)
		}
	})
}

// TestWithWaitsForTheLent: dials fail while a connection is lent; waiting callers get the lent connection after its
// return.
func TestWithWaitsForTheLent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		go hold(t, p, time.Hour)
		synctest.Wait()
		srv.Refuse(true)
		hold(t, p, 0)
		if n := srv.Dials(); n > 2+18 {
			t.Errorf("%d dials in an hour, want no dials after the caller's last attempt", n)
		}
	})
}

// do returns a function for With that runs commands; spaces separate their words.
func do(lines ...string) func(c *conn.Conn) error {
	return func(c *conn.Conn) error {
		for _, cmd := range cmds(lines...) {
			if _, err := c.Send(context.Background(), cmd); err != nil && !errors.Is(err, resp.ErrReadOnly) {
				return err
			}
		}
		return nil
	}
}

// doBatch is like do, with one batch.
func doBatch(lines ...string) func(c *conn.Conn) error {
	return func(c *conn.Conn) error {
		_, err := c.SendBatch(context.Background(), cmds(lines...))
		return err
	}
}

// denied sends first, and a command that the server refuses.
func denied(t *testing.T, first, refused string) func(c *conn.Conn) error {
	return func(c *conn.Conn) error {
		err := do(first)(c)
		if _, denial := c.Do(context.Background(), refused, "refused"); !errors.Is(denial, resp.ErrNoPerm) {
			t.Errorf("%s = %v, want it refused", refused, denial)
		}
		return err
	}
}

// returned is a borrower's use of a connection, and whether the Pool lends the connection again.
type returned struct {
	fn    func(c *conn.Conn) error
	reuse bool
}

func returns(t *testing.T) map[string]returned {
	return map[string]returned{
		"nothing":  {do(), true},
		"GET":      {do("GET key"), true},
		"WATCH":    {do("WATCH key"), false},
		"unwatch":  {do("WATCH key", "unwatch"), true},
		"MULTI":    {do("MULTI", "GET key"), false},
		"DISCARD":  {do("WATCH key", "MULTI", "GET key", "DISCARD"), true},
		"executed": {do("WATCH key", "MULTI", "UNWATCH", "EXEC"), true},
		"watching": {do("MULTI", "UNWATCH", "EXEC", "watch key"), false},
		"SELECT":   {do("SELECT 1"), false},
		"CLIENT":   {do("client setname x"), false},
		"CLIENTID": {do("client id"), true},
		"READONLY": {do("SET x readonly"), false},
		"Tx": {func(c *conn.Conn) error {
			if err := do("WATCH key")(c); err != nil {
				return err
			}
			_, err := c.Tx(context.Background(), []resp.Command{resp.Cmd("GET", "key")})
			return err
		}, true},
		"batch":          {doBatch("WATCH key", "GET key"), false},
		"batch MULTI":    {doBatch("MULTI", "GET key", "EXEC", "MULTI"), false},
		"batch WATCH":    {doBatch("MULTI", "GET key", "EXEC", "WATCH key"), false},
		"batch again":    {doBatch("UNWATCH", "WATCH key"), false},
		"batch EXEC":     {doBatch("WATCH key", "MULTI", "GET key", "EXEC"), true},
		"batch DISCARD":  {doBatch("DISCARD", "MULTI", "DISCARD"), true},
		"still queueing": {denied(t, "MULTI", "DISCARD"), false},
		"still watching": {denied(t, "WATCH key", "UNWATCH"), false},
		"late": {func(c *conn.Conn) error { // a call still in progress
			go c.Do(context.Background(), "GET", "late")
			synctest.Wait()
			return nil
		}, false},
		"EXEC": {func(c *conn.Conn) error { // an error, so that WATCH stays open
			if err := do("WATCH key")(c); err != nil {
				return err
			}
			if err := do("EXEC")(c); !errors.Is(err, resp.ErrGeneral) {
				t.Errorf("EXEC without MULTI = %v, want an error", err)
			}
			return nil
		}, false},
		"closed": {func(c *conn.Conn) error { return c.Close() }, false},
		"failed": {func(c *conn.Conn) error { return errors.New("of fn") }, true},
	}
}

// TestWithState: borrowers return connections in a changed state.
func TestWithState(t *testing.T) {
	for name, test := range returns(t) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					switch cmd.Args[len(cmd.Args)-1] {
					case "readonly":
						return fakeredis.Reply("-READONLY You can't write against a read only replica.\r\n")
					case "late":
						return fakeredis.Run().Late(time.Millisecond)
					case "refused":
						return fakeredis.Reply("-NOPERM x\r\n")
					}
					return fakeredis.Run()
				})
				p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
				defer p.Close()
				id := hold(t, p, 0)
				if err := p.With(context.Background(), test.fn); err != nil && name != "failed" {
					t.Fatalf("With = %v", err)
				}
				if again := hold(t, p, 0) == id; again != test.reuse {
					t.Errorf("connection reused: %v, want %v", again, test.reuse)
				}
				counts(t, p, 1)
			})
		})
	}
}

// TestWithPanics: after a panic or Goexit of fn the connection is available again.
func TestWithPanics(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
		defer p.Close()
		func() {
			defer func() {
				if r := recover(); r != "of fn" {
					t.Errorf("recovered %v, want the panic of fn", r)
				}
			}()
			p.With(context.Background(), func(*conn.Conn) error { panic("of fn") })
		}()
		hold(t, p, 0)
		if s := counts(t, p, 1); s.Idle != 1 {
			t.Errorf("Stats = %+v, want 1 idle", s)
		}
	})
}

// TestWithEnded: a Conn fails after With has returned.
func TestWithEnded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		var kept *conn.Conn
		p.With(context.Background(), func(c *conn.Conn) error { kept = c; return nil })
		_, err := kept.Do(t.Context(), "GET", "key")
		wantNotSent(t, err, conn.ErrClosed)
	})
}

// TestWithAbandonedReply: a connection is returned while its last answer is outstanding.
func TestWithAbandonedReply(t *testing.T) {
	for late, reuse := range map[time.Duration]bool{500 * time.Millisecond: true, 5 * time.Second: false} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
			defer p.Close()
			id := hold(t, p, 0)
			srv.Intercept(onName("GET", 1, fakeredis.Run().Late(late)))
			p.With(context.Background(), func(c *conn.Conn) error {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				defer cancel()
				_, err := c.Do(ctx, "GET", "key")
				wantUncertain(t, err, context.DeadlineExceeded)
				return nil
			})
			if s := counts(t, p, 1); s.Lent != 1 || s.InFlight != 1 {
				t.Errorf("Stats = %+v, want the connection still lent", s)
			}
			start := time.Now()
			again := hold(t, p, 0) == id
			between(t, "the connection was lent again", time.Since(start), min(late, time.Second)-time.Millisecond, time.Second)
			if again != reuse {
				t.Errorf("answer %v late: connection reused: %v, want %v", late, again, reuse)
			}
		})
	}
}

func TestIdleTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, IdleTimeout: time.Minute})
		defer p.Close()
		for range 5 { // use restarts the idle time
			hold(t, p, 0)
			time.Sleep(40 * time.Second)
		}
		if s := counts(t, p, 16); s.Idle != 1 || s.Dials != 2 {
			t.Errorf("Stats = %+v, want 1 idle", s)
		}
		time.Sleep(30 * time.Second)
		if s := counts(t, p, 16); s.Idle != 0 || s.Lost != 0 || len(srv.Conns()) != 1 {
			t.Errorf("Stats = %+v, want the idle one closed", s)
		}
	})
}

func TestExclusiveMaxAge(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: time.Minute, MaxConns: 1})
		defer p.Close()
		first := hold(t, p, 2*time.Minute) // stays with its borrower
		second := hold(t, p, 0)
		if second == first {
			t.Error("a connection older than MaxAge was lent again")
		}
		time.Sleep(2 * time.Minute)
		if s := counts(t, p, 1); s.Idle != 0 {
			t.Errorf("Stats = %+v, want the old one closed", s)
		}
	})
}

// No connection reaches the largest MaxAge, however it varies.
func TestExclusiveLargestMaxAge(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		for range 20 {
			p := openPool(t, conn.Config{Dial: srv.Dial, MaxAge: math.MaxInt64, MaxConns: 1})
			if first := hold(t, p, 0); hold(t, p, 0) != first {
				t.Error("the connection was replaced")
			}
			p.Close()
		}
	})
}

// TestCountsAlwaysHold: many callers borrow, cancel, break and lose connections at random moments.
func TestCountsAlwaysHold(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			l := &loans{t: t, srv: srv, inUse: map[int64]bool{}}
			l.run(rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

// loans records the loans of one run: no connection may be lent to two callers at once.
type loans struct {
	t   *testing.T
	srv *fakeredis.Server

	mu    sync.Mutex
	inUse map[int64]bool // by the server's client id
}

func (l *loans) run(rnd *rand.Rand) {
	const most = 3
	ms := func(n int) time.Duration { return time.Duration(rnd.IntN(n)) * time.Millisecond }
	l.srv.Latency(time.Millisecond)
	cfg := conn.Config{Dial: l.srv.Dial, MaxConns: most, MaxAge: time.Second, IdleTimeout: 100 * time.Millisecond}
	p := openPool(l.t, cfg)
	var wg sync.WaitGroup
	for range 200 {
		patience, work, act := ms(60)+time.Millisecond, ms(20), rnd.IntN(6)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err := p.With(ctx, func(c *conn.Conn) error { return l.use(ctx, c, work, act) })
			if err != nil && !errors.Is(err, conn.ErrNotSent) && !errors.Is(err, conn.ErrUncertain) {
				l.t.Errorf("With = %v", err)
			}
		})
		switch rnd.IntN(20) {
		case 0:
			l.srv.KillConns(nil)
		case 1:
			l.srv.Refuse(true)
		case 2, 3:
			l.srv.Refuse(false)
		}
		counts(l.t, p, most)
		time.Sleep(ms(8))
		counts(l.t, p, most)
	}
	l.srv.Refuse(false)
	wg.Wait()
	time.Sleep(2 * time.Second)
	if s := counts(l.t, p, most); s.Open != 0 || s.Waiting != 0 {
		l.t.Errorf("Stats at the end = %+v, want nothing open", s)
	}
	p.Close()
}

// use does a random thing with a connection.
func (l *loans) use(ctx context.Context, c *conn.Conn, work time.Duration, act int) error {
	v, err := c.Do(ctx, "CLIENT", "ID")
	if err != nil {
		return err
	}
	id, _ := v.Int()
	l.lend(id, true)
	defer l.lend(id, false)
	time.Sleep(work)
	switch act {
	case 0:
		_, err = c.Do(ctx, "BLPOP", "list", 0)
	case 1:
		_, err = c.Do(ctx, "WATCH", "key")
	case 2:
		err = c.Close()
	default:
		_, err = c.Do(ctx, "ECHO", id)
	}
	return err
}

func (l *loans) lend(id int64, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on && l.inUse[id] {
		l.t.Errorf("connection %d is lent twice", id)
	}
	l.inUse[id] = on
}

// TestNotSentLeavesNoTrace: commands that change the connection's state are not sent. The state is unchanged for Tx,
// for PINGs and for the Pool, which lends the connection again. A command sent and not answered does change the
// state.
func TestNotSentLeavesNoTrace(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	calls := map[string]func(ctx context.Context, c *conn.Conn) error{
		"MULTI":  func(ctx context.Context, c *conn.Conn) error { _, err := c.Do(ctx, "MULTI"); return err },
		"WATCH":  func(ctx context.Context, c *conn.Conn) error { _, err := c.Do(ctx, "WATCH", "key"); return err },
		"SELECT": func(ctx context.Context, c *conn.Conn) error { _, err := c.Do(ctx, "SELECT", 1); return err },
		"batch": func(ctx context.Context, c *conn.Conn) error {
			_, err := c.SendBatch(ctx, cmds("WATCH key", "SELECT 1", "MULTI"))
			return err
		},
		"transaction": func(ctx context.Context, c *conn.Conn) error { _, err := c.Tx(ctx, cmds("INCR n")); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				p := openPool(t, conn.Config{Dial: srv.Dial, PingInterval: time.Second})
				defer p.Close()
				with(t, p, func(c *conn.Conn) {
					wantNotSent(t, call(ended, c), context.Canceled)
					srv.KillConns(func(other fakeredis.Conn) bool { return other.ID == 1 }) // without PINGs of this connection
					srv.ClearLog()
					time.Sleep(10 * time.Second)
					if n := srv.Count("PING"); n < 8 {
						t.Errorf("%d PING in 10s, want one each second", n)
					}
					if _, err := c.Tx(t.Context(), cmds("INCR n")); err != nil {
						t.Errorf("Tx = %v", err)
					}
					wantNotSent(t, call(ended, c), context.Canceled)
				})
				with(t, p, func(*conn.Conn) {})
				if n := srv.Dials(); n != 2 {
					t.Errorf("%d connections, want the same one lent again", n)
				}
				srv.Latency(time.Second)
				with(t, p, func(c *conn.Conn) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					wantUncertain(t, call(ctx, c), context.DeadlineExceeded)
				})
				with(t, p, func(*conn.Conn) {})
				if n := srv.Dials(); n != 3 {
					t.Errorf("%d connections, want a replacement for the one with an uncertain state", n)
				}
			})
		})
	}
}

// TestNotSentInMulti: a second MULTI is not sent; the open transaction stays open.
func TestNotSentInMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		defer c.Close()
		want(t, c, "OK", "MULTI")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := c.Do(ctx, "MULTI")
		wantNotSent(t, err, context.Canceled)
		_, err = c.Tx(t.Context(), cmds("INCR n"))
		wantNotSent(t, err, conn.ErrNotSent)
		time.Sleep(time.Minute)
		if n := srv.Count("PING"); n != 0 {
			t.Errorf("%d PING in a MULTI, want none", n)
		}
		want(t, c, "OK", "DISCARD")
		if _, err := c.Tx(t.Context(), cmds("INCR n")); err != nil {
			t.Errorf("Tx = %v", err)
		}
	})
}
