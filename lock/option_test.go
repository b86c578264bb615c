package lock_test

import (
	"math"
	"testing"
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
