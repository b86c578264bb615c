package lock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

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
