package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// permit is a semaphore of a single permit, used as a lock.
type permit struct{ *lock.PermitSemaphore }

func onePermit(c *lock.Client, name string) Locker {
	return permit{c.PermitSemaphore(name)}
}

// setUp sets the semaphore up when the lock is first asked for.
func (p permit) setUp(ctx context.Context) error {
	_, err := p.TrySetPermits(context.WithoutCancel(ctx), 1)
	return err
}

func (p permit) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	if err := p.setUp(ctx); err != nil {
		return nil, err
	}
	return p.Acquire(ctx, opts...)
}

func (p permit) TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	if err := p.setUp(ctx); err != nil {
		return nil, err
	}
	return p.TryAcquire(ctx, opts...)
}

func (p permit) Do(ctx context.Context, fn func(context.Context) error, opts ...lock.Option) error {
	if err := p.setUp(ctx); err != nil {
		return err
	}
	return p.PermitSemaphore.Do(ctx, fn, opts...)
}

func (p permit) ForceUnlock(ctx context.Context) (bool, error) { return p.ReleaseAll(ctx) }

// synchronizers are the properties of kinds that are not locks.
var synchronizers = []struct {
	kind, name string
	test       func(t *testing.T, s *stage)
}{
	{"Semaphore", "Conserves", semaphoreConserves},
	{"Semaphore", "CancelledWait", semaphoreCancelled},
	{"Semaphore", "WakesAnotherClient", semaphoreWakes},
	{"Semaphore", "Setup", semaphoreSetup},
	{"PermitSemaphore", "Conserves", permitsConserve},
	{"PermitSemaphore", "Ids", permitsByID},
	{"CountDownLatch", "ReleasesAll", latchReleases},
	{"CountDownLatch", "Counts", latchCounts},
	{"CountDownLatch", "CancelledWait", latchCancelled},
}

// bounded returns a context that ends before the test's patience.
func (s *stage) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), patience)
}

func (s *stage) ok(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s = %v", what, err)
	}
}

// Several clients take 1 to 3 of 4 permits: never more than 4 are taken, and in the end all are free.
func semaphoreConserves(t *testing.T, s *stage) {
	const limit, clients, callers, rounds = 4, 3, 3, 8
	_, err := s.client(lock.Config{}).Semaphore("job").TrySetPermits(t.Context(), limit)
	s.ok("TrySetPermits()", err)
	ctx, cancel := s.bounded()
	defer cancel()
	var taken atomic.Int32
	var wg sync.WaitGroup
	for range clients {
		sem := s.client(lock.Config{}).Semaphore("job")
		for caller := range callers {
			wg.Go(func() {
				n := caller + 1
				for range rounds {
					if err := sem.Acquire(ctx, n); err != nil {
						t.Errorf("Acquire(%d) = %v", n, err)
						return
					}
					if now := taken.Add(int32(n)); now > limit {
						t.Errorf("%d permits taken of %d", now, limit)
					}
					taken.Add(-int32(n))
					if err := sem.Release(ctx, n); err != nil {
						t.Errorf("Release(%d) = %v", n, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if got := s.command("GET", "job"); got != "4" {
		t.Errorf("%s permits in the end, want %d", got, limit)
	}
}

func semaphoreCancelled(t *testing.T, s *stage) {
	sem := s.client(lock.Config{}).Semaphore("job")
	_, err := sem.TrySetPermits(t.Context(), 1)
	s.ok("TrySetPermits()", err)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		err := sem.Acquire(ctx, 2)
		cancel()
		if err == nil {
			t.Fatal("Acquire() of more than there are succeeded")
		}
	}
	s.eventually("that the permit is reserved for none of those who left", func() bool { return sem.TryAcquire(t.Context(), 1) == nil })
	s.wantErr("TryAcquire()", sem.TryAcquire(t.Context(), 1), lock.ErrNotAcquired)
	s.ok("Release()", sem.Release(t.Context(), 1))
	s.eventually("that the permit is there", func() bool { return s.command("GET", "job") == "1" })
}

func semaphoreWakes(t *testing.T, s *stage) {
	holder, other := s.client(lock.Config{}).Semaphore("job"), s.client(lock.Config{})
	_, err := holder.TrySetPermits(t.Context(), 0)
	s.ok("TrySetPermits()", err)
	ctx, cancel := s.bounded()
	defer cancel()
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- other.Semaphore("job").Acquire(ctx, 1) }()
	}
	s.eventually("that all wait", func() bool { return other.Stats().Waiting == 3 })
	s.eventually("that one listens", func() bool { return s.command("PUBSUB", "CHANNELS") != "[]" })
	s.ok("Release()", holder.Release(t.Context(), 3))
	for range 3 {
		s.ok("Acquire()", <-done)
	}
}

func semaphoreSetup(t *testing.T, s *stage) {
	sem := s.client(lock.Config{}).Semaphore("job")
	s.wantErr("Acquire() of what nobody set up", sem.Acquire(t.Context(), 1), lock.ErrNotSet)
	set, err := sem.TrySetPermitsFor(t.Context(), 3, time.Hour)
	if !set || err != nil {
		t.Errorf("TrySetPermitsFor() = %v, %v", set, err)
	}
	s.ok("AddPermits()", sem.AddPermits(t.Context(), -4))
	for _, want := range []int{-1, 0} {
		if n, err := sem.DrainPermits(t.Context()); n != want || err != nil {
			t.Errorf("DrainPermits() = %d, %v, want %d", n, err, want)
		}
	}
	if left := s.command("TTL", "job"); len(left) != 4 || left[:2] != "35" && left != "3600" {
		t.Errorf("the key lasts %s s, want an hour", left)
	}
	s.command("DEL", "job")
	exists, err := sem.ReleaseIfExists(t.Context(), 1)
	if exists || err != nil {
		t.Errorf("ReleaseIfExists() = %v, %v", exists, err)
	}
}

func permitsConserve(t *testing.T, s *stage) {
	const limit, clients, callers, rounds = 4, 3, 3, 6
	_, err := s.client(lock.Config{}).PermitSemaphore("job").TrySetPermits(t.Context(), limit)
	s.ok("TrySetPermits()", err)
	ctx, cancel := s.bounded()
	defer cancel()
	var taken atomic.Int32
	var wg sync.WaitGroup
	for range clients {
		sem := s.client(lock.Config{}).PermitSemaphore("job")
		for caller := range callers {
			wg.Go(func() {
				for range rounds {
					lease, err := sem.AcquireMany(ctx, caller+1)
					if err != nil {
						t.Errorf("AcquireMany(%d) = %v", caller+1, err)
						return
					}
					if now := taken.Add(int32(caller + 1)); now > limit {
						t.Errorf("%d permits taken of %d", now, limit)
					}
					taken.Add(-int32(caller + 1))
					if err := lease.Unlock(ctx); err != nil {
						t.Errorf("Unlock() = %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if got := s.command("GET", "job"); got != "4" {
		t.Errorf("%s permits in the end, want %d", got, limit)
	}
}

func permitsByID(t *testing.T, s *stage) {
	mine, theirs := s.client(lock.Config{}).PermitSemaphore("job"), s.client(lock.Config{}).PermitSemaphore("job")
	_, err := mine.TrySetPermits(t.Context(), 5)
	s.ok("TrySetPermits()", err)
	lease, err := mine.AcquireMany(t.Context(), 3, lock.Forever())
	s.ok("AcquireMany()", err)
	ids := lease.PermitIDs()
	left, err := theirs.LeaseOf(t.Context(), ids[0])
	if err != nil || left >= 0 {
		t.Errorf("LeaseOf() = %v, %v, want less than 0", left, err)
	}
	s.ok("UpdateLease()", theirs.UpdateLease(t.Context(), ids[0], time.Hour))
	if left, err = theirs.LeaseOf(t.Context(), ids[0]); err != nil || left <= 59*time.Minute || left > time.Hour {
		t.Errorf("LeaseOf() = %v, %v, want an hour", left, err)
	}
	s.ok("Release()", theirs.Release(t.Context(), ids[1:]...))
	s.wantErr("Release()", theirs.Release(t.Context(), ids...), lock.ErrNotHeld)
	info, err := theirs.Info(t.Context())
	if err != nil || info.Permits != (lock.Permits{Set: true, Free: 4, Taken: 1}) || len(info.Holders) != 1 || info.Holders[0].Owner != ids[0] {
		t.Errorf("Info() = %+v, %v", info, err)
	}
	s.wantErr("Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
	s.ok("SetPermits()", mine.SetPermits(t.Context(), 2))
	if n, err := mine.Permits(t.Context()); n != 2 || err != nil {
		t.Errorf("Permits() = %d, %v, want 2", n, err)
	}
}

func latchReleases(t *testing.T, s *stage) {
	const waiters, count = 12, 6
	l := s.client(lock.Config{}).CountDownLatch("job")
	_, err := l.TrySetCount(t.Context(), count)
	s.ok("TrySetCount()", err)
	other := s.client(lock.Config{})
	ctx, cancel := s.bounded()
	defer cancel()
	done := make(chan error, waiters)
	for range waiters {
		go func() { done <- other.CountDownLatch("job").Wait(ctx) }()
	}
	s.eventually("that all wait", func() bool { return other.Stats().Waiting == waiters })
	var wg sync.WaitGroup
	for range count {
		wg.Go(func() {
			if err := l.CountDown(t.Context()); err != nil {
				t.Errorf("CountDown() = %v", err)
			}
		})
	}
	wg.Wait()
	for range waiters {
		s.ok("Wait()", <-done)
	}
}

func latchCounts(t *testing.T, s *stage) {
	l := s.client(lock.Config{}).CountDownLatch("job")
	s.ok("Wait() of what nobody set", l.Wait(t.Context()))
	for _, want := range []bool{true, false} {
		if set, err := l.TrySetCount(t.Context(), 2); set != want || err != nil {
			t.Errorf("TrySetCount() = %v, %v, want %v", set, err, want)
		}
	}
	s.ok("CountDown()", l.CountDown(t.Context()))
	if n, err := l.Count(t.Context()); n != 1 || err != nil {
		t.Errorf("Count() = %d, %v, want 1", n, err)
	}
	for _, want := range []bool{true, false} {
		if deleted, err := l.Delete(t.Context()); deleted != want || err != nil {
			t.Errorf("Delete() = %v, %v, want %v", deleted, err, want)
		}
	}
	s.wantErr("CountDown() of a name with braces", s.client(lock.Config{}).CountDownLatch("{job}").CountDown(t.Context()), lock.ErrInvalid)
}

func latchCancelled(t *testing.T, s *stage) {
	l := s.client(lock.Config{}).CountDownLatch("job")
	_, err := l.TrySetCount(t.Context(), 1)
	s.ok("TrySetCount()", err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.wantErr("Wait()", l.Wait(ctx), context.DeadlineExceeded)
	s.ok("CountDown() under a context that is over", l.CountDown(ctx))
	s.ok("Wait()", l.Wait(t.Context()))
}
