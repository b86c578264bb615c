package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// Close in the middle of everything: it ends the waits, tells the holders, and leaves nothing running or open. What is
// held stays so until its holder gives it back.
func TestCloseOnAServer(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		before := countResources()
		x := newSite(t, s, 0, lock.Config{})
		lease := mustLock(t, x.locks, "job")
		work, cancel := lease.Context(t.Context())
		defer cancel()
		const waiting = 20
		waits := make(chan error, waiting)
		for range waiting {
			go func() {
				_, err := x.locks.Reentrant("job").Lock(t.Context())
				waits <- err
			}()
		}
		// The lock's three channels, and that of locks freed by force.
		if !eventually(patience, func() bool { return x.locks.Stats().Waiting == waiting && channels(s) == 4 }) {
			t.Fatalf("%+v and %d channels", x.locks.Stats(), channels(s))
		}
		if err := x.locks.Close(); err != nil {
			t.Error(err)
		}
		for range waiting {
			wantErr(t, "a wait", <-waits, lock.ErrClosed)
		}
		lostBecause(t, context.Cause(work), lock.ClientClosed)
		if !eventually(patience, func() bool { return channels(s) == 0 }) {
			t.Errorf("%d channels after Close", channels(s))
		}
		wantHolds(t, s, "job", lease.Owner(), "1")
		mustUnlock(t, lease)
		x.close()
		x.proxy.Close()
		nothingLeft(t, s)
		if after, ok := resourcesBack(before); !ok {
			t.Errorf("after Close %+v, before %+v", after, before)
		}
	})
}

// A hold that is given back after Close takes no other hold of its owner with it.
func TestCloseKeepsTheOuterHold(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{})
		owner := lock.As(x.locks.NewOwner())
		outer := mustLock(t, x.locks, "job", owner)
		inner := mustLock(t, x.locks, "job", owner)
		if err := x.locks.Close(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, inner)
		wantHolds(t, s, "job", outer.Owner(), "1")
		mustUnlock(t, outer)
		wantHolds(t, s, "job", outer.Owner(), "")
	})
}

// Holds of one owner that are given back at the same time are all given back.
func TestUnlockOfHoldsAtOnce(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{})
		for range 200 {
			owner := lock.As(x.locks.NewOwner())
			outcomes := make(chan error, 3)
			var leases []*lock.Lease
			for range cap(outcomes) {
				leases = append(leases, mustLock(t, x.locks, "job", owner))
			}
			for _, l := range leases {
				go func() { outcomes <- l.Unlock(t.Context()) }()
			}
			for range leases {
				if err := <-outcomes; err != nil {
					t.Fatalf("Unlock = %v", err)
				}
			}
		}
		x.close()
		nothingLeft(t, s)
	})
}

// The release of a hold that has been lost does not touch the lock that its owner has taken again since.
func TestUnlockOfAnOldHold(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{})
		owner := lock.As(x.locks.NewOwner())
		old := mustLock(t, x.locks, "job", owner, lock.For(50*time.Millisecond))
		if !eventually(patience, func() bool { return s.Do("EXISTS", "job").Equal(s.Do("EXISTS", "nothing")) }) {
			t.Fatal("the lease does not end")
		}
		lease := mustLock(t, x.locks, "job", owner)
		if err := old.Unlock(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("Unlock of a hold whose lease ended = %v, want ErrNotHeld", err)
		}
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("the new hold: %v", err)
		}
		wantHolds(t, s, "job", lease.Owner(), "1")
		mustUnlock(t, lease)
		x.close()
		nothingLeft(t, s)
	})
}
