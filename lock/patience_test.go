package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// Lock tolerates a server without an answer for Config.Lease, also behind the undo of its own first attempt, which may go on for as long as
// the lease or the place in a queue would last.
func TestPatienceBehindAnUndo(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, c *lock.Client) error{
		"Fair": func(ctx context.Context, c *lock.Client) error { _, err := c.Fair("job").Lock(ctx); return err },
		"an Owner for an hour": func(ctx context.Context, c *lock.Client) error {
			_, err := c.Reentrant("job").Lock(ctx, lock.As(c.NewOwner()), lock.For(time.Hour))
			return err
		},
		"TryLock of an Owner for an hour, again": func(ctx context.Context, c *lock.Client) error {
			o := lock.As(c.NewOwner())
			_, first := c.Reentrant("job").TryLock(ctx, o, lock.For(time.Hour))
			_, err := c.Reentrant("job").TryLock(ctx, o, lock.For(time.Hour))
			return errors.Join(first, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.clientOn(conn.Config{Timeout: time.Second, DialTimeout: time.Second}, lock.Config{Lease: 10 * time.Second})
				mustUnlock(t, mustLock(t, c, "warm"))
				w.srv.Stall(true)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				start := time.Now()
				err := ask(ctx, c)
				if took := time.Since(start); err == nil || errors.Is(err, context.DeadlineExceeded) || took > 30*time.Second {
					t.Errorf("%v after %v, with a Lease of 10 s", err, took)
				}
				w.srv.Stall(false)
				w.sleep(10 * time.Minute)
				w.srv.Do("FLUSHALL")
			})
		})
	}
}

// Many calls of an Owner, each of which has its answer, wait for each other for longer than Config.Lease.
func TestPatienceBehindManyCalls(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: 10 * time.Second})
		w.srv.Latency(100 * time.Millisecond)
		o := lock.As(c.NewOwner())
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				_, err := c.Reentrant("job").TryLock(t.Context(), o, lock.For(time.Hour))
				wantOK(t, "TryLock", err)
			})
		}
		calls.Wait()
		w.srv.Do("FLUSHALL")
	})
}
