package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Leases for a fixed time need no Unlock, and are forgotten when they end.
func TestEndedLeasesAreForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		for i := range 100 {
			mustLock(t, c, fmt.Sprint(i), lock.For(time.Second))
			mustLock(t, c, fmt.Sprint("owned", i), lock.For(time.Second), lock.As(owner))
		}
		w.sleep(time.Hour)
		if n := c.Stats().Leases; n != 0 {
			t.Errorf("%d leases are held an hour after they ended", n)
		}
		w.free()
	})
}

func TestCheckOfAKeyOfAnotherType(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(time.Hour))
		w.srv.Do("SET", "job", "x")
		lostBecause(t, lease.Check(t.Context()), lock.Taken)
		lostBecause(t, lease.Err(), lock.Taken)
	})
}

// What is asked for after the end shows it at once.
func TestContextOfALeaseThatIsOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		one, two := mustLock(t, c, "one", lock.For(time.Second)), mustLock(t, c, "two", lock.For(time.Second))
		w.sleep(2 * time.Second)
		ctx, cancel := one.Context(t.Context())
		defer cancel()
		lostBecause(t, context.Cause(ctx), lock.Expired)
		select {
		case <-two.Lost():
		default:
			t.Error("Lost is not closed")
		}
	})
}
