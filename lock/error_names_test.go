package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// The errors of the methods of a lease name the lock.
func TestErrorsOfALeaseNameTheLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		named := func(what string, err, want error) {
			t.Helper()
			wantErr(t, what, err, want)
			if err != nil && !strings.HasPrefix(err.Error(), `lock "`) {
				t.Errorf("%s = %v, without the name", what, err)
			}
		}
		fixed := mustLock(t, c, "fixed", lock.For(time.Hour))
		named("Extend() after its context", fixed.Extend(ended, time.Hour), errBoom)
		multi, err := lock.NewMulti(c.Reentrant("a"), other.Reentrant("b"))
		if err != nil {
			t.Fatal(err)
		}
		both, err := multi.Lock(t.Context(), lock.For(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		named("Extend() of a Multi after its context", both.Extend(ended, time.Hour), errBoom)
		named("Check() of a Multi after its context", both.Check(ended), errBoom)
		write, err := c.ReadWrite("paper").Write().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = write.Downgrade(ended)
		named("Downgrade() after its context", err, errBoom)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = write.Downgrade(short)
		named("Downgrade() without an answer", err, lock.ErrUncertain)
		w.srv.Refuse(false)
		w.sleep(time.Minute)
		mustUnlock(t, fixed)
		mustUnlock(t, both)
		w.sleep(latchLife)
	})
}

func TestExtendOfARedlockBeyondItsQuarantine(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		held := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false), lock.For(20*time.Second))
		err := held.Extend(t.Context(), time.Minute)
		wantErr(t, "Extend()", err, lock.ErrInvalid)
		if !strings.HasPrefix(err.Error(), `lock "job": invalid`) {
			t.Errorf("Extend() = %v, without the name", err)
		}
		mustUnlock(t, held)
	})
}

// A time that rounds to zero is left out.
func TestErrorsWithoutAZeroTime(t *testing.T) {
	for _, err := range []error{
		&lock.NotAcquiredError{Name: "job", Waited: 300 * time.Nanosecond, Err: context.Canceled},
		&lock.LostError{Name: "job", Age: 300 * time.Nanosecond, Reason: lock.Forced},
	} {
		if text := err.Error(); strings.Contains(text, "after") {
			t.Errorf("%T: %s", err, text)
		}
	}
}
