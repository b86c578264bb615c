package lock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A lease of centuries is refused: sums with it would wrap, and the release of an inner hold then frees the outer one.
func TestLeasesOfCenturies(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		ask := func(_ any, err error) error { return err }
		c := w.client(lock.Config{})
		job, permits := c.Reentrant("job"), c.PermitSemaphore("permits")
		if _, err := permits.TrySetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		permit, err := permits.TryAcquire(t.Context(), lock.For(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		short := mustLock(t, c, "short", lock.For(time.Minute))
		nodes := []lock.Member{job, w.client(lock.Config{}).Reentrant("2"), w.client(lock.Config{}).Reentrant("3")}
		for _, d := range []time.Duration{math.MaxInt64, 290 * 365 * 24 * time.Hour} {
			for what, err := range map[string]error{
				"For":          ask(job.TryLock(t.Context(), lock.For(d))),
				"a permit":     ask(permits.TryAcquire(t.Context(), lock.For(d))),
				"Extend":       short.Extend(t.Context(), d),
				"UpdateLease":  permits.UpdateLease(t.Context(), permit.PermitIDs()[0], d),
				"Config.Lease": ask(lock.New(c.Server(), lock.Config{Lease: d})),
				"Pause":        ask(lock.NewRedlock(lock.RedlockConfig{Pause: d}, nodes...)),
			} {
				wantErr(t, what+" of "+d.String(), err, lock.ErrInvalid)
			}
		}

		const decades = 50 * 365 * 24 * time.Hour
		owner := lock.As(c.NewOwner())
		outer, inner := mustLock(t, c, "job", owner, lock.For(decades)), mustLock(t, c, "job", owner, lock.For(time.Second))
		mustUnlock(t, inner)
		if err := outer.Extend(t.Context(), decades); err != nil || outer.Err() != nil {
			t.Errorf("Extend() of the outer hold = %v, %v", err, outer.Err())
		}
		limited, err := c.Reentrant("limited").TryLock(t.Context(), lock.AtMost(math.MaxInt64))
		if err != nil || limited.Err() != nil {
			t.Fatalf("TryLock() with a limit of centuries = %v, %v", err, limited.Err())
		}
		for _, l := range []*lock.Lease{outer, short, permit, limited} {
			mustUnlock(t, l)
		}
		if _, err := c.PermitSemaphore("permits").ReleaseAll(t.Context()); err != nil {
			t.Error(err)
		}
		w.srv.Do("DEL", "permits")
	})
}

// Who does not wait for the setup of permits learns that there is none, also behind a caller of its process who does.
func TestNoSetupBehindAWaitForSetup(t *testing.T) {
	for _, kind := range []string{"semaphore", "permits"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			acquire := func(opts ...lock.Option) error { return c.Semaphore("sem").Acquire(ctx, 1, opts...) }
			if kind == "permits" {
				acquire = func(opts ...lock.Option) error {
					_, err := c.PermitSemaphore("sem").Acquire(ctx, append(opts, lock.For(time.Hour))...)
					return err
				}
			}
			first := make(chan error, 1)
			go func() { first <- acquire(lock.WaitForSetup()) }()
			synctest.Wait()
			wantErr(t, kind+": Acquire without a setup", acquire(), lock.ErrNotSet)
			w.srv.Do("SET", "sem", "0", "PX", "10000")
			second := make(chan error, 1)
			go func() { second <- acquire() }()
			w.sleep(9 * time.Second)
			select {
			case err := <-second:
				t.Errorf("%s: Acquire of a semaphore without a free permit = %v", kind, err)
			default:
			}
			w.sleep(3 * time.Second)
			select {
			case err := <-second:
				wantErr(t, kind+": Acquire after the deletion", err, lock.ErrNotSet)
			default:
				t.Errorf("%s: Acquire waits on after the deletion", kind)
			}
			w.srv.Do("SET", "sem", "1")
			if err := <-first; err != nil {
				t.Errorf("%s: Acquire with WaitForSetup = %v", kind, err)
			}
			w.sleep(time.Minute)
			w.srv.Do("FLUSHALL")
		})
	}
}
