package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// Close does not wait for a renewal that nobody answers.
func TestCloseIsPrompt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: 10 * time.Minute})
		mustLock(t, c, "job")
		w.sleep(200*time.Second - time.Millisecond)
		w.srv.Mute(true)
		w.sleep(time.Second)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// Close loses all leases: none is held afterwards, and Unlock still works.
func TestNothingIsHeldAfterClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		wantOK(t, "Close", c.Close())
		if n, held := c.Stats().Leases, c.Held(); n != 0 || len(held) != 0 {
			t.Errorf("%d leases are held after Close, and Held() = %v", n, held)
		}
		wantOK(t, "Unlock", lease.Unlock(t.Context()))
		w.free()
	})
}

// Close does not wait for a question about the members of a lease that nobody answers. Who asked hears of the loss, however many leases
// the client loses by its Close.
func TestCloseIsPromptBesideACheckOfMembers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for i := range 500 {
			mustLock(t, c, fmt.Sprint("other", i))
		}
		multi, err := lock.NewMulti(c.Reentrant("a"), c.Reentrant("b"))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := multi.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.srv.Mute(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := lease.Check(context.Background()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("Check() = %v beside Close, want ErrLost", err)
			}
		})
		w.sleep(time.Second)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		wg.Wait()
	})
}

// Close while nobody answers: a wait ends with it, and an Unlock in its own time.
func TestCloseWithCallsUnderWay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.srv.Mute(true)
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Fair("fair").Lock(t.Context()) // which Close waits for, so that it leaves the queue
			if took := time.Since(start); !errors.Is(err, lock.ErrClosed) || took > 3*time.Second {
				t.Errorf("Lock() of a fair lock = %v after %v, want ErrClosed soon after Close at 1s", err, took)
			}
		})
		wg.Go(func() {
			_, err := c.Reentrant("other").Lock(context.Background())
			if took := time.Since(start); !errors.Is(err, lock.ErrClosed) || took > 3*time.Second {
				t.Errorf("Lock() = %v after %v, want ErrClosed soon after Close at 1s", err, took)
			}
		})
		wg.Go(func() {
			err := lease.Unlock(context.Background())
			if took := time.Since(start); !errors.Is(err, lock.ErrUncertain) || took > 11*time.Second {
				t.Errorf("Unlock() = %v after %v, want ErrUncertain within 10s", err, took)
			}
		})
		w.sleep(time.Second)
		given, ok := errors.AsType[*lock.CloseError](c.Close())
		if !ok || given.Acquires == 0 {
			t.Errorf("Close() = %v, want the acquires that are not undone", given)
		}
		w.clients = nil
		wg.Wait()
	})
}

// Close takes its time in all, however many sorts of calls have no answer: an acquire to undo, an Unlock under way, and one that begins
// while Close waits.
func TestCloseBesideUnlock(t *testing.T) {
	for name, test := range map[string]struct {
		close func(c *lock.Client) error
		most  time.Duration
	}{
		"a second": {(*lock.Client).Close, time.Second},
		"no time": {func(c *lock.Client) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return c.CloseContext(ctx)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				early, late := mustLock(t, c, "early"), mustLock(t, c, "late")
				w.srv.Mute(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.Reentrant("other").TryLock(ctx); err == nil {
					t.Error("TryLock() succeeded without a server")
				}
				start := time.Now()
				var wg sync.WaitGroup
				unlock := func(l *lock.Lease) {
					wantErr(t, "Unlock()", l.Unlock(t.Context()), lock.ErrUncertain)
				}
				wg.Go(func() {
					unlock(early)
					if took := time.Since(start); took != test.most {
						t.Errorf("Unlock() took %v, want %v as Close", took, test.most)
					}
				})
				time.AfterFunc(test.most/2, func() { wg.Go(func() { unlock(late) }) })
				synctest.Wait()
				given, ok := errors.AsType[*lock.CloseError](test.close(c))
				if took := time.Since(start); !ok || given.Acquires != 1 || took != test.most {
					t.Errorf("Close() = %v after %v, want an acquire that is not undone after %v", given, took, test.most)
				}
				w.clients = nil
				wg.Wait()
			})
		})
	}
}

// After Close a hold that is given back leaves the lock to the owner's other hold, whose work may not have stopped.
func TestUnlockAfterCloseSparesTheOuterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, inner)
		if got := w.srv.Do("HGET", "job", owner.String()); got != "1" {
			t.Errorf("hold count on the server %v, want 1", got)
		}
		mustUnlock(t, outer)
		w.free()
	})
}

// After Close the holds of an Owner can be given back at once: an Unlock waits for the answer to another.
func TestUnlocksOfAnOwnerAfterClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer, inner := mustLock(t, c, "job", lock.As(owner)), mustLock(t, c, "job", lock.As(owner))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		w.srv.Latency(10 * time.Millisecond)
		failed := make(chan error, 2)
		for _, l := range []*lock.Lease{outer, inner} {
			go func() { failed <- l.Unlock(t.Context()) }()
		}
		for range 2 {
			if err := <-failed; err != nil {
				t.Errorf("Unlock() = %v", err)
			}
		}
		w.free()
	})
}

// A closed client takes nothing any more, under whatever context.
func TestNothingIsTakenAfterClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		if _, err := c.Semaphore("semaphore").TrySetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		w.srv.ClearLog()
		for _, ctx := range []context.Context{t.Context(), context.Background()} {
			_, err := c.Reentrant("job").Lock(ctx)
			wantErr(t, "Lock", err, lock.ErrClosed)
			_, err = c.Fair("job").TryLock(ctx)
			wantErr(t, "TryLock", err, lock.ErrClosed)
			wantErr(t, "Acquire", c.Semaphore("semaphore").Acquire(ctx, 1), lock.ErrClosed)
			wantErr(t, "Wait", c.CountDownLatch("latch").Wait(ctx), lock.ErrClosed)
		}
		if n := w.srv.Count("EVALSHA"); n != 0 {
			t.Errorf("%d scripts were sent", n)
		}
	})
}

// The error of Close names only what was given up.
func TestCloseErrorText(t *testing.T) {
	for want, err := range map[string]lock.CloseError{
		"lock: closed before the server had confirmed 2 releases":                               {Releases: 2},
		"lock: closed before the server had confirmed 1 undone acquires, of 3 permits":          {Acquires: 1, Permits: 3},
		"lock: closed before the server had confirmed 1 releases, 2 undone acquires, 3 changes": {Releases: 1, Acquires: 2, Changes: 3},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%+v: %q, want %q", err, got, want)
		}
	}
}

// isScriptOf reports whether cmd runs the script of a kind for an operation.
func isScriptOf(kind string, cmd fakeredis.Cmd, operation string) bool {
	s := kinds.All()[kind][operation]
	return len(cmd.Args) > 1 && (cmd.Args[1] == s.Digest() || cmd.Args[1] == s.Source())
}

// setPermits sets a semaphore of six up, whose scripts the server knows.
func (w *world) setPermits(c *lock.Client) {
	w.t.Helper()
	s := c.Semaphore("permits")
	if _, err := s.TrySetPermits(w.t.Context(), 6); err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(s.Acquire(w.t.Context(), 1), s.Release(w.t.Context(), 1)); err != nil {
		w.t.Fatal(err)
	}
	w.sleep(time.Second)
}

// outage has the answer to the next acquire of permits get lost, with the connection and any other for a while.
func (w *world) outage(length time.Duration) {
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if isScriptOf("semaphore", cmd, "acquire") {
			w.srv.Refuse(true)
			return fakeredis.RunThenClose()
		}
		return fakeredis.Run()
	})
	time.AfterFunc(length, func() {
		w.srv.Intercept(nil)
		w.srv.Refuse(false)
	})
}

// Close goes on for its whole second, and CloseContext for as long as it may: what can be given back then is.
func TestCloseRepeats(t *testing.T) {
	for name, s := range map[string]struct {
		outage time.Duration
		close  func(c *lock.Client) error
	}{
		"Close": {300 * time.Millisecond, (*lock.Client).Close},
		"CloseContext": {3 * time.Second, func(c *lock.Client) error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			return c.CloseContext(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.setPermits(c)
				w.outage(s.outage)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if err := c.Semaphore("permits").Acquire(ctx, 3); err == nil {
					t.Fatal("Acquire() succeeded without an answer")
				}
				w.wantKey("permits", "3")
				if err := s.close(c); err != nil {
					t.Error(err)
				}
				w.wantKey("permits", "6")
			})
		})
	}
}

// Close waits for a change that is under way, and counts one that is not answered in time.
func TestCloseDuringAChange(t *testing.T) {
	for name, test := range map[string]struct {
		answer time.Duration
		want   lock.CloseError
		left   string
	}{
		"answered":     {500 * time.Millisecond, lock.CloseError{}, "6"},
		"not answered": {time.Hour, lock.CloseError{Changes: 1, Permits: 2}, "4"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.clients = nil // whose Close may fail
				w.setPermits(c)
				if err := c.Semaphore("permits").Acquire(t.Context(), 2); err != nil {
					t.Fatal(err)
				}
				w.sleep(time.Second)
				w.onKind("semaphore", "add", func(int) fakeredis.Action {
					return fakeredis.Delay(test.answer, fakeredis.Run())
				})
				released := make(chan error)
				go func() { released <- c.Semaphore("permits").Release(t.Context(), 2) }()
				w.sleep(10 * time.Millisecond)
				given, ok := errors.AsType[*lock.CloseError](c.Close())
				if want := test.want != (lock.CloseError{}); ok != want || ok && *given != test.want {
					t.Errorf("Close() = %+v, want %+v", given, test.want)
				}
				if err := <-released; (err == nil) == ok {
					t.Errorf("Release() = %v", err)
				}
				w.wantKey("permits", test.left)
			})
		})
	}
}

// A Close that has less time than one under way ends it.
func TestCloseHastensAnother(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.clients = nil // whose Close must not fail
		lease := mustLock(t, c, "job")
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
		slow := make(chan error, 1)
		go func() { slow <- c.CloseContext(t.Context()) }()
		w.sleep(time.Second)
		start := time.Now()
		err := c.Close()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close() took %v beside a CloseContext without end", took)
		}
		if other := <-slow; !errors.Is(other, lock.ErrUncertain) || other.Error() != err.Error() {
			t.Errorf("Close() = %v, CloseContext() = %v", err, other)
		}
	})
}

// What cannot be given back in time is said, with numbers.
func TestCloseSaysWhatItGaveUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		c := w.client(lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		w.clients = nil // whose Close must not fail
		lease := mustLock(t, c, "job")
		w.setPermits(c)
		w.outage(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Semaphore("permits").Acquire(ctx, 3); err == nil {
			t.Fatal("Acquire() succeeded without an answer")
		}
		var wg sync.WaitGroup
		wg.Go(func() { wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain) })
		wg.Go(func() { wantErr(t, "Release", c.Semaphore("permits").Release(t.Context(), 2), lock.ErrUncertain) })
		wg.Wait()
		start := time.Now()
		err := c.Close()
		took := time.Since(start)
		given, ok := errors.AsType[*lock.CloseError](err)
		want := lock.CloseError{Releases: 1, Acquires: 1, Changes: 1, Permits: 5}
		if !ok || *given != want || !errors.Is(err, lock.ErrUncertain) {
			t.Errorf("Close() = %v, want %+v", err, want)
		}
		if took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("Close took %v, want a second", took)
		}
		if !strings.Contains(log.String(), "releases=1 acquires=1 changes=1 permits=5") {
			t.Errorf("the log says %q", log.String())
		}
		if again := c.Close(); again == nil || again.Error() != err.Error() {
			t.Errorf("a second Close() = %v, want %v", again, err)
		}
	})
}

// A pool that is closed before its client takes along what was to be given back. Close says so.
func TestCloseAfterItsPool(t *testing.T) {
	for name, answers := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.clients = nil // whose Close must not fail
				w.setPermits(c)
				want := lock.CloseError{}
				if !answers {
					w.outage(time.Hour)
					want = lock.CloseError{Acquires: 1, Permits: 3}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if err := c.Semaphore("permits").Acquire(ctx, 3); (err == nil) != answers {
					t.Fatalf("Acquire() = %v", err)
				}
				w.sleep(100 * time.Millisecond)
				if err := w.pools[0].Close(); err != nil {
					t.Error(err)
				}
				given, _ := errors.AsType[*lock.CloseError](c.Close())
				if given == nil {
					given = new(lock.CloseError)
				}
				if *given != want {
					t.Errorf("Close() gave up %+v, want %+v", *given, want)
				}
			})
		})
	}
}

// An acquire that is under way when Close is called is waited for, and taken back.
func TestCloseWaitsForAcquires(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.setPermits(c)
		w.srv.Stall(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for _, ctx := range []context.Context{ctx, context.Background()} {
			wg.Go(func() {
				// One whose answer has come has its permit.
				if err := c.Semaphore("permits").Acquire(ctx, 1); err == nil {
					if err := c.Semaphore("permits").Release(ctx, 1); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				if lease, err := c.Reentrant("job").Lock(ctx); err == nil {
					mustUnlock(t, lease)
				}
			})
		}
		w.sleep(time.Second)
		time.AfterFunc(500*time.Millisecond, func() { w.srv.Stall(false) })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		w.wantKey("permits", "6")
		if w.srv.Do("EXISTS", "job") != int64(0) {
			t.Error("the lock is taken")
		}
	})
}

// An acquire of permits without an answer is asked again, and not undone: a process that dies has lost what it asked for, at
// most.
func TestPermitsAreAskedForAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.setPermits(c)
		lost, undos := 0, 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScriptOf("semaphore", cmd, "undo"):
				undos++
			case isScriptOf("semaphore", cmd, "acquire") && lost < 5:
				if lost++; lost%2 == 0 {
					return fakeredis.Close() // it never came
				}
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		if err := c.Semaphore("permits").Acquire(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		w.wantKey("permits", "3")
		if lost != 5 || undos != 0 {
			t.Errorf("%d answers were lost, %d undos sent; want 5 and none", lost, undos)
		}
		w.srv.Intercept(nil)
		if err := c.Semaphore("permits").Release(t.Context(), 3); err != nil {
			t.Fatal(err)
		}

		// One that ends while nothing is known gives back what it may have taken.
		w.sleep(time.Second)
		w.outage(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		wantErr(t, "Acquire", c.Semaphore("permits").Acquire(ctx, 3), context.DeadlineExceeded)
		w.wantKey("permits", "3")
		w.sleep(6 * time.Second)
		w.wantKey("permits", "6")
	})
}

// The first request of those finds, when it comes at last, what the second one has got, and does not keep the note of that.
func TestLateRequestForPermitsKeepsNoLatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.setPermits(c)
		var args []string
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if args == nil && isScriptOf("semaphore", cmd, "acquire") {
				args = slices.Clone(cmd.Args)
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		if err := c.Semaphore("permits").Acquire(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		w.srv.Intercept(nil)
		if args == nil {
			t.Fatal("no acquire was sent")
		}
		w.srv.Do(args...)
		w.wantKey("permits", "3")
		w.sleep(latchLife)
		if latches := w.srv.Do("KEYS", "redisson_unlock_latch:*").([]any); len(latches) > 0 {
			t.Errorf("latches are left: %v", latches)
		}
	})
}

// Each hold is in the end among those released or those lost.
func TestEachHoldIsCounted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
			before := c.Stats()
			mustUnlock(t, mustLock(t, c, "job", opts...))
			deleted := mustLock(t, c, "job", opts...)
			w.srv.Do("DEL", "job")
			wantErr(t, "Unlock", deleted.Unlock(t.Context()), lock.ErrNotHeld)
			ended := mustLock(t, c, "job", append(opts, lock.For(time.Second))...)
			w.sleep(2 * time.Second)
			wantErr(t, "Unlock", ended.Unlock(t.Context()), lock.ErrNotHeld)
			s := c.Stats()
			if acquired, released, lost := s.Acquired-before.Acquired, s.Released-before.Released, s.Lost-before.Lost; acquired != 3 || released != 1 || lost != 2 {
				t.Errorf("%d acquired, %d released, %d lost; want 3, 1, 2", acquired, released, lost)
			}
		}
	})
}
