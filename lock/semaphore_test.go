package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// onKind has action decide about the n-th request for a script of a kind, n from 1.
func (w *world) onKind(kind, operation string, action func(n int) fakeredis.Action) {
	n, s := 0, kinds.All()[kind][operation]
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if len(cmd.Args) < 2 || cmd.Args[1] != s.Digest() && cmd.Args[1] != s.Source() {
			return fakeredis.Run()
		}
		n++
		return action(n)
	})
}

// first is an action for the first request, and Run for all others.
func first(action fakeredis.Action) func(n int) fakeredis.Action {
	return func(n int) fakeredis.Action {
		if n == 1 {
			return action
		}
		return fakeredis.Run()
	}
}

// wantKey fails the test unless the key holds the text; nil is no key.
func (w *world) wantKey(key string, want any) {
	w.t.Helper()
	if got := w.srv.Do("GET", key); got != want {
		w.t.Errorf("%s is %v, want %v", key, got, want)
	}
}

// settled waits until latches that stay on purpose are gone, deletes the keys, and fails the test if anything else is left.
func (w *world) settled(keys ...string) {
	w.t.Helper()
	w.sleep(latchLife + time.Second)
	w.srv.Do(append([]string{"DEL"}, keys...)...)
	w.free()
}

// setUp returns a semaphore with n permits.
func setUp(t *testing.T, c *lock.Client, n int) *lock.Semaphore {
	t.Helper()
	s := c.Semaphore("sem")
	if set, err := s.TrySetPermits(t.Context(), n); err != nil || !set {
		t.Fatalf("TrySetPermits(%d) = %v, %v", n, set, err)
	}
	return s
}

func wantOK(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s = %v", what, err)
	}
}

func wantAvailable(t *testing.T, s interface {
	Available(context.Context) (int, error)
}, want int) {
	t.Helper()
	if n, err := s.Available(t.Context()); err != nil || n != want {
		t.Fatalf("Available() = %v, %v, want %d", n, err, want)
	}
}

func TestSemaphoreCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, ctx := w.client(lock.Config{}).Semaphore("sem"), t.Context()
		wantAvailable(t, s, 0)
		wantErr(t, "Acquire of what nobody set up", s.Acquire(ctx, 1), lock.ErrNotSet)
		wantErr(t, "TryAcquire of what nobody set up", s.TryAcquire(ctx, 1), lock.ErrNotSet)
		wantErr(t, "TryAcquire that waits for a setup", s.TryAcquire(ctx, 1, lock.WaitForSetup()), lock.ErrNotAcquired)
		if n, err := s.DrainPermits(ctx); n != 0 || err != nil {
			t.Errorf("DrainPermits() = %d, %v", n, err)
		}
		for i, want := range []bool{true, false} {
			if set, err := s.TrySetPermits(ctx, 10+5*i); set != want || err != nil {
				t.Errorf("TrySetPermits() = %v, %v, want %v", set, err, want)
			}
		}
		wantOK(t, "Acquire", s.Acquire(ctx, 10))
		wantErr(t, "TryAcquire", s.TryAcquire(ctx, 1), lock.ErrNotAcquired)
		wantOK(t, "AddPermits", s.AddPermits(ctx, -5))
		wantAvailable(t, s, -5)
		if info, err := s.Info(ctx); err != nil || !info.Locked || info.Remaining >= 0 || info.Permits != (lock.Permits{Set: true, Free: -5}) {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		wantOK(t, "Release", s.Release(ctx, 10))
		wantOK(t, "TryAcquire", s.TryAcquire(ctx, 3))
		wantAvailable(t, s, 2)
		if n, err := s.DrainPermits(ctx); n != 2 || err != nil {
			t.Errorf("DrainPermits() = %d, %v, want 2", n, err)
		}
		wantOK(t, "AddPermits", s.AddPermits(ctx, -1))
		if n, err := s.DrainPermits(ctx); n != -1 || err != nil {
			t.Errorf("DrainPermits() = %d, %v, want -1", n, err)
		}
		w.wantKey("sem", "0")
		if ok, err := s.ReleaseIfExists(ctx, 2); !ok || err != nil {
			t.Errorf("ReleaseIfExists() = %v, %v", ok, err)
		}
		w.srv.Do("DEL", "sem")
		if ok, err := s.ReleaseIfExists(ctx, 2); ok || err != nil {
			t.Errorf("ReleaseIfExists() of nothing = %v, %v", ok, err)
		}
		w.wantKey("sem", nil)
		wantOK(t, "Release of what nobody set up", s.Release(ctx, 1))
		w.wantKey("sem", "1")
		w.srv.Do("DEL", "sem")
		wantOK(t, "Release of no permits", s.Release(ctx, 0))
		w.wantKey("sem", nil)
		wantOK(t, "AddPermits of none", s.AddPermits(ctx, 0)) // Redisson's addPermits(0) creates the semaphore, release(0) does not
		w.wantKey("sem", "0")
		w.srv.Do("DEL", "sem")
		w.free()
	})
}

func TestSemaphoreRefuses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, ctx := w.client(lock.Config{}), t.Context()
		s := c.Semaphore("sem")
		_, set := s.TrySetPermits(ctx, -1)
		_, long := s.TrySetPermitsFor(ctx, 1, 0)
		_, exists := s.ReleaseIfExists(ctx, -1)
		_, drain := c.Semaphore("a{b").DrainPermits(ctx)
		_, info := c.Semaphore("").Info(ctx)
		beyond := int64(math.MaxInt32) + 1
		for what, err := range map[string]error{
			"Acquire(-1)": s.Acquire(ctx, -1), "TryAcquire(-1)": s.TryAcquire(ctx, -1), "Release(-1)": s.Release(ctx, -1),
			"TrySetPermits(-1)": set, "TrySetPermitsFor(0)": long, "ReleaseIfExists(-1)": exists,
			"Acquire(2^31)": s.Acquire(ctx, int(beyond)), "AddPermits(-2^31)": s.AddPermits(ctx, -math.MaxInt32-1),
			"Acquire of a bad name": c.Semaphore("a{b").Acquire(ctx, 1), "DrainPermits of a bad name": drain, "Info": info,
			"Acquire with a lease": s.Acquire(ctx, 1, lock.For(time.Second)), "Acquire for ever": s.Acquire(ctx, 1, lock.Forever()),
			"Acquire with an Owner": s.Acquire(ctx, 1, lock.As(c.NewOwner())),
		} {
			wantErr(t, what, err, lock.ErrInvalid)
		}
		_, err := c.Reentrant("job").Lock(ctx, lock.WaitForSetup())
		wantErr(t, "Lock that waits for a setup", err, lock.ErrInvalid)
		_, err = c.Reentrant("job").Lock(ctx, lock.Forever())
		wantErr(t, "Lock for ever", err, lock.ErrInvalid)
		wantOK(t, "Acquire(0)", s.Acquire(ctx, 0))
		wantOK(t, "TryAcquire(0)", s.TryAcquire(ctx, 0))
		wantOK(t, "Release(0)", s.Release(ctx, 0))
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL"); n != 0 {
			t.Errorf("%d scripts were sent", n)
		}
		w.srv.Do("SET", "sem", "kept")
		_, set = s.TrySetPermits(ctx, 1)
		_, exists = s.ReleaseIfExists(ctx, 1)
		_, drain = s.DrainPermits(ctx)
		_, available := s.Available(ctx)
		for what, err := range map[string]error{
			"Acquire": s.Acquire(ctx, 1), "TryAcquire": s.TryAcquire(ctx, 1), "Release": s.Release(ctx, 1), "AddPermits": s.AddPermits(ctx, 1),
			"TrySetPermits": set, "ReleaseIfExists": exists, "DrainPermits": drain, "Available": available,
		} {
			wantErr(t, what+" of another type", err, lock.ErrWrongType)
		}
		w.wantKey("sem", "kept")
		w.srv.Do("DEL", "sem")
		w.free()
	})
}

// A waiter that wants much is served in the end, and those behind it in the same client wait; TryAcquire passes.
func TestSemaphoreServesInOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		c.OnlyWoken()
		s := setUp(t, c, 1)
		w.srv.Latency(time.Millisecond)
		served := make(chan int, 3)
		var wg sync.WaitGroup
		for _, n := range []int{3, 1, 2} {
			wg.Go(func() {
				if err := s.Acquire(t.Context(), n); err != nil {
					t.Errorf("Acquire(%d) = %v", n, err)
				}
				served <- n
			})
			w.sleep(100 * time.Millisecond)
		}
		wantOK(t, "TryAcquire", s.TryAcquire(t.Context(), 1))
		wantOK(t, "Release", other.Semaphore("sem").Release(t.Context(), 2))
		w.sleep(time.Second)
		if len(served) != 0 {
			t.Errorf("served with 2 permits free: %v", <-served)
		}
		wantOK(t, "Release", s.Release(t.Context(), 4)) // 6: all can go on from one message
		wg.Wait()
		if order := fmt.Sprint(<-served, <-served, <-served); order != "3 1 2" {
			t.Errorf("served in the order %s", order)
		}
		w.wantKey("sem", "0")
		w.settled("sem")
	})
}

// Who wants too much and gives up leaves what woke it to those behind.
func TestSemaphoreGivesUpItsTurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		c.OnlyWoken()
		s := setUp(t, c, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- s.Acquire(ctx, 5) }()
		w.sleep(10 * time.Millisecond)
		go func() { second <- s.Acquire(t.Context(), 1) }()
		w.sleep(10 * time.Millisecond)
		wantOK(t, "Release", s.Release(t.Context(), 1))
		start := time.Now()
		wantErr(t, "Acquire of too much", <-first, lock.ErrNotAcquired)
		wantOK(t, "Acquire of the one behind", <-second)
		if took := time.Since(start); took > time.Second {
			t.Errorf("the one behind was served after %v", took)
		}
		w.settled("sem")
	})
}

func TestSemaphoreWaitsForItsSetup(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		c.OnlyWoken()
		s, done := c.Semaphore("sem"), make(chan error)
		go func() { done <- s.Acquire(t.Context(), 1, lock.WaitForSetup()) }()
		w.sleep(time.Hour)
		if set, err := w.client(lock.Config{}).Semaphore("sem").TrySetPermitsFor(t.Context(), 1, 5*time.Second); !set || err != nil {
			t.Fatalf("TrySetPermitsFor() = %v, %v", set, err)
		}
		start := time.Now()
		wantOK(t, "Acquire", <-done)
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the waiter was served %v after the setup", took)
		}
		w.sleep(6 * time.Second)
		w.wantKey("sem", nil)
		w.settled()
	})
}

// A1: the answer to an acquire is lost. Its permits are given back, once, also when the acquire comes late, or the taking back
// is repeated; what Redisson does is in the server's test.
func TestA01Semaphore(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{
		"lost answer":  fakeredis.RunThenClose(),
		"lost request": fakeredis.Close(),
		"late request": fakeredis.Delay(4*time.Second, fakeredis.Run()),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				s := setUp(t, w.client(lock.Config{}), 5)
				w.onKind("semaphore", "acquire", first(action))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := s.TryAcquire(ctx, 3); err == nil || errors.Is(err, lock.ErrNotAcquired) {
					t.Fatalf("TryAcquire() = %v without an answer", err)
				}
				w.sleep(10 * time.Second)
				w.wantKey("sem", "5")
				w.onKind("semaphore", "acquire", first(action))
				wantOK(t, "Acquire", s.Acquire(t.Context(), 3))
				w.sleep(10 * time.Second)
				w.wantKey("sem", "2")
				w.onKind("semaphore", "undo", first(fakeredis.RunThenClose()))
				w.srv.Do("SET", "sem", "5")
				w.onKind("semaphore", "acquire", first(fakeredis.RunThenClose()))
				if err := s.TryAcquire(t.Context(), 3); err == nil {
					t.Fatal("TryAcquire() succeeded without an answer")
				}
				w.sleep(10 * time.Second)
				w.wantKey("sem", "5")
				w.settled("sem")
			})
		})
	}
}

// The undo of an acquire has no answer twice, and the acquire comes once more after it.
func TestSemaphoreUndoneOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := setUp(t, w.client(lock.Config{}), 5)
		acquire, undo := kinds.All()["semaphore"]["acquire"], kinds.All()["semaphore"]["undo"]
		var late []string
		undone := 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case len(cmd.Args) > 1 && cmd.Args[1] == acquire.Digest():
				late = cmd.Args
				return fakeredis.RunThenClose()
			case len(cmd.Args) > 1 && cmd.Args[1] == undo.Digest():
				if undone++; undone < 3 {
					return fakeredis.RunThenClose()
				}
			}
			return fakeredis.Run()
		})
		if err := s.TryAcquire(t.Context(), 2); err == nil {
			t.Fatal("TryAcquire() succeeded without an answer")
		}
		w.sleep(5 * time.Second)
		w.srv.Do(late...)
		w.wantKey("sem", "5")
		if undone < 3 {
			t.Errorf("%d undos", undone)
		}
		w.settled("sem")
	})
}

// Whenever an Acquire is given up, the permits are all there in the end, or it has them.
func TestSemaphoreCancelledAtEachStep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(time.Millisecond)
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		s := setUp(t, c, 2)
		for step := range 60 {
			wantOK(t, "Acquire", other.Semaphore("sem").Acquire(t.Context(), 1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step)*250*time.Microsecond)
			done := make(chan error)
			go func() { done <- s.Acquire(ctx, 2) }()
			w.sleep(4 * time.Millisecond)
			wantOK(t, "Release", other.Semaphore("sem").Release(t.Context(), 1))
			err := <-done
			cancel()
			w.sleep(time.Second)
			want := "2"
			if err == nil {
				want = "0"
			}
			w.wantKey("sem", want)
			if err == nil {
				wantOK(t, "Release", s.Release(t.Context(), 2))
			}
		}
		w.settled("sem")
	})
}

// A2: a change whose answer is lost is repeated and made once, and its caller learns what it did.
func TestA02Semaphore(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{"lost answer": fakeredis.RunThenClose(), "lost request": fakeredis.Close()} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				s, ctx := w.client(lock.Config{}).Semaphore("sem"), t.Context()
				w.onKind("semaphore", "set", first(action))
				if set, err := s.TrySetPermits(ctx, 3); !set || err != nil {
					t.Errorf("TrySetPermits() = %v, %v", set, err)
				}
				w.onKind("semaphore", "add", first(action))
				wantOK(t, "AddPermits", s.AddPermits(ctx, 4))
				w.wantKey("sem", "7")
				w.onKind("semaphore", "add", first(action))
				wantOK(t, "Release", s.Release(ctx, 2))
				w.wantKey("sem", "9")
				w.onKind("semaphore", "add", first(action))
				if ok, err := s.ReleaseIfExists(ctx, 1); !ok || err != nil {
					t.Errorf("ReleaseIfExists() = %v, %v", ok, err)
				}
				w.onKind("semaphore", "drain", first(action))
				if n, err := s.DrainPermits(ctx); n != 10 || err != nil {
					t.Errorf("DrainPermits() = %d, %v, want 10", n, err)
				}
				w.wantKey("sem", "0")
				w.srv.Intercept(nil)
				w.settled("sem")
			})
		})
	}
}

// A change that the server does not confirm is uncertain after 10 s, or with the context, and is made in the end, once.
func TestSemaphoreUncertain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := setUp(t, w.client(lock.Config{}), 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "AddPermits under a cancelled context", s.AddPermits(ctx, 1), context.Canceled)
		wantOK(t, "Release under a cancelled context", s.Release(ctx, 1))
		if ok, err := s.ReleaseIfExists(ctx, 1); !ok || err != nil {
			t.Errorf("ReleaseIfExists() under a cancelled context = %v, %v", ok, err)
		}
		w.wantKey("sem", "3")
		w.sleep(time.Second)
		w.srv.Mute(true)
		short, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		wantErr(t, "AddPermits", s.AddPermits(short, 1), lock.ErrUncertain)
		start := time.Now()
		wantErr(t, "Release", s.Release(t.Context(), 1), lock.ErrUncertain)
		if took := time.Since(start); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("Release() gave up after %v", took)
		}
		w.sleep(4 * time.Minute)
		w.srv.Mute(false)
		w.sleep(time.Minute)
		w.wantKey("sem", "5")
		w.settled("sem")
	})
}

// The first call of a client of a cluster has to ask for the channels before: an outage does not lose the permits for that.
func TestSemaphoreFirstRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.slottedClient()
		w.srv.Mute(true)
		start := time.Now()
		wantErr(t, "Release", c.Semaphore("sem").Release(t.Context(), 2), lock.ErrUncertain)
		if took := time.Since(start); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("Release() gave up after %v", took)
		}
		w.sleep(time.Minute)
		w.srv.Mute(false)
		w.sleep(time.Minute)
		w.wantKey("sem", "2")
		w.settled("sem")
	})
}

// The server cannot be reached for minutes after an acquire without an answer: its permits are given back all the same.
func TestSemaphoreUndoneAfterMinutes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := setUp(t, w.client(lock.Config{}), 5)
		w.sleep(time.Second)
		w.onKind("semaphore", "acquire", func(int) fakeredis.Action {
			w.srv.Refuse(true)
			return fakeredis.RunThenClose()
		})
		if err := s.TryAcquire(t.Context(), 2); err == nil {
			t.Error("TryAcquire() succeeded without an answer")
		}
		w.sleep(4 * time.Minute)
		w.wantKey("sem", "3")
		w.srv.Refuse(false)
		w.sleep(10 * time.Second)
		w.wantKey("sem", "5")
		w.settled("sem")
	})
}

// After five minutes a change is given up: a repeat might not be known as one any more. The machine's sleep counts.
func TestSemaphoreChangeIsGivenUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := setUp(t, w.client(lock.Config{}), 1)
		w.sleep(time.Second)
		w.srv.Mute(true)
		wantErr(t, "Release", s.Release(t.Context(), 1), lock.ErrUncertain)
		w.sleep(6 * time.Minute)
		wantErr(t, "Release", s.Release(t.Context(), 1), lock.ErrUncertain)
		w.machine.Sleep(6 * time.Minute)
		w.sleep(10 * time.Second) // a repeat that was under way is over
		w.srv.Mute(false)
		w.sleep(time.Minute)
		w.wantKey("sem", "1")
		w.settled("sem")
	})
}

// A20: a message that is lost costs a waiter some seconds, and not the rest of its life.
func TestA20Semaphore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		s := setUp(t, c, 0)
		done := make(chan error)
		go func() { done <- s.Acquire(t.Context(), 1) }()
		w.sleep(time.Minute)
		w.srv.Do("INCRBY", "sem", "1") // and nobody is told
		start := time.Now()
		wantOK(t, "Acquire", <-done)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("served after %v", took)
		}
		// A waiter that relies on messages alone, as Redisson's do, is not served.
		deaf := w.client(lock.Config{})
		deaf.OnlyWoken()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { done <- deaf.Semaphore("sem").Acquire(ctx, 1) }()
		w.sleep(time.Minute)
		w.srv.Do("INCRBY", "sem", "1")
		wantErr(t, "Acquire that only messages wake", <-done, context.DeadlineExceeded)
		w.settled("sem")
	})
}

// A21: no payload is below 0, of which Redisson's listeners make an exception.
func TestA21Semaphore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := setUp(t, w.client(lock.Config{}), 1)
		wantOK(t, "AddPermits", s.AddPermits(t.Context(), -5))
		wantOK(t, "Release", s.Release(t.Context(), 1))
		wantOK(t, "Release", s.Release(t.Context(), 5))
		var told []string
		for _, m := range w.srv.Messages() {
			told = append(told, m.Payload)
		}
		if fmt.Sprint(told) != "[1 0 0 2]" {
			t.Errorf("published %v, want 1, 0 for -4 and -3, and 2", told)
		}
		w.settled("sem")
	})
}

// A24: nothing but Redisson ends the lifetime of a semaphore's key before its time.
func TestA24Semaphore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, ctx := w.client(lock.Config{}), t.Context()
		s := c.Semaphore("sem")
		if set, err := s.TrySetPermitsFor(ctx, 3, time.Minute); !set || err != nil {
			t.Fatalf("TrySetPermitsFor() = %v, %v", set, err)
		}
		wantOK(t, "AddPermits", s.AddPermits(ctx, 2))
		wantOK(t, "Acquire", s.Acquire(ctx, 1))
		wantOK(t, "Release", s.Release(ctx, 1))
		_, err := s.DrainPermits(ctx)
		wantOK(t, "DrainPermits", err)
		if left := w.ttl("sem"); left < 59*time.Second {
			t.Errorf("the key lasts %v, want a minute", left)
		}
		done := make(chan error)
		go func() { done <- s.Acquire(ctx, 1) }()
		wantErr(t, "Acquire of what expired meanwhile", <-done, lock.ErrNotSet)
		w.srv.Do("SET", "redisson", "3", "PX", "60000")
		w.srv.Do("SET", "redisson", strconv.Itoa(3+2)) // what Redisson's addPermits does
		if left := w.ttl("redisson"); left > 0 {
			t.Errorf("SET keeps the lifetime of %v, so this shows nothing", left)
		}
		w.settled("redisson")
	})
}

func TestSemaphoreAfterClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		s := setUp(t, c, 1)
		wantOK(t, "Acquire", s.Acquire(t.Context(), 1))
		done := make(chan error)
		go func() { done <- s.Acquire(t.Context(), 1) }()
		w.sleep(time.Second)
		wantOK(t, "Close", c.Close())
		wantErr(t, "Acquire", <-done, lock.ErrClosed)
		wantOK(t, "Release", s.Release(t.Context(), 1))
		w.wantKey("sem", "1")
		w.settled("sem")
	})
}
