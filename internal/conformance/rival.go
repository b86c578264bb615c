package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockwire/lockwire/lock"
)

// readersOrWriter is exclusion for a lock with a rival: two of several readers meet, and nobody meets a writer.
func readersOrWriter(t *testing.T, s *stage) {
	const clients, rounds = 3, 10
	var readers, writers atomic.Int32
	inside := func(err error) {
		if err != nil {
			t.Errorf("Do() = %v", err)
		}
	}
	meet := make(chan struct{}) // each reader of the first round waits for another
	var wg sync.WaitGroup
	for i := range clients {
		c := s.client(lock.Config{})
		wg.Go(func() {
			for round := range rounds {
				inside(readLock(c, "job").Do(t.Context(), func(context.Context) error {
					readers.Add(1)
					defer readers.Add(-1)
					if n := writers.Load(); n != 0 {
						t.Errorf("%d writers beside a reader", n)
					}
					if round == 0 && i < 2 {
						select {
						case meet <- struct{}{}:
						case <-meet:
						}
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
