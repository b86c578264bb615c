package lock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// world is a fake server in virtual time with clients of it.
type world struct {
	t       *testing.T
	srv     *fakeredis.Server
	machine lock.Machine
	pools   []*conn.Pool
	clients []*lock.Client
}

// inVirtualTime runs fn in a bubble. What fn's clients leave behind in the server or in this process fails the test.
func inVirtualTime(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, srv: fakeredis.New()}
		teach(w.srv)
		defer w.close()
		fn(t, w)
	})
}

func (w *world) pool(cfg conn.Config) *conn.Pool {
	w.t.Helper()
	cfg.Dial = w.srv.Dial
	pool, err := conn.Open(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return pool
}

func (w *world) client(cfg lock.Config) *lock.Client {
	w.t.Helper()
	return w.clientOn(conn.Config{}, cfg)
}

// clientOn is client with a configuration for its pool as well.
func (w *world) clientOn(poolCfg conn.Config, cfg lock.Config) *lock.Client {
	w.t.Helper()
	pool := w.pool(poolCfg)
	c, err := lock.New(pool, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine.Run(c)
	c.Deaf()
	w.pools = append(w.pools, pool)
	w.clients = append(w.clients, c)
	return c
}

func (w *world) close() {
	for _, c := range w.clients {
		if err := c.Close(); err != nil {
			w.t.Errorf("Client.Close() = %v", err)
		}
	}
	for _, p := range w.pools {
		if err := p.Close(); err != nil {
			w.t.Errorf("Pool.Close() = %v", err)
		}
	}
	w.srv.Close()
}

// mustLock locks name and fails the test if that does not work.
func mustLock(t *testing.T, c *lock.Client, name string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := c.Reentrant(name).Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock(%q) = %v", name, err)
	}
	return lease
}

func mustUnlock(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock() = %v", err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

func lostBecause(t *testing.T, err error, want lock.Reason) {
	t.Helper()
	lost, ok := errors.AsType[*lock.LostError](err)
	if !ok || lost.Reason != want {
		t.Fatalf("error = %v, want a loss because %v", err, want)
	}
}

// sleep lets virtual time go by: a world is in a bubble.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// ttl is the remaining lease of a key as the server has it, negative if it has none.
func (w *world) ttl(key string) time.Duration {
	left, _ := w.srv.Do("PTTL", key).(int64)
	return time.Duration(left) * time.Millisecond
}

// wantHolds fails the test unless the server has so many holds for the owner, and lease knows of no loss.
func (w *world) wantHolds(name, count string, lease *lock.Lease) {
	w.t.Helper()
	got, _ := w.srv.Do("HGET", name, lease.Owner()).(string)
	if got != count || lease.Err() != nil {
		w.t.Fatalf("hold count on the server %q, Err() = %v, want %q and nil", got, lease.Err(), count)
	}
}

// latchLife is how long the server may have to know a request that had no answer.
const latchLife = 20 * time.Second

// free fails the test unless the server has no key left and nobody listens.
func (w *world) free() {
	w.t.Helper()
	time.Sleep(time.Second) // for what goes on in the background
	synctest.Wait()
	if keys := w.srv.Do("DBSIZE"); keys != int64(0) {
		w.t.Errorf("%v keys are left", w.srv.Do("KEYS", "*"))
	}
	if channels, _ := w.srv.Do("PUBSUB", "CHANNELS").([]any); len(channels) != 0 {
		w.t.Errorf("subscriptions are left: %v", channels)
	}
	for _, c := range w.clients {
		if !c.Idle() {
			w.t.Error("a client has not forgotten everything")
		}
	}
}

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

// teach gives srv the functions of the scripts and loads the scripts.
func teach(srv *fakeredis.Server) { lockscripts.Load(srv, kinds.All()) }

// timeoutLeft is what the lease of a reader's n-th hold has left on the server.
func (w *world) timeoutLeft(name, owner string, n int64) time.Duration {
	return w.ttl(lockscripts.TimeoutKey(name, owner, n))
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

// fields is a hash as a script sees it.
func fields(c *fakeredis.Call, key string) map[string]string { return lockscripts.Fields(c, key) }

// soon is a time until which a request is good.
func soon() int64 { return time.Now().Add(30 * time.Second).UnixMilli() }
