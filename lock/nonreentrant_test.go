package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

func TestReentryIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job, owner := c.NonReentrant("job"), c.NewOwner()
		lease, err := job.Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = job.Lock(t.Context(), lock.As(owner))
		wantErr(t, "Lock by the owner", err, lock.ErrReentry)
		_, err = job.TryLock(t.Context(), lock.As(owner))
		wantErr(t, "TryLock by the owner", err, lock.ErrReentry)
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v", took)
		}
		_, err = job.TryLock(t.Context())
		wantErr(t, "TryLock by somebody else", err, lock.ErrNotAcquired)
		_, err = job.TryLock(t.Context(), lock.As(c.NewOwner()))
		wantErr(t, "TryLock by another Owner", err, lock.ErrNotAcquired)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after refusals = %v", err)
		}
		mustUnlock(t, lease)
		again, err := job.Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, again)
		w.free()
	})
}

// A1: an acquire whose answer was lost is taken back, and is not met by its own repeat. Redisson sends the same again.
func TestA01NonReentrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		resent := kinds.All()["nonreentrant"]["acquire"]
		for _, want := range []string{"", "reentry"} {
			v, err := resent.Run(t.Context(), w.pools[0], []string{"resent", "channel", "latch"}, 30_000, "redisson:1", soon())
			if text, _ := v.Text(); err != nil || text != want {
				t.Fatalf("acquire, sent twice, returns %q, %v, so this shows nothing", text, err)
			}
		}
		w.srv.Do("DEL", "resent")

		job, owner := c.NonReentrant("job"), c.NewOwner()
		acquire, n := kinds.All()["nonreentrant"]["acquire"].Digest(), 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) < 2 || cmd.Args[1] != acquire {
				return fakeredis.Run()
			}
			if n++; n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := job.Lock(ctx, lock.As(owner))
		if err != nil {
			t.Fatalf("Lock() = %v, want the lock after the lost grant is taken back", err)
		}
		if w.srv.Do("HGET", "job", owner.String()) != "1" {
			t.Errorf("hold count %v", w.srv.Do("HGET", "job", owner.String()))
		}
		mustUnlock(t, lease)
		w.sleep(latchLife)
		w.free()
	})
}
