package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// keysTaken is how many keys the server has, but for notes that go by themselves.
func keysTaken(s *redistest.Server) int {
	n := 0
	for _, k := range s.Keys() {
		if !strings.HasPrefix(k.Name, "redisson_unlock_latch:") {
			n++
		}
	}
	return n
}

// Thousands of calls end while the server is stopped. What they leave is taken back in a few round trips.
func TestBacklogOnServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		const calls = 5000
		x := newSite(t, s, 0, lock.Config{Lease: 10 * time.Minute})
		lockAndUnlock(t, x.locks.Reentrant("first"))
		x.proxy.Latency(time.Millisecond, 0)
		s.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() { _, _ = x.locks.Reentrant(fmt.Sprint("job", i)).TryLock(ctx) })
		}
		wg.Wait()
		pause(t.Context(), 200*time.Millisecond)
		s.Continue()
		back := time.Now()
		if !eventually(patience, func() bool { return keysTaken(s) == 0 }) {
			t.Errorf("%d locks are taken by nobody %v after the server is back", keysTaken(s), time.Since(back))
		}
		t.Logf("all free after %v", time.Since(back))
	})
}

// Callers with deadlines of ten round trips leave no permit behind.
func TestShortDeadlinesOnServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{Lease: 10 * time.Minute})
		permits := x.locks.PermitSemaphore("permits")
		if _, err := permits.TrySetPermits(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		x.proxy.Latency(time.Millisecond, 0)
		var done, failed atomic.Int64
		var wg sync.WaitGroup
		end := time.Now().Add(2 * time.Second)
		for range 200 {
			wg.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					lease, err := permits.Acquire(ctx)
					cancel()
					if err != nil {
						failed.Add(1)
						continue
					}
					done.Add(1)
					if err := lease.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		last := time.Now()
		free := func() bool {
			n, err := permits.Available(t.Context())
			return err == nil && n == 3
		}
		if !eventually(patience, free) {
			t.Error("permits are taken by nobody")
		}
		t.Logf("%d of %d got one, all back after %v", done.Load(), done.Load()+failed.Load(), time.Since(last))
		closing, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := x.locks.CloseContext(closing); err != nil {
			t.Error(err)
		}
	})
}
