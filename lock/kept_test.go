package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// formerMaster has the next script confirmed by a master that no replica of it has heard of, which is replaced at once.
func (w *world) formerMaster(do func()) {
	asked := false
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if asked || !strings.HasPrefix(cmd.Name, "EVAL") {
			return fakeredis.Run()
		}
		asked = true
		return fakeredis.Reply(":1\r\n")
	})
	do()
	w.srv.Intercept(nil)
	w.srv.RestartWithData()
}

// A master confirms a release and is replaced before a replica knows. The next master hears of the release a moment later.
func TestReleaseUnknownToTheNextMaster(t *testing.T) {
	all := heldBack()
	delete(all, "Semaphore") // whose changes are no releases
	for name, take := range all {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(func(r *replicated) { r.heirs.Bare = true })
				for _, set := range []func(context.Context, int) (bool, error){c.Semaphore("semaphore").TrySetPermits, c.PermitSemaphore("permits").TrySetPermits} {
					if _, err := set(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
				}
				give, err := take(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				w.formerMaster(func() {
					if err := give(t.Context()); err != nil {
						t.Errorf("the release = %v", err)
					}
				})
				w.sleep(2 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				other := w.client(lock.Config{})
				if name == "Read" { // readers share the lock
					lease, err := other.ReadWrite("read").Write().Lock(ctx)
					if err != nil {
						t.Fatal(err)
					}
					mustUnlock(t, lease)
					return
				}
				if give, err = take(ctx, other); err != nil {
					t.Fatal(err)
				}
				if err := give(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A former master confirms that it has taken back a lock for which it had too few replicas, and the next master has the lock.
func TestUndoUnknownToTheNextMaster(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") && !isAcquire(cmd) {
				return fakeredis.Reply(":1\r\n")
			}
			return fakeredis.Run()
		})
		if _, err := c.Reentrant("job").TryLock(t.Context()); !errors.Is(err, lock.ErrNotReplicated) {
			t.Fatalf("TryLock() = %v", err)
		}
		w.sleep(100 * time.Millisecond)
		w.srv.Intercept(nil)
		w.srv.RestartWithData()
		w.sleep(2 * time.Second)
		if _, taken := w.srv.Key("job"); taken {
			t.Error("the lock is taken by nobody")
		}
	})
}
