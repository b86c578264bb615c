package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// Unlock works after Close, and of a lease lost by AtMost, also beside another hold of the Owner.
func TestUnlockOfAGroupsHoldLostHere(t *testing.T) {
	for name, of := range map[string]func(c *lock.Client) goldenLock{
		"reentrant":   func(c *lock.Client) goldenLock { return c.Reentrant("job") },
		"fastermulti": func(c *lock.Client) goldenLock { return c.FasterMulti("job", "a", "b") },
	} {
		t.Run(name+" Close", func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer, inner := mustHave(t, of(c), owner), mustHave(t, of(c), owner)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if err := inner.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock() = %v", err)
				}
				if err := outer.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock() of the outer = %v", err)
				}
			})
		})
		t.Run(name+" AtMost", func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer, inner := mustHave(t, of(c), owner), mustHave(t, of(c), owner, lock.AtMost(2*time.Second))
				w.sleep(3 * time.Second)
				if err := inner.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock() = %v", err)
				}
				mustUnlock(t, outer)
			})
		})
	}
}

// A change that may have been made is uncertain, also if its repeat is refused: "a further Release" would add the permits twice.
func TestChangeRefusedBehindARequestWithoutAnAnswer(t *testing.T) {
	for _, refusal := range []string{"NOPERM no right to do so", "WRONGTYPE no number"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			w.setPermits(c)
			n := 0
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if !isScriptOf("semaphore", cmd, "add") {
					return fakeredis.Run()
				}
				if n++; n == 1 {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Reply("-" + refusal + "\r\n")
			})
			err := c.Semaphore("permits").Release(t.Context(), 1)
			wantErr(t, "Release()", err, lock.ErrUncertain)
			w.srv.Intercept(nil)
			w.sleep(time.Minute)
		})
	}
}

// The first request of a change is held up, its repeat is refused halfway: the caller is told that it failed. The first request must not
// change anything afterwards, or the error must say that nobody knows.
func TestHeldUpChangeBehindARefusal(t *testing.T) {
	for name, test := range map[string]struct {
		right, key string
		change     func(ctx context.Context, c *lock.Client) error
	}{
		"Release":      {"incrby", "sem", func(ctx context.Context, c *lock.Client) error { return c.Semaphore("sem").Release(ctx, 2) }},
		"AddPermits":   {"incrby", "sem", func(ctx context.Context, c *lock.Client) error { return c.Semaphore("sem").AddPermits(ctx, -2) }},
		"DrainPermits": {"decrby", "sem", drainFive},
		"permits Add": {"incrby", "permits", func(ctx context.Context, c *lock.Client) error {
			return c.PermitSemaphore("permits").AddPermits(ctx, 2)
		}},
		"CountDown": {"decr", "latch", func(ctx context.Context, c *lock.Client) error { return c.CountDownLatch("latch").CountDown(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				for _, key := range []string{"sem", "permits", "latch"} {
					w.srv.Do("SET", key, "5")
				}
				w.srv.Deny(test.right)
				var late []string
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if late != nil || !strings.HasPrefix(cmd.Name, "EVAL") {
						return fakeredis.Run()
					}
					late = slices.Clone(cmd.Args)
					return fakeredis.Close()
				})
				err := test.change(t.Context(), c)
				w.srv.Deny()
				w.sleep(time.Second)
				w.srv.Intercept(nil)
				w.srv.Do(late...)
				got := w.srv.Do("GET", test.key)
				if !errors.Is(err, lock.ErrUncertain) && err != nil && got != "5" {
					t.Errorf("%v of 5 after the error %v", got, err)
				}
			})
		})
	}
}

// The context of a Downgrade that waits for a renewal under way ends before anything is sent: the write lease goes on.
func TestDowngradeGivenUpBehindARenewal(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease, err := c.ReadWrite("job").Write().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		w.onScriptOf("write", "renew", func(int) fakeredis.Action { return fakeredis.Wait(answer, fakeredis.Run()) })
		w.sleep(10*time.Second + 100*time.Millisecond) // the renewal is under way
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = lease.Downgrade(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrUncertain) {
			t.Errorf("Downgrade() = %v, want the end of the context", err)
		}
		close(answer)
		w.sleep(time.Minute)
		w.wantHolds("job", "1", lease)
		read, err := lease.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, read)
		w.free()
	})
}

// The lease ends during an Extend or a Check without an answer. Both tell the end, by which their callers know that another call is in vain.
func TestExtendAndCheckTellTheEnd(t *testing.T) {
	for what, test := range map[string]struct {
		end  func(w *world, c *lock.Client, l *lock.Lease)
		want error
	}{
		"expired":  {func(w *world, _ *lock.Client, _ *lock.Lease) { w.sleep(2 * time.Second) }, lock.ErrLost},
		"closed":   {func(_ *world, c *lock.Client, _ *lock.Lease) { _ = c.Close() }, lock.ErrLost},
		"released": {func(_ *world, _ *lock.Client, l *lock.Lease) { _ = l.Unlock(context.Background()) }, lock.ErrReleased},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				lease := mustLock(t, c, "job", lock.For(2*time.Second))
				w.onScript("renew", func(int) fakeredis.Action { return fakeredis.Delay(3*time.Second, fakeredis.Close()) })
				extended, checked := make(chan error, 1), make(chan error, 1)
				go func() { extended <- lease.Extend(t.Context(), time.Minute) }()
				go func() { checked <- lease.Check(t.Context()) }()
				w.sleep(time.Millisecond)
				test.end(w, c, lease)
				wantErr(t, "Check", <-checked, test.want)
				wantErr(t, "Extend", <-extended, test.want)
				_ = lease.Unlock(t.Context())
				w.sleep(time.Minute)
			})
		})
	}
}

// AtMost counts from the grant of the write lease, however long the Downgrade takes.
func TestAtMostOfASlowDowngrade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		begin := time.Now()
		write := mustHave(t, w.client(lock.Config{}).ReadWrite("job").Write(), lock.AtMost(10*time.Second))
		w.onScriptOf("write", "downgrade", func(int) fakeredis.Action { return fakeredis.Run().Late(2 * time.Second) })
		read := mustDowngrade(t, write)
		<-read.Lost()
		if held := time.Since(begin); held > 10*time.Second+time.Millisecond {
			t.Errorf("held for %v, want 10 s at most", held)
		}
		lostBecause(t, read.Err(), lock.HeldTooLong)
		w.sleep(time.Minute)
		w.free()
	})
}
