package lock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// More calls than the server can answer before they are too late succeed all the same: they do not repeat all at once, so that the repeats are too
// late again.
func TestMoreCallsThanTheServerAnswersInTime(t *testing.T) {
	const callers, each = 2000, 10 * time.Millisecond
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		mustUnlock(t, mustLock(t, c, "job"))
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isAcquire(cmd) {
				return fakeredis.Delay(each, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				if _, err := c.Reentrant(fmt.Sprint("job", i)).Lock(t.Context()); err != nil {
					t.Errorf("Lock() = %v", err)
				}
			})
		}
		wg.Wait()
		w.srv.Intercept(nil)
	})
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
