package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// An option that one node refuses is an error at once: before a wait for another caller, and without an event for the Trace.
func TestRedlockInvalidOptions(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		began := 0
		trace := &lock.Trace{AcquireStart: func(ctx context.Context, _ lock.AcquireStart) context.Context {
			began++
			return ctx
		}}
		p := process{f[0].client(lock.Config{Trace: trace}), f[1].client(lock.Config{Lease: 12 * time.Second}), f[2].client(lock.Config{})}
		r := p.redlock(t, lock.RedlockConfig{}, false)
		held := lockRed(t, r)
		defer mustUnlock(t, held)
		began = 0
		for name, opt := range map[string]lock.Option{
			"AtMost(1 ms)":                    lock.AtMost(time.Millisecond),
			"StopBefore(1 h)":                 lock.StopBefore(time.Hour),
			"StopBefore(10 s), for two nodes": lock.StopBefore(10 * time.Second),
			"WaitForSetup()":                  lock.WaitForSetup(),
			"Forever()":                       lock.Forever(),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := r.Lock(ctx, opt)
			wantErr(t, "Lock() with "+name, err, lock.ErrInvalid)
			_, err = r.TryLock(ctx, opt)
			wantErr(t, "TryLock() with "+name, err, lock.ErrInvalid)
			cancel()
		}
		if began != 0 {
			t.Errorf("%d calls with invalid options were traced", began)
		}
	})
}

// After the end of the context the error matches its cause, also beside another caller of the process.
func TestRedlockTryLockAfterItsContext(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		defer mustUnlock(t, lockRed(t, r))
		_, err := r.TryLock(ended)
		for _, want := range []error{lock.ErrNotAcquired, context.Canceled, errBoom} {
			wantErr(t, "TryLock() beside a holder", err, want)
		}
	})
}

func TestRedlockNoQuorumNamesTheLock(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		down["refuses"](f[0].srv, true)
		down["refuses"](f[1].srv, true)
		_, try := r.TryLock(t.Context())
		_, err := r.Lock(t.Context())
		for call, err := range map[string]error{"TryLock": try, "Lock": err} {
			if !errors.Is(err, lock.ErrNoQuorum) || !strings.HasPrefix(err.Error(), `lock "job": no majority`) {
				t.Errorf("%s() = %v, want ErrNoQuorum with the name", call, err)
			}
		}
	})
}
