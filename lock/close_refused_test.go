package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// Close says that it has given up a change whose first request had no answer, and which stays open although its repeats are refused
// halfway: nobody else learns of it.
func TestCloseDuringAChangeRefusedHalfway(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		defer pool.Close()
		c, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.srv.Do("SET", "sem", "5")
		n := 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if !strings.HasPrefix(cmd.Name, "EVAL") {
				return fakeredis.Run()
			}
			if n++; n == 1 {
				return fakeredis.Close()
			}
			w.srv.Deny("incrby")
			return fakeredis.Run()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := c.Semaphore("sem").AddPermits(ctx, 2); !errors.Is(err, lock.ErrUncertain) {
			t.Fatal(err)
		}
		w.sleep(300 * time.Millisecond)
		given, ok := errors.AsType[*lock.CloseError](c.Close())
		if !ok || given.Changes != 1 {
			t.Errorf("Close() = %v, want 1 change given up", given)
		}
	})
}
