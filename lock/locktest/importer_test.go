package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/locktest"
)

// The code of TESTING.md.

var errBusy = errors.New("another process imports")

// runImport imports, unless another process does so for longer than a minute.
func runImport(ctx context.Context, locks *lock.Client, work func(context.Context) error) error {
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lease, err := locks.Reentrant("import").Lock(wait)
	if errors.Is(err, lock.ErrNotAcquired) {
		return errBusy
	} else if err != nil {
		return err
	}
	working, stop := lease.Context(ctx)
	defer stop()
	return errors.Join(work(working), lease.Unlock(ctx))
}

func TestImportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		srv.Hold("import", 20*time.Second) // a process that has died
		start := time.Now()
		err := runImport(t.Context(), locks, func(context.Context) error { return nil })
		if took := time.Since(start); err != nil || took > 21*time.Second {
			t.Errorf("runImport() = %v after %v, want it after 20s", err, took)
		}
	})
}

func TestImportGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		srv.Hold("import", 0)
		err := runImport(t.Context(), locks, func(context.Context) error {
			t.Error("imported without the lock")
			return nil
		})
		if !errors.Is(err, errBusy) {
			t.Errorf("runImport() = %v, want errBusy", err)
		}
	})
}

func TestImportStopsOnLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		err := runImport(t.Context(), locks, func(ctx context.Context) error {
			srv.Cut() // the network fails while the import runs
			defer srv.Heal()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("runImport() = %v, want ErrLost", err)
		}
	})
}

func TestImportLeavesNothing(t *testing.T) {
	srv := locktest.NewServer(t) // real time
	locks := srv.Client(lock.Config{})
	srv.DropReply(1) // the server grants the lock, and nobody hears of it
	if err := runImport(t.Context(), locks, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	// At the end srv reports what is left over, as errors of the test.
}
