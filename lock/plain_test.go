package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A plain lock is what SET NX PX makes of the key, and what others delete when they have the value.
func TestPlainOnTheWire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease, err := c.Plain("job").Lock(t.Context(), lock.For(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if got := w.srv.Do("GET", "job"); got != lease.Owner() || len(lease.Owner()) != 32 || w.ttl("job") != 5*time.Second {
			t.Errorf("the key holds %v for %v, the owner is %q", got, w.ttl("job"), lease.Owner())
		}
		if w.srv.Do("SET", "job", "theirs", "NX", "PX", "1000") != nil {
			t.Error("somebody else has set it")
		}
		mustUnlock(t, lease)
		w.srv.Do("SET", "job", "theirs", "NX", "PX", "1000")
		_, err = c.Plain("job").TryLock(t.Context())
		wantErr(t, "TryLock() of another's", err, lock.ErrNotAcquired)
		start := time.Now()
		lease, err = c.Plain("job").Lock(t.Context())
		if waited := time.Since(start); err != nil || waited < time.Second || waited > 1200*time.Millisecond {
			t.Errorf("Lock() = %v after %v", err, waited)
		}
		w.sleep(time.Hour)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after an hour = %v", err)
		}
		w.srv.Do("SET", "job", "theirs", "PX", "1000")
		lostBecause(t, lease.Check(t.Context()), lock.Taken)
		wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
		if w.srv.Do("GET", "job") != "theirs" {
			t.Error("Unlock has deleted another's key")
		}
		w.srv.Do("DEL", "job")
		w.free()
	})
}

func TestPlainIsNotReentrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		lease, err := c.Plain("job").Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Plain("job").Lock(t.Context(), lock.As(owner))
		wantErr(t, "Lock() by the owner", err, lock.ErrReentry)
		mustUnlock(t, lease)
		w.free()
	})
}

// Redisson's locks and plain ones cannot take each other's key for free or for taken.
func TestPlainAndHashes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Plain("job").Lock(ctx)
		wantErr(t, "Lock() of a hash", err, lock.ErrWrongType)
		mustUnlock(t, lease)
		lease, err = c.Plain("job").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock() of a string", err, lock.ErrWrongType)
		mustUnlock(t, lease)
		w.free()
	})
}

// A Redlock of plain locks has one value on all servers, as those of others have.
func TestPlainRedlockOnTheWire(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, true))
		f[0].sleep(time.Second)
		for i, holder := range f.holders("job") {
			if holder != lease.Owner() {
				t.Errorf("server %d has %v, the owner is %q", i, holder, lease.Owner())
			}
		}
		mustUnlock(t, lease)
		f.free()
	})
}
