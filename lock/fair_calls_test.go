package lock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// TryLock stands in no line, and passes nobody by.
func TestFairTryLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease, err := c.Fair("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Fair("job").TryLock(t.Context())
		wantErr(t, "TryLock of a lock that is taken", err, lock.ErrNotAcquired)
		w.wantLine()
		owner := c.NewOwner()
		next := w.waiter(c, lock.As(owner))
		w.srv.Do("DEL", "job")
		_, err = c.Fair("job").TryLock(t.Context())
		wantErr(t, "TryLock of a free lock that somebody waits for", err, lock.ErrNotAcquired)
		w.wantLine(owner.String())
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, <-next) // a release of nothing wakes it
		w.free()
	})
}

func TestFairReentryAndForce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner, other := c.NewOwner(), c.NewOwner()
		outer := mustLockFair(t, c, lock.As(owner))
		next := w.waiter(c, lock.As(other))
		inner := mustLockFair(t, c, lock.As(owner), lock.For(time.Second))
		info, err := c.Fair("job").Info(t.Context())
		if err != nil || !slices.Equal(info.Holders, []lock.Holder{{Owner: owner.String(), Holds: 2, Remaining: info.Remaining}}) || info.Remaining < 29*time.Second ||
			len(info.Queue) != 1 || info.Queue[0].Owner != other.String() || info.Queue[0].Deadline < 5*time.Minute {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		mustUnlock(t, inner)
		w.wantLine(other.String())
		start := time.Now()
		if forced, err := c.Fair("job").ForceUnlock(t.Context()); !forced || err != nil {
			t.Errorf("ForceUnlock() = %v, %v", forced, err)
		}
		lease := <-next
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the waiter is served %v after ForceUnlock", took)
		}
		lostBecause(t, outer.Err(), lock.Forced)
		mustUnlock(t, lease)
		w.free()
	})
}

func TestNonReentrantFair(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job, owner := c.NonReentrantFair("job"), c.NewOwner()
		lease, err := job.Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		next := w.waiter(c)
		start := time.Now()
		_, err = job.Lock(t.Context(), lock.As(owner))
		wantErr(t, "Lock by the owner", err, lock.ErrReentry)
		_, err = job.TryLock(t.Context(), lock.As(owner))
		wantErr(t, "TryLock by the owner", err, lock.ErrReentry)
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v", took)
		}
		w.sleep(time.Second)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after refusals = %v", err)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-next)
		w.free()
	})
}

// What stands in the place of a queue is an error, and stays; the lock can be given back.
func TestFairWrongQueue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLockFair(t, c)
		w.srv.Do("SET", jobQueue, "kept")
		_, err := c.Fair("job").Lock(t.Context())
		wantErr(t, "Lock", err, lock.ErrWrongType)
		_, err = c.Fair("job").Info(t.Context())
		wantErr(t, "Info", err, lock.ErrWrongType)
		mustUnlock(t, lease)
		if w.srv.Do("GET", jobQueue) != "kept" || w.srv.Do("EXISTS", "job") != int64(0) {
			t.Errorf("the server has %q", w.srv.Dump())
		}
		w.srv.Do("DEL", jobQueue)
		w.free()
	})
}
