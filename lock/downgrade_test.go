package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

func mustDowngrade(t *testing.T, l *lock.Lease) *lock.Lease {
	t.Helper()
	read, err := l.Downgrade(t.Context())
	if err != nil {
		t.Fatalf("Downgrade() = %v", err)
	}
	return read
}

func TestDowngrade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		write := mustWrite(t, c)
		ctx, cancel := write.Context(t.Context())
		defer cancel()
		w.sleep(5 * time.Second)
		read := mustDowngrade(t, write)
		if got := read.Owner() + ":write"; got != write.Owner() {
			t.Errorf("the read lock's owner is %s, the write lock's %s", read.Owner(), write.Owner())
		}
		wantErr(t, "Err of the write lease", write.Err(), lock.ErrReleased)
		wantErr(t, "the cause of its context", context.Cause(ctx), lock.ErrReleased)
		mustUnlock(t, write) // as a deferred one would
		_, err := write.Downgrade(t.Context())
		wantErr(t, "Downgrade of a lease that is over", err, lock.ErrReleased)
		_, err = read.Downgrade(t.Context())
		wantErr(t, "Downgrade of a read lock", err, lock.ErrInvalid)
		mustUnlock(t, mustRead(t, other))
		for range 3 { // it is renewed as the write lock was
			w.sleep(time.Minute)
			synctest.Wait()
			if err := read.Check(t.Context()); err != nil {
				t.Fatalf("Check() = %v", err)
			}
		}
		isTaken(t, other.ReadWrite("job").Write())
		mustUnlock(t, read)
		if got := c.Stats(); got.Leases != 0 || got.Acquired != 2 || got.Released != 2 || got.Lost != 0 {
			t.Errorf("Stats() = %+v", got)
		}
		w.free()
	})
}

// A fixed lease ends when the write lease would have.
func TestDowngradeOfAFixedLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		write := mustWrite(t, c, lock.For(10*time.Second))
		w.sleep(4 * time.Second)
		read := mustDowngrade(t, write)
		if got := w.ttl("job"); got != 6*time.Second {
			t.Errorf("the read lock lasts %v, want 6s", got)
		}
		<-read.Lost()
		lostBecause(t, read.Err(), lock.Expired)
		_, err := mustWrite(t, c, lock.For(lock.MinLease)).Downgrade(t.Context())
		if err != nil {
			t.Errorf("Downgrade() of the shortest lease = %v", err)
		}
		late := mustWrite(t, c, lock.For(time.Second))
		w.sleep(2 * time.Second)
		_, err = late.Downgrade(t.Context())
		lostBecause(t, err, lock.Expired)
		w.free()
	})
}

// An owner's other holds stay what they are: the lock is for reading when the last write hold has gone.
func TestDowngradeOfOneOfSeveral(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustWrite(t, c, lock.As(owner), lock.For(time.Hour))
		inner := mustWrite(t, c, lock.As(owner), lock.For(2*time.Hour))
		before := mustRead(t, c, lock.As(owner), lock.For(time.Minute))
		read := mustDowngrade(t, inner)
		isTaken(t, other.ReadWrite("job").Read())
		if got := w.ttl("job"); got != 2*time.Hour {
			t.Errorf("the lock lasts %v, want 2h", got)
		}
		second := mustDowngrade(t, outer)
		beside := mustRead(t, other, lock.For(time.Second))
		mustUnlock(t, read)
		if got := w.ttl("job"); got != time.Hour {
			t.Errorf("the lock lasts %v, want 1h", got)
		}
		mustUnlock(t, second)
		mustUnlock(t, before)
		mustUnlock(t, beside)
		w.free()
	})
}

// Whatever becomes of the request, and whatever else the owner has: when Downgrade fails nothing of the hold is left, and the
// owner's other holds are.
func TestDowngradeWithoutAnAnswer(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{
		"lost":    fakeredis.RunThenClose(),
		"never":   fakeredis.Close(),
		"late":    fakeredis.Delay(2*time.Second, fakeredis.Run()),
		"refused": fakeredis.Reply("-OOM command not allowed\r\n"),
		"strange": fakeredis.Reply("+what\r\n"),
		"slow":    fakeredis.Run().Late(time.Hour),
	} {
		for _, others := range []string{"none", "write", "read", "both"} {
			t.Run(name+", others "+others, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { downgradeFails(t, w, action, others) })
			})
		}
	}
}

func downgradeFails(t *testing.T, w *world, action fakeredis.Action, others string) {
	c, other := w.client(lock.Config{}), w.client(lock.Config{})
	owner := c.NewOwner()
	var opts []lock.Option
	var rest []*lock.Lease
	if others != "none" {
		opts = append(opts, lock.As(owner))
	}
	if others == "write" || others == "both" {
		rest = append(rest, mustWrite(t, c, lock.As(owner)))
	}
	write := mustWrite(t, c, opts...)
	if others == "read" || others == "both" {
		rest = append(rest, mustRead(t, c, lock.As(owner)))
	}
	w.onScriptOf("write", "downgrade", func(int) fakeredis.Action { return action })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	read, err := write.Downgrade(ctx)
	cancel()
	if read != nil || !errors.Is(err, lock.ErrUncertain) {
		t.Fatalf("Downgrade() = %v, %v, want ErrUncertain", read, err)
	}
	w.srv.Intercept(nil)
	wantErr(t, "Unlock", write.Unlock(t.Context()), lock.ErrUncertain)
	w.sleep(10 * time.Second)
	if len(rest) == 0 {
		mustUnlock(t, mustWrite(t, other))
	} else {
		isTaken(t, other.ReadWrite("job").Write())
	}
	if others == "read" {
		mustUnlock(t, mustRead(t, other))
	}
	for half, want := range map[string]bool{"read": others == "read" || others == "both", "write": others == "write" || others == "both"} {
		info, err := halves(c)[half].Info(t.Context())
		if err != nil || info.Locked != want || want && info.Holders[0].Holds != 1 {
			t.Errorf("%s half: %+v, %v", half, info, err)
		}
	}
	for _, l := range rest {
		if err := l.Check(t.Context()); err != nil {
			t.Errorf("Check() of another hold = %v", err)
		}
		mustUnlock(t, l)
	}
	w.sleep(latchLife)
	w.free()
}

func TestDowngradeOfWhatIsNotHeld(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		for _, opts := range [][]lock.Option{nil, {lock.As(owner)}} {
			write := mustWrite(t, c, opts...)
			w.srv.Do("DEL", "job")
			taker := mustWrite(t, other)
			_, err := write.Downgrade(t.Context())
			wantErr(t, "Downgrade", err, lock.ErrNotHeld)
			wantErr(t, "Unlock", write.Unlock(t.Context()), lock.ErrNotHeld)
			mustUnlock(t, taker)
		}
		write := mustWrite(t, c, lock.As(owner))
		ended, end := context.WithCancel(t.Context())
		end()
		_, err := write.Downgrade(ended)
		wantErr(t, "Downgrade under an ended context", err, context.Canceled)
		if err := write.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v, want the lease untouched", err)
		}
		mustUnlock(t, write)
		w.free()
	})
}

// A client that is closed meanwhile has neither.
func TestDowngradeAndClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		write := mustWrite(t, c)
		w.onScriptOf("write", "downgrade", func(int) fakeredis.Action { return fakeredis.Run().Late(time.Second) })
		go func() {
			w.sleep(500 * time.Millisecond)
			c.Close()
		}()
		if _, err := write.Downgrade(context.WithoutCancel(t.Context())); err == nil {
			t.Error("Downgrade() on a closed client succeeded")
		}
		w.sleep(latchLife)
		w.free()
	})
}
