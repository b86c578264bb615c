package lock_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

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
