package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

func TestRenewalSchedule(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		taken := time.Now()
		for range 10 {
			time.Sleep(10*time.Second - time.Millisecond)
			synctest.Wait()
			if got := w.ttl("job"); got != 20*time.Second+time.Millisecond {
				t.Fatalf("just before a renewal the lease is %v, want 20.001s", got)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got := w.ttl("job"); got != 30*time.Second {
				t.Fatalf("after the renewal at %v the lease is %v, want 30s", time.Since(taken), got)
			}
		}
		want := time.Now().Add(30*time.Second - 300*time.Millisecond - 2*time.Millisecond)
		if got := lease.ValidUntil(); !got.Equal(want) {
			t.Errorf("ValidUntil() = %v, want %v", got, want)
		}
		if got := c.Stats(); got.Renewals != 10 || got.MaxLateness != 0 {
			t.Errorf("Stats() = %+v, want 10 renewals, none late", got)
		}
		mustUnlock(t, lease)
		w.srv.ClearLog()
		time.Sleep(time.Minute)
		if log := w.srv.Count("EVALSHA"); log != 0 {
			t.Errorf("%d scripts ran after Unlock, want none", log)
		}
	})
}

func TestRenewalSharesScripts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for i := range 250 {
			mustLock(t, c, string(rune('a'+i%26))+string(rune('a'+i/26)))
		}
		w.srv.ClearLog()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL"); n != 3 {
			t.Errorf("250 leases were renewed by %d scripts, want 3: %q", n, w.srv.Commands())
		}
	})
}

// Renewals send the source of their script at most once, also to a server where the client has no right to load scripts.
func TestRenewalsSendNoSources(t *testing.T) {
	for name, rights := range map[string]bool{"with the right to load": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				for i := range 250 {
					mustLock(t, c, fmt.Sprint("job", i))
				}
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name == "SCRIPT" && !rights {
						return fakeredis.Reply("-NOPERM this user has no permissions to run the 'script|load' command\r\n")
					}
					return fakeredis.Run()
				})
				w.srv.ClearLog()
				w.sleep(100*time.Second + time.Millisecond)
				if sources, digests := w.srv.Count("EVAL")+w.srv.Count("SCRIPT"), w.srv.Count("EVALSHA"); sources > 3 || digests < 27 {
					t.Errorf("10 rounds for 250 leases sent the source %d times, the digest %d times", sources, digests)
				}
			})
		})
	}
}

func TestRenewalGoesOnAfterErrors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.srv.Refuse(true)
		time.Sleep(9 * time.Second)
		w.srv.KillConns(nil)
		time.Sleep(19 * time.Second)
		w.srv.Refuse(false)
		time.Sleep(5 * time.Second)
		if err := lease.Err(); err != nil {
			t.Fatalf("Err() = %v, want the lease renewed after 28 s without a server", err)
		}
		if got := w.ttl("job"); got < 20*time.Second {
			t.Errorf("remaining lease %v, want it renewed", got)
		}
		mustUnlock(t, lease)
	})
}

// The server goes silent. The holder of a lease that is renewed and of one that is not are told at the very instant
// that ValidUntil names, which is before the server gives the lock away.
func TestLossIsToldOnTime(t *testing.T) {
	for _, test := range []struct {
		name   string
		opts   []lock.Option
		reason lock.Reason
		valid  time.Duration
	}{
		{"renewed", nil, lock.Unreachable, 29698 * time.Millisecond},
		{"fixed", []lock.Option{lock.For(5 * time.Second)}, lock.Expired, 4948 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				lease := mustLock(t, c, "job", test.opts...)
				start := time.Now()
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				w.srv.Mute(true)
				<-ctx.Done()
				if got := time.Since(start); got != test.valid {
					t.Errorf("told after %v, want %v", got, test.valid)
				}
				if got := time.Until(lease.ValidUntil()); got != 0 {
					t.Errorf("ValidUntil() is off by %v", got)
				}
				lostBecause(t, context.Cause(ctx), test.reason)
				lostBecause(t, lease.Err(), test.reason)
				<-lease.Lost()
				if w.ttl("job") <= 0 {
					t.Error("the server had given the lock away before the holder was told")
				}
			})
		})
	}
}

// Without anybody watching, Err knows by itself.
func TestErrLooksAtTheClock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(time.Second))
		time.Sleep(988*time.Millisecond - time.Nanosecond)
		if err := lease.Err(); err != nil {
			t.Fatalf("Err() = %v a moment before the end", err)
		}
		time.Sleep(time.Nanosecond)
		lostBecause(t, lease.Err(), lock.Expired)
		// The server still has it for 12 ms: releasing is possible and true.
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock() = %v", err)
		}
		lostBecause(t, lease.Err(), lock.Expired)
	})
}

func TestLostLockIsNotRevived(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: 3 * time.Second})
		other := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		// The renewal that is due after a second reaches the server after the lease has ended.
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 1 && cmd.Args[1] == kinds.All()["reentrant"]["renew"].Digest() {
				return fakeredis.Delay(4*time.Second, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		<-lease.Lost()
		time.Sleep(50 * time.Millisecond)
		taken := mustLock(t, other, "job")
		time.Sleep(30 * time.Second)
		if err := taken.Err(); err != nil {
			t.Errorf("the new holder's Err() = %v", err)
		}
		wantErr(t, "Unlock of the lost lock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, taken)
	})
}

// The machine sleeps for longer than the lease: the monotonic clock has not noticed, and neither has the lease's timer.
func TestSleepingMachine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		asked, watched := mustLock(t, c, "asked"), mustLock(t, c, "watched")
		awake := mustLock(t, c, "awake", lock.For(time.Hour))
		lost := watched.Lost()
		w.machine.Sleep(20 * time.Second)
		if err := asked.Err(); err != nil {
			t.Fatalf("Err() after 20s of sleep = %v", err)
		}
		if got := time.Until(asked.ValidUntil()); got != 9698*time.Millisecond {
			t.Errorf("ValidUntil() is %v away, want 9.698s", got)
		}
		w.machine.Sleep(10 * time.Second)
		woken := time.Now()
		<-lost
		if took := time.Since(woken); took > time.Second {
			t.Errorf("told %v after the machine woke, want it within a second", took)
		}
		lostBecause(t, asked.Err(), lock.ClockJump)
		lostBecause(t, watched.Err(), lock.ClockJump)
		if err := awake.Err(); err != nil {
			t.Errorf("Err() of a lease of an hour = %v", err)
		}
		for _, l := range []*lock.Lease{asked, watched, awake} {
			mustUnlock(t, l)
		}
		w.free()
	})
}

// counting is a handler of logs that counts.
type counting struct {
	slog.Handler
	n atomic.Int64
}

func (h *counting) Enabled(context.Context, slog.Level) bool      { return true }
func (h *counting) Handle(_ context.Context, _ slog.Record) error { h.n.Add(1); return nil }

// An outage is told of, and not once for each of the leases it concerns.
func TestOutageIsNotLoggedForEachLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var h counting
		c := w.client(lock.Config{Logger: slog.New(&h)})
		for i := range 1000 {
			mustLock(t, c, fmt.Sprint(i))
		}
		w.sleep(9 * time.Second)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		w.sleep(8 * time.Second)
		w.srv.Refuse(false)
		w.sleep(time.Minute)
		if n := h.n.Load(); n == 0 || n > 20 {
			t.Errorf("%d lines in the log, want some and not many", n)
		}
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%d leases were lost", s.Lost)
		}
	})
}

// A machine that has slept for most of a lease renews it as soon as it is awake, and not only when it was due.
func TestRenewalAfterSleep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		work, cancel := lease.Context(t.Context())
		defer cancel()
		w.sleep(time.Second)
		w.machine.Sleep(24 * time.Second)
		w.sleep(12 * time.Second)
		if err := context.Cause(work); err != nil {
			t.Errorf("with 4.7s of the lease left when the machine woke: %v", err)
		}
	})
}

// A server that needs longer for a round of renewals than one may take gets smaller rounds.
func TestSlowRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{RenewBatch: 10})
		for i := range 160 {
			mustLock(t, c, fmt.Sprint(i))
		}
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScript(cmd, "renew") {
				return fakeredis.Delay(350*time.Millisecond, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		w.sleep(5 * time.Minute)
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%d leases were lost although a server that slow could have renewed all: %+v", s.Lost, s)
		}
	})
}

// storm is a server in bad weather with workers who take locks on it, as owners and without.
type storm struct {
	*world
	stragglers sync.WaitGroup // requests that arrive after their connection has died
	over       chan struct{}  // closed when the weather is fine again
	held       atomic.Int64   // leases that were looked at and not lost

	mu  sync.Mutex // guards the following
	rng *rand.Rand
}

// Whatever goes wrong, a lease that has not been lost is one that the server has, and in the end nothing is left. What was
// lost with its connection may arrive seconds later all the same.
func TestLeasesAreWhatTheServerHas(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				s := &storm{world: w, over: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 7))}
				var workers sync.WaitGroup
				for range 2 {
					c := w.clientOn(conn.Config{Conns: 1 + s.n(2)}, lock.Config{Lease: 4 * time.Second})
					for range 4 {
						workers.Go(func() { s.work(c) })
					}
				}
				w.srv.Intercept(s.fault)
				for range 60 {
					s.sleep(s.upTo(time.Second))
					s.gust()
				}
				w.srv.Intercept(nil)
				close(s.over)
				workers.Wait()
				s.stragglers.Wait()
				s.sleep(30 * time.Second)
				w.free()
				if n := s.held.Load(); n < 100 {
					t.Errorf("%d looks at leases that were held, want many", n)
				}
			})
		})
	}
}

// n is a random number below n.
func (s *storm) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// upTo is a random number of milliseconds, less than d.
func (s *storm) upTo(d time.Duration) time.Duration {
	return time.Duration(s.n(int(d.Milliseconds()))) * time.Millisecond
}

// work takes and gives back locks until the storm is over.
func (s *storm) work(c *lock.Client) {
	owner := c.NewOwner()
	for {
		select {
		case <-s.over:
			return
		case <-time.After(1 + s.upTo(100*time.Millisecond)):
		}
		s.turn(c, owner)
	}
}

// turn takes a lock, as an owner as often as not and then several times over, and gives back what it got. It looks at its
// leases all the time.
func (s *storm) turn(c *lock.Client, owner lock.Owner) {
	name := fmt.Sprint("lock", s.n(3))
	var opts []lock.Option
	holds := 1
	if s.n(2) == 0 {
		opts, holds = append(opts, lock.As(owner)), 1+s.n(3)
	}
	if s.n(3) == 0 {
		opts = append(opts, lock.For(time.Second+s.upTo(3*time.Second)))
	}
	var leases []*lock.Lease
	for range holds {
		ctx, cancel := context.WithTimeout(context.Background(), s.upTo(5*time.Second))
		if l, err := c.Reentrant(name).Lock(ctx, opts...); err == nil {
			leases = append(leases, l)
		}
		cancel()
		s.look(name, leases)
	}
	if s.n(10) == 0 {
		s.sleep(s.upTo(7 * time.Second))
	}
	for len(leases) > 0 {
		s.sleep(s.upTo(300 * time.Millisecond))
		s.look(name, leases)
		_ = leases[0].Unlock(context.Background()) // whatever it says, the others must stand
		leases = leases[1:]
		s.look(name, leases)
	}
}

// look fails the test if a lease says that it is held and the server does not have it.
func (s *storm) look(name string, leases []*lock.Lease) {
	for _, l := range leases {
		if l.Err() != nil {
			continue
		}
		s.held.Add(1)
		if s.srv.Do("HEXISTS", name, l.Owner()) != int64(1) && l.Err() == nil {
			s.t.Errorf("%v holds %s, and the server has %v", l.Owner(), name, s.srv.Do("HGETALL", name))
		}
	}
}

// fault is what becomes of one command.
func (s *storm) fault(cmd fakeredis.Cmd) fakeredis.Action {
	if !slices.Contains([]string{"EVALSHA", "EVAL", "SUBSCRIBE", "DEL"}, cmd.Name) {
		return fakeredis.Run()
	}
	switch s.n(40) {
	case 0:
		return fakeredis.RunThenClose()
	case 1:
		if d := s.upTo(4500 * time.Millisecond); cmd.Name != "SUBSCRIBE" {
			s.stragglers.Go(func() {
				s.sleep(d)
				s.srv.Do(cmd.Args...)
			})
		}
		return fakeredis.Close()
	case 2:
		return fakeredis.Delay(s.upTo(3*time.Second), fakeredis.Run())
	case 3:
		return fakeredis.Run().Late(s.upTo(3 * time.Second))
	case 4:
		return fakeredis.Run().ThenReset()
	}
	return fakeredis.Run()
}

// gust is something that happens to the server as a whole.
func (s *storm) gust() {
	switch s.n(8) {
	case 0:
		s.srv.KillConns(nil)
	case 1:
		s.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
	case 2:
		s.srv.Refuse(true)
		s.sleep(s.upTo(2 * time.Second))
		s.srv.Refuse(false)
	case 3:
		s.srv.Stall(true)
		s.sleep(s.upTo(3 * time.Second))
		s.srv.Stall(false)
	case 4:
		s.srv.Mute(true)
		s.sleep(s.upTo(2 * time.Second))
		s.srv.KillConns(nil) // no answer may be taken for that to what was swallowed
		s.srv.Mute(false)
	case 5:
		s.srv.Latency(s.upTo(30 * time.Millisecond))
	case 6:
		s.srv.Do("SCRIPT", "FLUSH")
	}
}

// A loss is told within a second where it can be known, long before the next renewal: of a server that has forgotten everything, and of
// locks that another client has freed by force. Leases that are not renewed are no exception.
func TestLossIsToldWithinASecond(t *testing.T) {
	for name, lose := range map[string]func(w *world, other *lock.Client){
		"restart":       func(w *world, _ *lock.Client) { w.srv.Restart() },
		withoutChannels: func(w *world, _ *lock.Client) { w.srv.Restart() }, // no subscription that returns tells of the loss
		"force": func(w *world, other *lock.Client) {
			for name, l := range everyLock(other) {
				if forced, err := l.ForceUnlock(w.t.Context()); err != nil || !forced {
					w.t.Errorf("ForceUnlock(%s) = %v, %v", name, forced, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				if name == withoutChannels {
					w.srv.Deny("subscribe")
				}
				pool := w.pool(conn.Config{})
				defer pool.Close()
				c, err := lock.New(pool, lock.Config{Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				held := make(map[string]*lock.Lease)
				for name, l := range everyLock(c) {
					var opts []lock.Option
					if strings.HasSuffix(name, fixed) {
						opts = append(opts, lock.For(time.Hour))
					}
					if held[name], err = l.Lock(t.Context(), opts...); err != nil {
						t.Fatal(name, err)
					}
				}
				w.sleep(2 * time.Second)
				lose(w, w.client(lock.Config{}))
				w.sleep(time.Second)
				for name, lease := range held {
					lostBecause(t, lease.Err(), lock.Forced)
					if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
						t.Errorf("Unlock of %s = %v", name, err)
					}
				}
			})
		})
	}
}

const (
	fixed           = ", not renewed"
	withoutChannels = "restart, without the right to channels"
)

// everyLock are locks of all kinds by their names, of each one that ends in fixed.
func everyLock(c *lock.Client) map[string]forceable {
	all := make(map[string]forceable)
	for _, of := range []string{"", fixed} {
		for kind, open := range map[string]func(name string) forceable{
			"reentrant": func(name string) forceable { return c.Reentrant(name) }, "nonreentrant": func(name string) forceable { return c.NonReentrant(name) },
			"fenced": func(name string) forceable { return c.Fenced(name) }, "fair": func(name string) forceable { return c.Fair(name) },
			"spin": func(name string) forceable { return c.Spin(name, lock.Backoff{}) }, "plain": func(name string) forceable { return c.Plain(name) },
			"read": func(name string) forceable { return c.ReadWrite(name).Read() }, "write": func(name string) forceable { return c.ReadWrite(name).Write() },
		} {
			all[kind+of] = open(kind + of)
		}
	}
	return all
}

type forceable interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// The read holds of an Owner are renewed together: a request for each hold, which names all of them, would take a server
// seconds for a thousand holds.
func TestReadsOfAnOwnerAreRenewedTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner, other := c.NewOwner(), c.NewOwner()
		const holds = 120
		var leases []*lock.Lease
		for range holds {
			leases = append(leases, mustRead(t, c, lock.As(owner)))
		}
		leases = append(leases, mustRead(t, c, lock.As(other)), mustRead(t, c))
		var keys atomic.Int64
		renew := kinds.All()["read"]["renew"].Digest()
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 2 && cmd.Args[1] == renew {
				n, _ := strconv.Atoi(cmd.Args[2])
				keys.Add(int64(n))
			}
			return fakeredis.Run()
		})
		w.sleep(15 * time.Second)
		if named, most := keys.Load(), int64(2*(holds+5)); named > most {
			t.Errorf("a round of renewals names %d keys, want at most %d", named, most)
		}
		if got := c.Stats().Renewals; got != uint64(len(leases)) {
			t.Errorf("%d renewals, want %d", got, len(leases))
		}
		w.sleep(5 * time.Minute)
		w.srv.Do("DEL", "job")
		w.sleep(15 * time.Second)
		for _, l := range leases {
			wantErr(t, "Err", l.Err(), lock.ErrLost)
		}
	})
}
