package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockwire/lockwire/lock"
)

// readersOrWriter is exclusion for a lock with a rival: two readers meet, and then, of several readers and writers, nobody meets a
// writer. Readers may not wait for each other while a writer waits: it goes before those who come later.
func readersOrWriter(t *testing.T, s *stage) {
	const rounds = 10
	clients := []*lock.Client{s.client(lock.Config{}), s.client(lock.Config{}), s.client(lock.Config{})}
	readersMeet(t, clients[:2])
	var readers, writers atomic.Int32
	inside := func(err error) {
		if err != nil {
			t.Errorf("Do() = %v", err)
		}
	}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for range rounds {
				inside(readLock(c, "job").Do(t.Context(), func(context.Context) error {
					readers.Add(1)
					defer readers.Add(-1)
					if n := writers.Load(); n != 0 {
						t.Errorf("%d writers beside a reader", n)
					}
					return nil
				}))
			}
		})
		wg.Go(func() {
			for range rounds {
				inside(writeLock(c, "job").Do(t.Context(), func(context.Context) error {
					if n, r := writers.Add(1), readers.Load(); n != 1 || r != 0 {
						t.Errorf("%d writers and %d readers at once", n, r)
					}
					writers.Add(-1)
					return nil
				}))
			}
		})
	}
	wg.Wait()
}

// readersMeet has two readers wait for each other while both have the lock.
func readersMeet(t *testing.T, clients []*lock.Client) {
	meet := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			err := readLock(c, "job").Do(t.Context(), func(ctx context.Context) error {
				select {
				case meet <- struct{}{}:
				case <-meet:
				case <-ctx.Done():
					return ctx.Err()
				}
				return nil
			})
			if err != nil {
				t.Errorf("Do() = %v", err)
			}
		})
	}
	wg.Wait()
}
