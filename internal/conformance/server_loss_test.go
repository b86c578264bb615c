package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// lossClient returns a client that renews every 20 minutes.
func lossClient(t *testing.T, s *redistest.Server, proto int) *lock.Client {
	t.Helper()
	cfg := s.Config()
	cfg.Protocol = proto
	pool, err := conn.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := lock.New(pool, lock.Config{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = pool.Close()
	})
	return c
}

// holdAll takes a lock of each kind and a permit, and a lock that is not renewed.
func holdAll(t *testing.T, c *lock.Client) map[string]*lock.Lease {
	t.Helper()
	held := make(map[string]*lock.Lease)
	for kind, open := range kindsToHold(c) {
		held[kind] = lockIn(t, open(kind))
		held[kind+" fixed"] = lockIn(t, open(kind+" fixed"), lock.For(time.Hour))
	}
	s := c.PermitSemaphore("permits")
	if _, err := s.TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	lease, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held["permits"] = lease
	return held
}

// wantTold waits until the holders are told of the loss, which a renewal would do much later.
func wantTold(t *testing.T, held map[string]*lock.Lease) {
	t.Helper()
	begin := time.Now()
	timeout := time.After(patience)
	var last time.Duration
	for name, l := range held {
		select {
		case <-l.Lost():
			last = time.Since(begin)
		case <-timeout:
			t.Errorf("the holder of %s is not told", name)
		}
	}
	t.Logf("told after %v", last)
}

// A server that is restarted and has forgotten all locks: the holders are told, though nobody does or waits for anything.
func TestLossByRestart(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		held := holdAll(t, lossClient(t, s, proto))
		s.Kill()
		s.Restart()
		wantTold(t, held)
	})
}

// Locks that another client frees by force, at once and after a while.
func TestLossByForce(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		mine, other := lossClient(t, s, proto), lossClient(t, s, proto)
		for range 2 {
			held := holdAll(t, mine)
			for name := range held {
				var forced bool
				var err error
				if name == "permits" {
					forced, err = other.PermitSemaphore(name).ReleaseAll(t.Context())
				} else {
					for kind, open := range kindsToHold(other) {
						if kind == name || kind+" fixed" == name {
							forced, err = open(name).(interface {
								ForceUnlock(context.Context) (bool, error)
							}).ForceUnlock(t.Context())
						}
					}
				}
				if err != nil || !forced {
					t.Fatalf("ForceUnlock of %s = %v, %v", name, forced, err)
				}
			}
			wantTold(t, held)
		}
	})
}

// A master that dies while nobody does anything but hold locks: they are renewed when its successor is there.
func TestRenewalAfterFailover(t *testing.T) {
	t.Parallel()
	cfg := lock.Config{Lease: 10 * time.Minute, RenewEvery: 2 * time.Minute, Acks: lock.AcksOff}
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		locks, _ := locksOf(t, c, cfg)
		old := c.Masters()[0]
		name := namesOf(c, old, fmt.Sprintf("renewed-%d-", proto), 1)[0]
		lease := lockIn(t, locks.Reentrant(name))
		eventually(t, "that the client listens", func() bool { return locks.Stats().Renewals > 0 })
		before := locks.Stats().Renewals
		old.Kill()
		c.AwaitTakeover(old)
		// What the old master had not replicated yet is lost with it, which is told.
		eventually(t, "that it is renewed, or told of its loss", func() bool { return locks.Stats().Renewals > before || lease.Err() != nil })
		if lost, ok := errors.AsType[*lock.LostError](lease.Err()); ok && lost.Reason != lock.Forced {
			t.Error(lost)
		}
		old.Restart()
		c.Await()
	})
}
