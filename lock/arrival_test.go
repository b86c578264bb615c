package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// heldUp are requests to acquire, each with the kind of its script.
var heldUp = []struct {
	name, kind string
	try        func(ctx context.Context, c *lock.Client, o lock.Owner) error
}{
	{"reentrant", "reentrant", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		_, err := c.Reentrant("job").TryLock(ctx)
		return err
	}},
	{"reentrant, owner", "reentrant", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.Reentrant("job").TryLock(ctx, lock.As(o))
		return err
	}},
	{"nonreentrant", "nonreentrant", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.NonReentrant("job").TryLock(ctx, lock.As(o))
		return err
	}},
	{"spin", "reentrant", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		_, err := c.Spin("job", lock.Backoff{}).TryLock(ctx)
		return err
	}},
	{"fenced", "fenced", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		_, err := c.Fenced("job").TryLock(ctx)
		return err
	}},
	{"fenced, owner", "fenced", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.Fenced("job").TryLock(ctx, lock.As(o))
		return err
	}},
	{"plain", "plain", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.Plain("job").TryLock(ctx)
		return err
	}},
	{"plain, owner", "plain", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.Plain("job").TryLock(ctx, lock.As(o))
		return err
	}},
	{"permits", "permits", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.PermitSemaphore("job").TryAcquireMany(ctx, 2)
		return err
	}},
	{"permits, forever", "permits", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := c.PermitSemaphore("job").TryAcquire(ctx, lock.Forever())
		return err
	}},
	{"semaphore", "semaphore", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		return c.Semaphore("job").TryAcquire(ctx, 2)
	}},
	{"semaphore, waiting", "semaphore", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		if err := c.Semaphore("job").Acquire(ctx, 2); err != nil {
			return err
		}
		_ = c.Semaphore("job").Release(ctx, 2) // what came of the second attempt
		return context.Canceled
	}},
}

// What is held up on its way takes nothing when it comes at last, as soon or as late as may be, whatever the clocks say.
func TestHeldUpAcquireTakesNothing(t *testing.T) {
	for _, h := range heldUp {
		for _, after := range []time.Duration{0, time.Second, 4900 * time.Millisecond, 5100 * time.Millisecond, 8 * time.Second, 30 * time.Second, time.Hour} {
			t.Run(fmt.Sprint(h.name, " ", after), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					o := c.NewOwner()
					if h.kind == "permits" || h.kind == "semaphore" {
						w.srv.Do("SET", "job", "3")
					}
					s := lock.Scripts()[h.kind]["acquire"]
					var args []string
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if args == nil && len(cmd.Args) > 1 && cmd.Args[1] == s.Digest() {
							args = slices.Clone(cmd.Args)
							return fakeredis.Close()
						}
						return fakeredis.Run()
					})
					if err := h.try(ctx, c, o); err == nil || args == nil {
						t.Fatalf("TryLock() = %v, sent %v", err, args)
					}
					w.sleep(after)
					w.srv.Do(args...)
					w.sleep(100 * time.Millisecond)
					left := slices.DeleteFunc(w.left(), func(key string) bool {
						return key == "redisson_lock_token:{job}" || key == "job" && w.srv.Do("TYPE", key) == fakeredis.Status("string") && w.srv.Do("GET", key) == "3"
					})
					if len(left) > 0 {
						t.Errorf("%q are taken by nobody", left)
					}
					w.srv.Intercept(nil)
					if err := h.try(ctx, c, o); ctx.Err() == nil && err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("TryLock() = %v", err)
					}
				})
			})
		}
	}
}

// A server whose clock says something else refuses a request once, and no other after that.
func TestServersOfAnotherTime(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, -time.Minute, 4 * time.Second, time.Minute, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Clock(ahead)
				c := w.client(lock.Config{})
				for range 3 {
					lockAndUnlock(t, c.Reentrant("job"))
				}
				want := 3
				if ahead > 5*time.Second {
					want = 4
				}
				n := 0
				for _, cmd := range w.srv.Log() {
					if isScript(cmd, "acquire") {
						n++
					}
				}
				if n != want {
					t.Errorf("%d acquires were sent, want %d", n, want)
				}
			})
		})
	}
}
