package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/script"
)

// isScript reports whether cmd runs the script for an operation.
func isScript(cmd fakeredis.Cmd, operation string) bool {
	return len(cmd.Args) > 1 && slices.ContainsFunc(scriptsFor("reentrant", operation), func(s *script.Script) bool {
		return cmd.Args[1] == s.Digest() || cmd.Args[1] == s.Source()
	})
}

// scriptsFor are the scripts of a kind for an operation: a release, that of owners with other holds and of those without.
func scriptsFor(kind, operation string) []*script.Script {
	scripts := kinds.All()[kind]
	if single := scripts["single"]; single != nil && operation == "release" {
		return []*script.Script{scripts[operation], single}
	}
	return []*script.Script{scripts[operation]}
}

// onScript has action decide about the n-th request for a script, n from 1.
func (w *world) onScript(operation string, action func(n int) fakeredis.Action) {
	n := 0
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if !isScript(cmd, operation) {
			return fakeredis.Run()
		}
		n++
		return action(n)
	})
}

func TestUnlockUnderACancelledContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		ctx, cancel := context.WithCancel(t.Context())
		work, stop := lease.Context(ctx)
		defer stop()
		cancel()
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock() = %v", err)
		}
		wantErr(t, "cause of the lease's context", context.Cause(work), context.Canceled)
		w.free()
	})
}

// Releases of an Owner's holds that reach the server only when their latches may have expired end a hold each.
func TestLateReleasesOfAnOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		opts := []lock.Option{lock.As(c.NewOwner()), lock.For(time.Hour)}
		outer, middle, inner := mustLock(t, c, "job", opts...), mustLock(t, c, "job", opts...), mustLock(t, c, "job", opts...)
		late := func(l *lock.Lease) {
			t.Helper()
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
			time.AfterFunc(30*time.Second, func() { w.srv.Refuse(false) })
			wantErr(t, "Unlock()", l.Unlock(t.Context()), lock.ErrUncertain)
			w.sleep(30 * time.Second)
		}
		late(inner)
		w.wantHolds("job", "2", outer)
		late(middle)
		w.wantHolds("job", "1", outer)
		late(outer)
		if n := w.srv.Do("EXISTS", "job"); n != int64(0) {
			t.Errorf("the server has %q", w.srv.Dump())
		}
		w.free()
	})
}

func TestUnlockEndsTheContextsFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		var before error
		w.onScript("release", func(int) fakeredis.Action {
			before = context.Cause(ctx)
			return fakeredis.Run()
		})
		mustUnlock(t, lease)
		wantErr(t, "cause when the release arrived", before, lock.ErrReleased)
		wantErr(t, "Err after Unlock", lease.Err(), lock.ErrReleased)
		late, stop := lease.Context(t.Context())
		defer stop()
		wantErr(t, "cause of a context made after Unlock", context.Cause(late), lock.ErrReleased)
		select {
		case <-lease.Lost():
			t.Error("Lost is closed although the lock was released in time")
		default:
		}
		w.free()
	})
}

// The reply to the release is lost with its connection: the repeat learns that it was done.
func TestUnlockAfterALostReply(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		runs := 0
		w.onScript("release", func(n int) fakeredis.Action {
			if runs = n; n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		for range 2 {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock() = %v, want nil: it was released", err)
			}
		}
		if runs != 2 {
			t.Errorf("%d releases were sent, want 2", runs)
		}
		w.free()
	})
}

// Of two holds one is given back although the release arrives twice.
func TestUnlockOfOneHoldIsNotRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner))
		w.onScript("release", func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		mustUnlock(t, inner)
		if n := w.holds(t, c, "job"); n != 1 {
			t.Errorf("%d holds, want 1", n)
		}
		mustUnlock(t, outer)
		time.Sleep(latchLife)
		w.free()
	})
}

// No answer in time: Unlock says so, and the background sees to it.
func TestUnlockUncertain(t *testing.T) {
	for _, owned := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			var opts []lock.Option
			if owned {
				opts = append(opts, lock.As(c.NewOwner()))
			}
			lease := mustLock(t, c, "job", opts...)
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
			start := time.Now()
			wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
			if took := time.Since(start); took > 11*time.Second {
				t.Errorf("Unlock took %v, want its own bound", took)
			}
			wantErr(t, "Err", lease.Err(), lock.ErrReleased)
			if w.srv.Do("EXISTS", "job") != int64(1) {
				t.Fatal("the lock is free without a server")
			}
			w.srv.Refuse(false)
			time.Sleep(5 * time.Second)
			if w.srv.Do("EXISTS", "job") != int64(0) {
				t.Error("the lock is not released 5 s after the server came back")
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("second Unlock() = %v, want what the background learnt", err)
			}
			if owned {
				mustUnlock(t, mustLock(t, c, "job", opts...))
			}
			w.free()
		})
	}
}

func TestUnlockOfAForcedLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, operator := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		forced, err := operator.Reentrant("job").ForceUnlock(t.Context())
		if err != nil || !forced {
			t.Fatalf("ForceUnlock() = %v, %v", forced, err)
		}
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		wantErr(t, "Unlock again", lease.Unlock(t.Context()), lock.ErrNotHeld)
		forced, err = operator.Reentrant("job").ForceUnlock(t.Context())
		if err != nil || forced {
			t.Errorf("ForceUnlock() of a free lock = %v, %v", forced, err)
		}
		w.free()
	})
}

func TestForceIsToldAtTheNextRenewal(t *testing.T) {
	for _, test := range []struct {
		name   string
		then   func(*world)
		reason lock.Reason
	}{
		{"gone", func(*world) {}, lock.Forced},
		{"taken", func(w *world) { w.srv.Do("HSET", "job", "somebody:7", "1") }, lock.Taken},
		{"another type", func(w *world) { w.srv.Do("SET", "job", "x") }, lock.Taken},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, operator := w.client(lock.Config{}), w.client(lock.Config{})
				lease := mustLock(t, c, "job")
				bystander := mustLock(t, c, "other")
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				start := time.Now()
				time.Sleep(time.Second)
				if _, err := operator.Reentrant("job").ForceUnlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				test.then(w)
				<-ctx.Done()
				if took := time.Since(start); took != 10*time.Second {
					t.Errorf("told after %v, want at the renewal after 10s", took)
				}
				lostBecause(t, context.Cause(ctx), test.reason)
				wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
				time.Sleep(time.Minute)
				if err := bystander.Err(); err != nil {
					t.Errorf("a lock renewed by the same script: Err() = %v", err)
				}
				mustUnlock(t, bystander)
				w.srv.Do("DEL", "job")
				w.free()
			})
		})
	}
}

func TestForceIsToldAtOnceInTheSameProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lostBecause(t, lease.Err(), lock.Forced)
	})
}

func TestCheck(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(time.Hour))
		if err := lease.Check(t.Context()); err != nil {
			t.Fatalf("Check() = %v", err)
		}
		w.srv.Do("DEL", "job")
		if err := lease.Err(); err != nil {
			t.Fatalf("Err() = %v, want nil: nobody has asked the server", err)
		}
		lostBecause(t, lease.Check(t.Context()), lock.Forced)
		lostBecause(t, lease.Err(), lock.Forced)

		lease = mustLock(t, c, "job", lock.For(time.Hour))
		w.srv.Do("DEL", "job")
		w.srv.Do("HSET", "job", "somebody:7", "1")
		lostBecause(t, lease.Check(t.Context()), lock.Taken)

		lease = mustLock(t, c, "other", lock.For(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "Check under a cancelled context", lease.Check(ctx), context.Canceled)
		if err := lease.Err(); err != nil {
			t.Errorf("Err() after that = %v", err)
		}
		mustUnlock(t, lease)
	})
}

func TestDo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job := c.Reentrant("job")
		failure := errors.New("the work went wrong")

		if err := job.Do(t.Context(), func(ctx context.Context) error { return ctx.Err() }); err != nil {
			t.Errorf("Do() = %v", err)
		}
		err := job.Do(t.Context(), func(context.Context) error { return failure })
		wantErr(t, "Do with an error", err, failure)
		err = job.Do(t.Context(), func(ctx context.Context) error {
			w.srv.Do("DEL", "job")
			<-ctx.Done()
			return nil
		})
		wantErr(t, "Do whose lock is lost although fn succeeds", err, lock.ErrLost)
		err = job.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(2 * time.Second)
			return failure
		}, lock.For(time.Second))
		wantErr(t, "Do that outlives its lease", err, lock.ErrLost)
		wantErr(t, "Do that outlives its lease", err, failure)

		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of fn did not come through")
				}
			}()
			job.Do(t.Context(), func(context.Context) error { panic("fn") })
		}()
		w.free()
	})
}

// An acquire whose context ends, or whose reply is lost, at any step leaves nothing behind.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	for step := 1; ; step++ {
		commands := 0
		inVirtualTime(t, func(t *testing.T, w *world) {
			holder, c := w.client(lock.Config{}), w.client(lock.Config{})
			w.srv.Latency(10 * time.Millisecond)
			lease := mustLock(t, holder, "job")
			w.srv.ClearLog()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action {
				if commands++; commands == step {
					cancel()
				}
				return fakeredis.Run()
			})
			result := make(chan *lock.Lease)
			go func() {
				got, err := c.Reentrant("job").Lock(ctx)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("step %d: Lock() = %v", step, err)
				}
				result <- got
			}()
			time.Sleep(5 * time.Second)
			w.srv.Intercept(nil)
			mustUnlock(t, lease)
			if got := <-result; got != nil {
				mustUnlock(t, got)
			}
			time.Sleep(10 * time.Second)
			w.free()
		})
		if commands < step {
			if step < 5 {
				t.Errorf("only %d steps", step)
			}
			return
		}
	}
}

func TestUnansweredAcquireIsUndone(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{
		"reply lost, connection lives": fakeredis.Drop(),
		"reply lost with connection":   fakeredis.RunThenClose(),
		"request late":                 fakeredis.Delay(2*time.Second, fakeredis.Run()),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.onScript("acquire", func(n int) fakeredis.Action {
					if n <= 2 { // EVALSHA and, were it unknown, EVAL
						return action
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				lease, err := c.Reentrant("job").TryLock(ctx)
				if err == nil {
					mustUnlock(t, lease)
				}
				time.Sleep(25 * time.Second)
				w.free()
			})
		})
	}
}

// The undo of a further hold takes back that one and no other.
func TestUnansweredReentryIsUndone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		w.onScript("acquire", func(n int) fakeredis.Action { return fakeredis.RunThenClose() })
		_, err := c.Reentrant("job").TryLock(t.Context(), lock.As(owner))
		if err == nil {
			t.Fatal("TryLock() succeeded without a reply")
		}
		w.srv.Intercept(nil)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n := w.holds(t, c, "job"); n != 1 {
			t.Errorf("%d holds, want the outer one alone", n)
		}
		if err := outer.Err(); err != nil {
			t.Errorf("outer Err() = %v", err)
		}
		mustUnlock(t, outer)
		time.Sleep(latchLife)
		w.free()
	})
}

// The undo of an acquire without an answer wakes the waiter who sent the acquire: not more often than waiters look without messages.
func TestWaiterOfUnansweredAcquires(t *testing.T) {
	for _, own := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.srv.Latency(time.Millisecond)
			c := w.client(lock.Config{})
			var opts []lock.Option
			if own {
				opts = append(opts, lock.As(c.NewOwner()))
			}
			var asked atomic.Int64
			w.onScript("acquire", func(int) fakeredis.Action {
				asked.Add(1)
				return fakeredis.RunThenClose()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, err := c.Reentrant("job").Lock(ctx, opts...); err == nil {
				t.Error("Lock() succeeded without a reply")
			}
			if n := asked.Load(); n > 110 {
				t.Errorf("%d acquires in 5 s, want no more than one in 50 ms", n)
			}
			w.srv.Intercept(nil)
			time.Sleep(latchLife)
			w.free()
		})
	}
}

// The script that releases a single hold is not told how long its latch lives.
func TestLatchesLiveAlike(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		mustUnlock(t, mustLock(t, c, "job"))
		mustUnlock(t, mustLock(t, c, "job", lock.As(c.NewOwner())))
		latches := w.srv.Do("KEYS", "redisson_unlock_latch:*").([]any)
		for _, latch := range latches {
			if left := w.ttl(latch.(string)); left != latchLife {
				t.Errorf("%s lives for %v, want %v", latch, left, latchLife)
			}
		}
		if len(latches) != 2 {
			t.Errorf("latches: %v, want 2", latches)
		}
	})
}

// A late release has no answer until the lease is over. It leaves the same latch whether or not the lock was lost before.
func TestUnlockAfterAnUnansweredLateRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease, err := c.Plain("job").Lock(t.Context(), lock.For(15*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		w.srv.Do("DEL", "job")
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScriptOf("plain", cmd, "release"):
				return fakeredis.Close()
			case isScriptOf("plain", cmd, "undo"):
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(17 * time.Second)
		w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Run() })
		wantErr(t, "Unlock() after the repeats", lease.Unlock(t.Context()), lock.ErrUncertain)
	})
}

// After the connection has been closed, nobody knows whether the server has the lock still: Unlock promises nothing else than its errors.
func TestUnlockBehindAClosedConnection(t *testing.T) {
	for kind, of := range releases {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				pool := w.pool(conn.Config{})
				c, err := lock.New(pool, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				w.machine.Run(c)
				lease := mustHave(t, of(c))
				if err := pool.Close(); err != nil {
					t.Fatal(err)
				}
				wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
				wantErr(t, "Unlock() again", lease.Unlock(t.Context()), conn.ErrClosed)
				if err := c.Close(); err != nil {
					t.Errorf("Close() = %v", err)
				}
			})
		})
	}
}
