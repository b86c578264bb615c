package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
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
