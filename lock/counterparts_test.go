package lock_test

import (
	"context"
	"fmt"
	"math"
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

// What Redisson's tests of semaphores and latches show and no other test of ours does. testdata/redisson-tests has all of them.

// Who wants two permits does not keep another client from the one that there is.
func TestSemaphorePassesBetweenClients(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		first, second := w.client(lock.Config{}).Semaphore("sem"), w.client(lock.Config{}).Semaphore("sem")
		wantOK(t, "AddPermits", first.AddPermits(t.Context(), 1))
		done := make(chan error, 1)
		go func() { done <- first.Acquire(t.Context(), 2) }()
		w.sleep(time.Second)
		wantOK(t, "Acquire", second.Acquire(t.Context(), 1))
		w.sleep(time.Second)
		wantOK(t, "Release", second.Release(t.Context(), 1))
		w.sleep(time.Second)
		if len(done) != 0 {
			t.Fatalf("Acquire(2) = %v with one permit", <-done)
		}
		added := time.Now()
		wantOK(t, "AddPermits", second.AddPermits(t.Context(), 1))
		wantOK(t, "Acquire", <-done)
		if took := time.Since(added); took > 10*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		w.settled("sem")
	})
}

func TestSemaphoreWaitsForMany(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		s := c.Semaphore("sem")
		for range 5 {
			wantOK(t, "Release", s.Release(t.Context(), 1)) // of what nobody has set up
		}
		wantOK(t, "Acquire", s.Acquire(t.Context(), 3))
		wantErr(t, "TryAcquire", s.TryAcquire(t.Context(), 4), lock.ErrNotAcquired)
		var releases sync.WaitGroup
		releases.Go(func() {
			for range 2 {
				w.sleep(500 * time.Millisecond)
				if err := s.Release(t.Context(), 1); err != nil {
					t.Errorf("Release() = %v", err)
				}
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		wantOK(t, "Acquire", s.Acquire(ctx, 4))
		if took := time.Since(start); took < 900*time.Millisecond || took > 1200*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		releases.Wait()
		wantAvailable(t, s, 0)
		w.settled("sem")
	})
}

// As many permits as Redisson can count, taken one by one or all at once.
func TestSemaphoreOfTheMost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(100 * time.Microsecond)
		setUp(t, w.client(lock.Config{}), math.MaxInt32)
		var wg sync.WaitGroup
		for i := range 4 {
			s := w.client(lock.Config{}).Semaphore("sem")
			wg.Go(func() {
				for round := range 10 {
					n := 1
					if (round+i)%2 == 0 {
						n = math.MaxInt32
					}
					if err := s.Acquire(t.Context(), n); err != nil {
						t.Errorf("Acquire(%d) = %v", n, err)
					}
					w.sleep(time.Millisecond)
					if err := s.Release(t.Context(), n); err != nil {
						t.Errorf("Release(%d) = %v", n, err)
					}
				}
			})
		}
		wg.Wait()
		w.wantKey("sem", "2147483647")
		w.settled("sem")
	})
}

// Permits named together are given back together, or none of them.
func TestPermitsReleaseAllOrNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, by := permitsOf(t, w.client(lock.Config{}), 10), w.client(lock.Config{}).PermitSemaphore("pex")
		short, endless := take(t, s, 2, lock.For(time.Second)), take(t, s, 8, lock.Forever())
		timed, ids := short.PermitIDs(), endless.PermitIDs()
		w.sleep(2 * time.Second)
		wantPermits(t, s, 10, 2, 8)
		wantErr(t, "Release of what has ended", by.Release(t.Context(), timed...), lock.ErrNotHeld)
		wantErr(t, "Release of some that have ended", by.Release(t.Context(), append(ids[:3:3], timed...)...), lock.ErrNotHeld)
		wantErr(t, "Release of some unknown", by.Release(t.Context(), append(ids[:3:3], "1234")...), lock.ErrNotHeld)
		wantPermits(t, s, 10, 2, 8)
		wantOK(t, "Release", by.Release(t.Context(), ids[:3]...))
		wantPermits(t, s, 10, 5, 5)
		wantErr(t, "Release of some that are released", by.Release(t.Context(), ids...), lock.ErrNotHeld)
		wantPermits(t, s, 10, 5, 5)
		wantOK(t, "Release", by.Release(t.Context(), ids[3:]...))
		wantPermits(t, s, 10, 10, 0)
		next := take(t, s, 1, lock.For(100*time.Millisecond))
		wantPermits(t, s, 10, 9, 1)
		w.sleep(250 * time.Millisecond)
		wantPermits(t, s, 10, 10, 0)
		wantErr(t, "Unlock", next.Unlock(t.Context()), lock.ErrNotHeld)
		wantErr(t, "Unlock", endless.Unlock(t.Context()), lock.ErrNotHeld)
		w.settled("pex")
	})
}

func TestLatchWaitEndsOnTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for down, want := range map[time.Duration]error{500 * time.Millisecond: nil, time.Second: context.DeadlineExceeded} {
			l := countFrom(t, c, 1)
			start := time.Now()
			timer := time.AfterFunc(down, func() {
				if err := l.CountDown(t.Context()); err != nil {
					t.Errorf("CountDown() = %v", err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 550*time.Millisecond)
			err := l.Wait(ctx)
			cancel()
			if took := time.Since(start); took != min(down, 550*time.Millisecond) {
				t.Errorf("Wait ended after %v", took)
			}
			if want == nil {
				wantOK(t, "Wait", err)
			} else {
				wantErr(t, "Wait", err, want)
			}
			w.sleep(time.Second)
			timer.Stop()
		}
		w.settled()
	})
}
