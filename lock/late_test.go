package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// A grant that took longer than the lease is none: Lock asks again, and TryLock says so.
func TestGrantThatComesTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		slow := func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.Run().Late(2 * time.Second)
			}
			return fakeredis.Run()
		}
		w.onScript("acquire", slow)
		lease := mustLock(t, c, "job", lock.For(time.Second))
		if err := lease.Err(); err != nil {
			t.Errorf("Lock() returned a lease that was over: %v", err)
		}
		mustUnlock(t, lease)
		for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
			w.onScript("acquire", slow)
			_, err := c.Reentrant("job").TryLock(t.Context(), append(opts, lock.For(time.Second))...)
			lostBecause(t, err, lock.Expired)
			if errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("TryLock() = %v, as if somebody had the lock", err)
			}
		}
		w.free()
	})
}

// A server that grants too late every time has been asked, and the lock was not to be had: a wait that ends with its
// context says that, and one that could go on is given up after a lease of the client's.
func TestGrantsThatAllComeTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Run().Late(500 * time.Millisecond) })
		for after := 600 * time.Millisecond; after < 3*time.Second; after += 150 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, err := c.Reentrant("job").Lock(ctx, lock.For(100*time.Millisecond))
			cancel()
			for _, want := range []error{lock.ErrNotAcquired, context.DeadlineExceeded} {
				wantErr(t, "Lock that ends after "+after.String(), err, want)
			}
			if errors.Is(err, lock.ErrLost) {
				t.Errorf("Lock that ends after %v = %v, but nothing had been acquired", after, err)
			}
			w.sleep(time.Minute)
		}
		start := time.Now()
		_, err := c.Reentrant("job").Lock(t.Context(), lock.For(100*time.Millisecond))
		lostBecause(t, err, lock.Expired)
		if took := time.Since(start); took < 30*time.Second || took > 33*time.Second {
			t.Errorf("Lock gave up after %v, want about 30s", took)
		}
		w.free()
	})
}
