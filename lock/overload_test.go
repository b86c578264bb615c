package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// More calls than the server can answer before they are too late succeed all the same: they do not repeat all at once, so that the repeats are too
// late again. So do those behind the front of a line that ask all the same.
func TestMoreCallsThanTheServerAnswersInTime(t *testing.T) {
	const callers, each = 2000, 10 * time.Millisecond
	for name, call := range map[string]func(ctx context.Context, c *lock.Client, i int) (*lock.Lease, error){
		"of a lock each": func(ctx context.Context, c *lock.Client, i int) (*lock.Lease, error) {
			return c.Reentrant(fmt.Sprint("job", i)).Lock(ctx)
		},
		"of an Owner each, as readers of one lock": func(ctx context.Context, c *lock.Client, _ int) (*lock.Lease, error) {
			return c.ReadWrite("job").Read().Lock(ctx, lock.As(c.NewOwner()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				mustUnlock(t, mustLock(t, c, "job"))
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if isAcquire(cmd) {
						return fakeredis.Delay(each, fakeredis.Run())
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						if _, err := call(ctx, c, i); err != nil {
							t.Errorf("Lock() = %v", err)
						}
					})
				}
				wg.Wait()
				w.srv.Intercept(nil)
			})
		})
	}
}

// A single request that comes too late to the server is no sign of too many: the waiter asks again soon, since the lock may be free.
func TestSingleLateLook(t *testing.T) {
	for _, kind := range []string{"reentrant", "fair"} {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				of := func(c *lock.Client) locker {
					if kind == "fair" {
						return c.Fair("job")
					}
					return c.Reentrant("job")
				}
				other, c := w.client(lock.Config{}), w.clientOn(conn.Config{Timeout: time.Minute}, lock.Config{})
				for range 5 {
					lease, err := of(other).Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					var came time.Time
					time.AfterFunc(time.Second, func() {
						w.onScriptOf(kind, "acquire", func(n int) fakeredis.Action {
							if n > 1 {
								return fakeredis.Run()
							}
							came = time.Now().Add(6 * time.Second)
							return fakeredis.Delay(6*time.Second, fakeredis.Run())
						})
						mustUnlock(t, lease)
					})
					next, err := of(c).Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(came); took > time.Second {
						t.Errorf("the waiter has the free lock %v after its late request", took)
					}
					w.srv.Intercept(nil)
					mustUnlock(t, next)
				}
			})
		})
	}
}
