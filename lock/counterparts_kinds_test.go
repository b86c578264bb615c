package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// counts has callers of several clients count under a lock, each so often.
func counts(t *testing.T, clients, callers, rounds int, do func(c *lock.Client) func(context.Context, func(context.Context) error, ...lock.Option) error) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		counter := 0
		for range clients {
			run := do(w.client(lock.Config{}))
			for range callers {
				wg.Go(func() {
					for range rounds {
						err := run(t.Context(), func(context.Context) error {
							n := counter
							w.sleep(10 * time.Millisecond)
							counter = n + 1
							return nil
						})
						if err != nil {
							t.Errorf("Do() = %v", err)
						}
					}
				})
			}
		}
		wg.Wait()
		if want := clients * callers * rounds; counter != want {
			t.Errorf("the counter is %d, want %d", counter, want)
		}
		w.free()
	})
}

func TestCountingUnderASpinLock(t *testing.T) {
	for _, test := range []struct{ clients, callers, rounds int }{{1, 15, 1}, {8, 1, 20}, {30, 1, 1}} {
		t.Run(fmt.Sprint(test.clients, test.callers, test.rounds), func(t *testing.T) {
			counts(t, test.clients, test.callers, test.rounds, func(c *lock.Client) func(context.Context, func(context.Context) error, ...lock.Option) error {
				return c.Spin("job", lock.Backoff{}).Do
			})
		})
	}
}

// A name with a hash tag of its own, under which ten callers count ten times each.
func TestCountingUnderAWriteLockWithATag(t *testing.T) {
	counts(t, 2, 5, 10, func(c *lock.Client) func(context.Context, func(context.Context) error, ...lock.Option) error {
		return c.ReadWrite("{test}:abc:key").Write().Do
	})
}

// Neither half of a lock lets others in until both holds of its owner are given back.
func TestWriteReadReentrancy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner))
		read := mustRead(t, c, lock.As(owner))
		mustUnlock(t, write)
		isTaken(t, other.ReadWrite("job").Write())
		isTaken(t, c.ReadWrite("job").Write())
		mustUnlock(t, read)
		lease, err := other.ReadWrite("job").Write().TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock() after both = %v", err)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// After the server has lost its data the holder is told, and the next holds are renewed as the first were, in both halves.
func TestReadWriteRenewalAfterDataLoss(t *testing.T) {
	for name, acquire := range map[string]func(*testing.T, *lock.Client, ...lock.Option) *lock.Lease{"read": mustRead, "write": mustWrite} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{Lease: time.Second}), w.client(lock.Config{Lease: time.Second})
				for range 3 {
					lease := acquire(t, c)
					w.sleep(5 * time.Second)
					isTaken(t, other.ReadWrite("job").Write())
					if err := lease.Check(t.Context()); err != nil {
						t.Errorf("Check() after five leases = %v", err)
					}
					w.srv.Do("FLUSHALL")
					w.sleep(2 * time.Second)
					wantErr(t, "Err()", lease.Err(), lock.ErrLost)
					wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
				}
				w.free()
			})
		})
	}
}
