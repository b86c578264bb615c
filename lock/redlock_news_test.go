package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// The loss of a part may leave a majority that ends sooner: contexts whose StopBefore has come thereby end at once.
func TestRedlockStopBeforeAfterALoss(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{Quarantine: -1}, false)
		lease := lockRed(t, r, lock.StopBefore(15*time.Second))
		synctest.Wait()
		work, cancel := lease.Context(t.Context())
		defer cancel()
		f[0].srv.Mute(true) // so that its part is not renewed like the others
		time.Sleep(21 * time.Second)
		if err := work.Err(); err != nil {
			t.Fatalf("the context has ended beside a majority that is renewed: %v", context.Cause(work))
		}
		owner := f.holders("job")[1]
		for _, part := range lease.Members() {
			if part.Owner() == owner {
				f[1].srv.Do("DEL", "job")
				if err := part.Check(t.Context()); err == nil {
					t.Fatal("Check() of a part that is gone = nil")
				}
			}
		}
		if left := time.Until(lease.ValidUntil()); left > 15*time.Second || lease.Err() != nil {
			t.Fatalf("valid for %v, Err() = %v, want a lease near its end", left, lease.Err())
		}
		lostBecause(t, context.Cause(work), lock.Ending)
		f[0].srv.Mute(false)
		mustUnlock(t, lease)
	})
}
