package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// What Redisson's tests of RLock show and no other test of ours does. testdata/redisson-tests has all of them.

func (w *world) info(t *testing.T, c *lock.Client, name string) lock.Info {
	t.Helper()
	info, err := c.Reentrant(name).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestRemainingLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, name := w.client(lock.Config{}), "a:b:c"
		expect := func(when string, want time.Duration) {
			t.Helper()
			if got := w.info(t, c, name); got.Remaining != want || got.Locked != (want > 0) {
				t.Errorf("%s: %+v, want %v left", when, got, want)
			}
		}
		expect("free", 0)
		lease := mustLock(t, c, name, lock.For(time.Hour))
		expect("for an hour", time.Hour)
		w.sleep(time.Minute)
		expect("a minute later", 59*time.Minute)
		mustUnlock(t, lease)
		expect("unlocked", 0)
		lease = mustLock(t, c, name)
		expect("with a watchdog", 30*time.Second)
		mustUnlock(t, lease)

		owner := c.NewOwner()
		var holds []*lock.Lease
		for range 3 {
			holds = append(holds, mustLock(t, c, name, lock.As(owner), lock.For(10*time.Second)))
		}
		mustUnlock(t, holds[2])
		mustUnlock(t, holds[1])
		expect("one of three holds", 10*time.Second)
		mustUnlock(t, holds[0])
		w.free()
	})
}

func TestHoldsOfEachOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner, other := c.NewOwner(), c.NewOwner()
		expect := func(want int64) {
			t.Helper()
			info, counts := w.info(t, w.clients[0], "job"), map[string]int64{}
			for _, h := range info.Holders {
				counts[h.Owner] = h.Holds
			}
			if counts[owner.String()] != want || counts[other.String()] != 0 || info.Locked != (want > 0) {
				t.Errorf("%+v, want %d holds of the owner and none of the other", info, want)
			}
		}
		expect(0)
		lease := mustLock(t, c, "job", lock.As(owner))
		expect(1)
		mustUnlock(t, lease)
		expect(0)
		first, second := mustLock(t, c, "job", lock.As(owner)), mustLock(t, c, "job", lock.As(owner))
		expect(2)
		_, err := c.Reentrant("job").TryLock(t.Context(), lock.As(other))
		wantErr(t, "TryLock() of the other owner", err, lock.ErrNotAcquired)
		mustUnlock(t, second)
		expect(1)
		mustUnlock(t, first)
		expect(0)
		w.free()
	})
}

// A wait ends when its context does, to the millisecond, whatever the holder's lease.
func TestWaitEndsOnTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, holder, "job")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock()", err, lock.ErrNotAcquired)
		wantErr(t, "Lock()", err, context.DeadlineExceeded)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Lock() took %v, want 3s", took)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// Of several who wait in one process, only the one whose context ends stops.
func TestWaitsThatShareAClientEndAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, holder, "job", lock.For(10*time.Minute))
		leaves, leave := context.WithCancel(t.Context())
		done := make(chan error, 3)
		for _, ctx := range []context.Context{t.Context(), leaves, t.Context()} {
			go func() {
				done <- c.Reentrant("job").Do(ctx, func(context.Context) error { return nil })
			}()
			synctest.Wait()
		}
		w.sleep(time.Minute)
		leave()
		wantErr(t, "the wait that was cancelled", <-done, context.Canceled)
		w.sleep(time.Minute)
		if len(done) != 0 {
			t.Errorf("another wait has ended: %v", <-done)
		}
		mustUnlock(t, lease)
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("a wait that went on: %v", err)
			}
		}
		w.free()
	})
}

// The watchdog knows of every lock that is held, however fast others come and go.
func TestRenewalsOfManyLocks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				name := fmt.Sprint("job-", g)
				for n := range 100 {
					lease, err := c.Reentrant(name).TryLock(t.Context())
					if err != nil {
						t.Errorf("TryLock() = %v", err)
						return
					}
					if n%10 == g%10 {
						w.sleep(31 * time.Second) // past the lease, if nothing renews it
					}
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock() = %v", err)
					}
				}
			})
		}
		wg.Wait()
		w.free()
	})
}

// A counter that is no counter to many at once comes out right under a lock: read, wait, write.
func TestCountingUnderALock(t *testing.T) {
	for _, test := range []struct{ clients, callers, rounds int }{{1, 15, 1}, {16, 1, 100}, {100, 1, 1}} {
		t.Run(fmt.Sprint(test.clients, test.callers, test.rounds), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				var wg sync.WaitGroup
				counter := 0
				for range test.clients {
					c := w.client(lock.Config{})
					for range test.callers {
						wg.Go(func() {
							for range test.rounds {
								err := c.Reentrant("job").Do(t.Context(), func(context.Context) error {
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
				if want := test.clients * test.callers * test.rounds; counter != want {
					t.Errorf("the counter is %d, want %d", counter, want)
				}
				w.free()
			})
		})
	}
}

// A server that comes back without its data has nobody's lock: holders are told, and what is taken then is renewed as ever.
func TestRenewalAfterDataLoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: time.Second})
		for range 3 {
			lease := mustLock(t, c, "job")
			w.sleep(2 * time.Second)
			mustUnlock(t, lease)
			lease = mustLock(t, c, "job")
			w.srv.Do("FLUSHALL")
			w.sleep(2 * time.Second)
			wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
			wantErr(t, "Err()", lease.Err(), lock.ErrLost)
		}
		w.free()
	})
}
