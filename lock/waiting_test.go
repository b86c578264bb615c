package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// No wake-up is lost: with the look at the end of the holder's lease switched off, every waiter is served, in every
// process, at once.
func TestNoWakeUpIsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const clients, callers, rounds = 3, 8, 20
		w.srv.Latency(100 * time.Microsecond)
		var wg sync.WaitGroup
		var inside, served int
		start := time.Now()
		for range clients {
			c := w.client(lock.Config{})
			c.OnlyWoken()
			for range callers {
				wg.Go(func() {
					for range rounds {
						lease := mustLock(t, c, "job")
						if inside++; inside != 1 {
							t.Errorf("%d holders", inside)
						}
						served++
						inside--
						mustUnlock(t, lease)
					}
				})
			}
		}
		wg.Wait()
		if served != clients*callers*rounds {
			t.Errorf("%d calls were served, want %d", served, clients*callers*rounds)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("that took %v, want no waiting but for the network", took)
		}
		w.free()
	})
}

// The same while the subscriptions keep being cut: what was published in a gap is made up for.
func TestNoWakeUpIsLostInAGap(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		c.OnlyWoken()
		for range 20 {
			lease := mustLock(t, other, "job")
			waited := make(chan time.Duration)
			go func() {
				got := mustLock(t, c, "job")
				waited <- 0
				mustUnlock(t, got)
				waited <- 0
			}()
			time.Sleep(100 * time.Millisecond)
			w.srv.KillConns(func(conn fakeredis.Conn) bool { return conn.Subscribed > 0 })
			mustUnlock(t, lease)
			released := time.Now()
			<-waited
			if took := time.Since(released); took > 1100*time.Millisecond {
				t.Fatalf("the waiter was served after %v, want it within a reconnection or a poll", took)
			}
			<-waited
		}
		w.free()
	})
}

func TestOneWaiterOfAProcessAsks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, holder, "job", lock.For(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		first := make(chan struct{})
		for range 100 {
			wg.Go(func() {
				got, err := c.Reentrant("job").Lock(ctx)
				if err == nil {
					close(first)
					<-ctx.Done()
					mustUnlock(t, got)
				} else if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
					t.Errorf("Lock() = %v, want ErrNotAcquired and Canceled", err)
				}
			})
		}
		time.Sleep(time.Second)
		if n := w.srv.Count("SUBSCRIBE"); n != 3 {
			t.Errorf("100 waiters sent SUBSCRIBE %d times, want once for each of the three channels", n)
		}
		w.srv.ClearLog()
		time.Sleep(time.Minute)
		if n := w.srv.Count("EVALSHA"); n > 8 {
			t.Errorf("100 waiters asked %d times in a minute, want one every 9 to 10 s", n)
		}
		w.srv.ClearLog()
		mustUnlock(t, lease)
		<-first
		time.Sleep(time.Second)
		if n := w.srv.Count("EVALSHA"); n > 3 {
			t.Errorf("%d scripts for a release with 100 waiters, want the release and one acquire", n)
		}
		w.srv.ClearLog()
		cancel()
		wg.Wait()
		if n := w.srv.Count("EVALSHA"); n > 3 {
			t.Errorf("%d scripts for 99 waiters that left, want the release and at most one that was woken by it", n)
		}
		w.free()
	})
}

// Callers of one process are served in the order in which they came.
func TestLocalOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				got := mustLock(t, c, "job")
				order = append(order, i)
				mustUnlock(t, got)
			})
			synctest.Wait()
		}
		mustUnlock(t, lease)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		w.free()
	})
}

// A holder of another process dies: the waiter has the lock as soon as the lease ends.
func TestTakeoverAtTheEndOfTheLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Do("HSET", "job", "somebody:1", "1")
		w.srv.Do("PEXPIRE", "job", "7000")
		start := time.Now()
		lease := mustLock(t, c, "job")
		if took := time.Since(start); took < 7*time.Second || took > 7010*time.Millisecond {
			t.Errorf("taken over after %v, want 7s and a few ms", took)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// A lock without a lease, or one whose lease seems to end at any moment, does not make a waiter spin.
func TestWaitersDoNotSpin(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply string
		most  int
	}{
		{"no lease", ":-1\r\n", 9}, // the last one leaves the line
		{"a lease of 0", ":0\r\n", 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name == "EVALSHA" || cmd.Name == "EVAL" {
						return fakeredis.Reply(test.reply)
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := c.Reentrant("job").Lock(ctx)
				wantErr(t, "Lock", err, lock.ErrNotAcquired)
				wantErr(t, "Lock", err, context.DeadlineExceeded)
				synctest.Wait()
				if n := w.srv.Count("EVALSHA") - 1; n > test.most { // without the question about the holder
					t.Errorf("asked %d times in a minute, want at most %d", n, test.most)
				}
				w.free()
			})
		})
	}
}

// While there is no subscription to be had, waiters look by themselves.
func TestWaitersPollWithoutASubscription(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "SUBSCRIBE" {
				return fakeredis.Reply("-NOPERM this user has no permissions to access one of the channels used as arguments\r\n")
			}
			return fakeredis.Run()
		})
		holder, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, holder, "job")
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job") }()
		time.Sleep(5 * time.Second)
		mustUnlock(t, lease)
		released := time.Now()
		next := <-got
		if took := time.Since(released); took > time.Second {
			t.Errorf("served %v after the release, want it within a second", took)
		}
		mustUnlock(t, next)
		w.free()
	})
}

func TestWaiterRidesThroughAnOutage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, holder, "job", lock.For(time.Minute))
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job") }()
		time.Sleep(time.Second)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		time.Sleep(10 * time.Second)
		w.srv.Refuse(false)
		time.Sleep(3 * time.Second)
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		w.free()
	})
}

// So does the first call of a client of a cluster, which has to ask for the channels before anything else.
func TestFirstCallRidesThroughAnOutage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.slottedClient()
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		time.AfterFunc(15*time.Second, func() { w.srv.Refuse(false) })
		for _, l := range []*lock.Handle{&c.Reentrant("job").Handle, &c.Fair("fair").Handle} {
			lease, err := l.Lock(t.Context())
			if err != nil {
				t.Fatalf("Lock() = %v", err)
			}
			mustUnlock(t, lease)
		}
		w.free()
	})
}

func TestWaiterGivesUpOnAServerThatIsGone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		start := time.Now()
		_, err := c.Reentrant("job").Lock(t.Context())
		if took := time.Since(start); err == nil || took < 30*time.Second || took > 45*time.Second {
			t.Errorf("Lock() = %v after %v, want an error after 30 s or so", err, took)
		}
		if errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("Lock() = %v: a server that is gone is not a lock that is taken", err)
		}
	})
}

// Who comes when others have waited for a server that is gone for long has the same patience.
func TestWaiterHasItsOwnPatience(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 4 {
			after := time.Duration(i%2) * 20 * time.Second
			wg.Go(func() {
				w.sleep(after)
				_, err := c.Reentrant("job").Lock(t.Context())
				if took := time.Since(start) - after; err == nil || took < 30*time.Second || took > 45*time.Second {
					t.Errorf("Lock() = %v after %v, want an error after 30 s or so", err, took)
				}
			})
		}
		wg.Wait()
	})
}

func TestCloseEndsWaitsAndLeases(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		waited := make(chan error)
		for range 3 {
			go func() {
				_, err := c.Reentrant("job").Lock(context.Background())
				waited <- err
			}()
		}
		time.Sleep(time.Second)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			wantErr(t, "Lock during Close", <-waited, lock.ErrClosed)
		}
		lostBecause(t, context.Cause(ctx), lock.ClientClosed)
		_, err := c.Reentrant("other").Lock(t.Context())
		wantErr(t, "Lock after Close", err, lock.ErrClosed)
		_, err = c.Reentrant("other").TryLock(t.Context())
		wantErr(t, "TryLock after Close", err, lock.ErrClosed)
		// What the lease guarded may have gone on until now; its holder can still release it.
		if w.srv.Do("EXISTS", "job") != int64(1) {
			t.Error("Close released the lock behind its holder's back")
		}
		mustUnlock(t, lease)
		w.free()
	})
}

func TestStats(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		var leases []*lock.Lease
		for i := range 3 {
			leases = append(leases, mustLock(t, c, fmt.Sprint("job", i)))
		}
		go func() { mustUnlock(t, mustLock(t, c, "job0")) }()
		synctest.Wait()
		if s := c.Stats(); s.Leases != 3 || s.Waiting != 1 || s.Acquired != 3 || s.Released != 0 {
			t.Errorf("Stats() = %+v", s)
		}
		for _, l := range leases {
			mustUnlock(t, l)
		}
		time.Sleep(time.Second)
		if s := c.Stats(); s.Leases != 0 || s.Waiting != 0 || s.Acquired != 4 || s.Released != 4 || s.Lost != 0 {
			t.Errorf("Stats() = %+v", s)
		}
		w.free()
	})
}

// A connection that has turned to stone is given up after the usual time also when the caller who waits on it could wait
// longer: neither that caller nor the leases that are renewed on it depend on his deadline.
func TestFarDeadlineDoesNotKeepADeadConnection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.srv.Do("HSET", "other", "somebody:1", "1")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		got := make(chan error, 1)
		go func() {
			other, err := c.Reentrant("other").Lock(ctx)
			if err == nil {
				err = other.Unlock(ctx)
			}
			got <- err
		}()
		time.Sleep(3 * time.Second)
		var last int64
		for _, cmd := range w.srv.Log() {
			last = max(last, cmd.Conn)
		}
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Conn <= last {
				return fakeredis.Swallow()
			}
			return fakeredis.Run()
		})
		w.srv.Do("DEL", "other")
		w.srv.Do("PUBLISH", "redisson_lock__channel:{other}", "0")
		start := time.Now()
		if err := <-got; err != nil || time.Since(start) > 15*time.Second {
			t.Errorf("Lock() = %v after %v, want nil within 15s", err, time.Since(start))
		}
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("a lease that a new connection could have renewed: %v", err)
		}
	})
}

// Whether the context ends between two looks or during one makes no difference to a waiter who knows that the lock is
// taken, and the context's own error is found beside its cause.
func TestEndOfAWaitIsTheSameAtAnyMoment(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Do("HSET", "job", "somebody:1", "1")
		w.srv.Latency(100 * time.Millisecond)
		cause := errors.New("cause")
		for after := 300 * time.Millisecond; after < 1500*time.Millisecond; after += 50 * time.Millisecond {
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, cause)
			_, err := c.Reentrant("job").Lock(ctx)
			cancel()
			for _, want := range []error{lock.ErrNotAcquired, context.DeadlineExceeded, cause} {
				wantErr(t, fmt.Sprintf("Lock that ends after %v", after), err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A wait that ends before the server was asked for a second time, and did not answer the first, has not been told that the
// lock is taken.
func TestEndOfAWaitWithoutAnAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{Retry: conn.Retry{Attempts: -1}}, lock.Config{})
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock()", err, context.DeadlineExceeded)
		if errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("Lock() = %v", err)
		}
	})
}

// The same behind a caller of this process whom the server has not answered either. Behind a caller that the server has refused, or a
// holder of this process, the lock is taken.
func TestEndOfAWaitBehindACallerWithoutAnAnswer(t *testing.T) {
	for name, x := range map[string]struct {
		before func(t *testing.T, w *world, c *lock.Client) // while the server can be reached
		taken  bool
	}{
		"nobody has it":       {before: func(*testing.T, *world, *lock.Client) {}},
		"a holder elsewhere":  {func(t *testing.T, w *world, _ *lock.Client) { mustLock(t, w.client(lock.Config{}), "job") }, false},
		"a holder in process": {func(t *testing.T, _ *world, c *lock.Client) { mustLock(t, c, "job", lock.For(time.Hour)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.clientOn(conn.Config{Retry: conn.Retry{Attempts: -1}}, lock.Config{})
				x.before(t, w, c)
				w.srv.Refuse(true)
				w.srv.KillConns(nil)
				time.Sleep(time.Second)
				first, leave := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = c.Reentrant("job").Lock(first) })
				time.Sleep(time.Second)
				for i := range 2 {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+2*i)*time.Second)
						defer cancel()
						_, err := c.Reentrant("job").Lock(ctx)
						wantErr(t, "Lock()", err, context.DeadlineExceeded)
						if errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrNotAcquired) != x.taken || errors.Is(err, conn.ErrNotSent) == x.taken {
							t.Errorf("Lock() of caller %d = %v", i, err)
						}
					})
				}
				time.Sleep(2 * time.Second)
				leave() // the second of them is in front now
				wg.Wait()
				w.srv.Refuse(false)
			})
		})
	}
}

// again is a client that has waited for the lock "job" a moment ago, and is woken by messages only, and another client that has it.
func again(t *testing.T, w *world) (c *lock.Client, taken *lock.Lease) {
	c, other := w.client(lock.Config{}), w.client(lock.Config{})
	c.OnlyWoken()
	taken = mustLock(t, other, "job")
	got := waitForJob(t, c)
	w.sleep(100 * time.Millisecond)
	mustUnlock(t, taken)
	mustUnlock(t, <-got)
	w.sleep(100 * time.Millisecond)
	taken = mustLock(t, other, "job")
	w.srv.ClearLog()
	return c, taken
}

// waitForJob has c wait for the lock "job".
func waitForJob(t *testing.T, c *lock.Client) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go func() {
		defer close(got)
		if lease, err := c.Reentrant("job").Lock(t.Context()); err != nil {
			t.Errorf("Lock() = %v", err)
		} else {
			got <- lease
		}
	}()
	return got
}

// wantWoken fails the test unless the lock comes soon after its release.
func wantWoken(t *testing.T, what string, got <-chan *lock.Lease) {
	t.Helper()
	select {
	case lease := <-got:
		mustUnlock(t, lease)
	case <-time.After(time.Minute):
		t.Fatalf("%s: not woken", what)
	}
}

// Who waits again soon after the last wait for the lock does not subscribe again, and asks once before it is woken.
func TestWaitingAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, taken := again(t, w)
		got := waitForJob(t, c)
		w.sleep(200 * time.Millisecond)
		mustUnlock(t, taken)
		wantWoken(t, "the second wait", got)
		if subscribed, ran := w.srv.Count("SUBSCRIBE"), w.srv.Count("EVALSHA"); subscribed != 0 || ran != 4 {
			t.Errorf("%d times SUBSCRIBE and %d scripts, want none, and two acquires and two releases", subscribed, ran)
		}
		w.free()
	})
}

// The lock is released after it has been asked for and before the answer has come.
func TestWaitingAgainHearsWhatCameMeanwhile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, taken := again(t, w)
		w.onScript("acquire", func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.Run().Late(50 * time.Millisecond)
			}
			return fakeredis.Run()
		})
		got := waitForJob(t, c)
		w.sleep(10 * time.Millisecond)
		mustUnlock(t, taken)
		wantWoken(t, "released before the answer", got)
		w.free()
	})
}

// The subscription was lost, and came back, since the last wait.
func TestWaitingAgainAfterAGap(t *testing.T) {
	for name, since := range map[string]time.Duration{"before the wait": 200 * time.Millisecond, "as it begins": 0} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, taken := again(t, w)
				w.srv.KillConns(nil)
				w.sleep(since)
				got := waitForJob(t, c)
				w.sleep(time.Second)
				mustUnlock(t, taken)
				wantWoken(t, "after the gap", got)
				w.free()
			})
		})
	}
}
