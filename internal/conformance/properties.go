package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

func lockAndUnlock(t *testing.T, s *stage) {
	l := s.locker(lock.Config{})
	for range 3 {
		lease := s.lock(l)
		var info lock.Info
		// A server may still have the last owner: a release does not wait for the last server once the majority has confirmed.
		s.eventually("that Info names the lease's owner with one hold", func() bool {
			var err error
			if info, err = l.Info(t.Context()); err != nil {
				t.Fatalf("Info() = %v", err)
			}
			return info.Locked && slices.ContainsFunc(owners(lease), func(o string) bool { return holdsAlone(info, o, 1) })
		})
		if info.Remaining <= 20*time.Second || info.Remaining > 30*time.Second {
			t.Errorf("remaining lease %v, want 30s or a little less", info.Remaining)
		}
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v", err)
		}
		s.unlock(lease)
		if info, err := l.Info(t.Context()); err != nil || info.Locked || info.Remaining != 0 || info.Holders != nil {
			t.Errorf("Info() of the free lock = %+v, %v", info, err)
		}
	}
}

// holdsAlone reports whether owner is the only holder, with so many holds and a lease of nearly 30 s.
func holdsAlone(info lock.Info, owner string, holds int64) bool {
	if len(info.Holders) != 1 {
		return false
	}
	h := info.Holders[0]
	return h.Owner == owner && h.Holds == holds && h.Remaining > 20*time.Second && h.Remaining <= 30*time.Second
}

func exclusion(t *testing.T, s *stage) {
	if s.kind.rival != nil {
		readersOrWriter(t, s)
		return
	}
	const clients, callers, rounds = 3, 4, 10
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range clients {
		l := s.locker(lock.Config{})
		for range callers {
			wg.Go(func() {
				for range rounds {
					err := l.Do(t.Context(), func(context.Context) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d holders at once", n)
						}
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Errorf("Do() = %v", err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// The lease is an hour: only being woken explains that the waiter gets the lock.
func wakesAnotherClient(t *testing.T, s *stage) {
	other := s.client(lock.Config{})
	holder, waiter := s.locker(lock.Config{}), s.rivalOf(other)
	lease := s.lock(holder, lock.For(time.Hour))
	got := make(chan *lock.Lease)
	go func() { got <- s.lock(waiter) }()
	s.eventually("that the waiter waits", func() bool { return s.waiting(other) == 1 })
	s.eventually("that it listens", func() bool {
		return s.kind.silent || s.listening()
	})
	if _, err := waiter.TryLock(t.Context()); err == nil {
		t.Error("TryLock() of a lock that is taken succeeded")
	}
	s.unlock(lease)
	s.unlock(<-got)
}

func leaseEnds(t *testing.T, s *stage) {
	holder, waiter := s.locker(lock.Config{}), s.rival()
	lease := s.lock(holder, lock.For(600*time.Millisecond))
	next := s.lock(waiter)
	s.wantErr("Err() of the lease that ended", lease.Err(), lock.ErrLost)
	s.wantErr("Unlock() of the lease that ended", lease.Unlock(t.Context()), lock.ErrNotHeld)
	if err := next.Check(t.Context()); err != nil {
		t.Errorf("Check() of the next holder = %v", err)
	}
	s.unlock(next)
}

func renewal(t *testing.T, s *stage) {
	c := s.client(lock.Config{Lease: time.Minute, RenewEvery: 100 * time.Millisecond})
	lease := s.lock(s.open(c))
	first := lease.ValidUntil()
	s.eventually("that the lease is renewed", func() bool { return c.Stats().Renewals >= 3 })
	if !lease.ValidUntil().After(first) {
		t.Errorf("ValidUntil() is still %v after %d renewals", first, c.Stats().Renewals)
	}
	if err := lease.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v", err)
	}
	s.unlock(lease)
	if n := c.Stats().RenewalErrors; n != 0 {
		t.Errorf("%d renewals failed", n)
	}
}

func lossIsTold(t *testing.T, s *stage) {
	l := s.locker(lock.Config{Lease: 3 * time.Second, RenewEvery: 100 * time.Millisecond})
	lease := s.lock(l)
	ctx, cancel := lease.Context(t.Context())
	defer cancel()
	s.lose()
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("nobody told the holder")
	}
	s.wantErr("the context's cause", context.Cause(ctx), lock.ErrLost)
	<-lease.Lost()
	s.wantErr("Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
}

func cancelledWait(t *testing.T, s *stage) {
	holder, waiter := s.locker(lock.Config{}), s.rival()
	lease := s.lock(holder)
	wait := 25 * time.Millisecond
	s.eventually("that the server refuses it before the wait is over", func() bool {
		wait *= 2
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := waiter.Lock(ctx)
		s.wantErr("Lock()", err, context.DeadlineExceeded)
		return errors.Is(err, lock.ErrNotAcquired)
	})
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := waiter.Lock(ended)
	s.wantErr("Lock() under a cancelled context", err, context.Canceled)
	if err := lease.Unlock(ended); err != nil {
		t.Errorf("Unlock() under a cancelled context = %v", err)
	}
}

func force(t *testing.T, s *stage) {
	holder, operator := s.locker(lock.Config{}), s.locker(lock.Config{})
	lease := s.lock(holder)
	s.eventually("that every server has granted it", func() bool {
		return !slices.ContainsFunc(s.servers, func(server Server) bool { return server.Command(t, "DBSIZE") == "0" })
	})
	for _, want := range []bool{true, false} {
		if forced, err := operator.ForceUnlock(t.Context()); err != nil || forced != want {
			t.Errorf("ForceUnlock() = %v, %v, want %v", forced, err, want)
		}
	}
	s.wantErr("Check() of the holder", lease.Check(t.Context()), lock.ErrLost)
	s.unlock(s.lock(operator))
}

func wrongType(t *testing.T, s *stage) {
	l := s.locker(lock.Config{})
	s.command("RPUSH", "job", "kept")
	_, err := l.Lock(t.Context())
	s.wantErr("Lock()", err, lock.ErrWrongType)
	_, err = l.TryLock(t.Context())
	s.wantErr("TryLock()", err, lock.ErrWrongType)
	_, err = l.ForceUnlock(t.Context())
	s.wantErr("ForceUnlock()", err, lock.ErrWrongType)
	_, err = l.Info(t.Context())
	s.wantErr("Info()", err, lock.ErrWrongType)
	if got := s.command("LLEN", "job"); got != "1" {
		t.Errorf("the key now holds %s elements", got)
	}
	s.command("DEL", "job")
}

// A holder whose lock went to somebody else takes nothing from him.
func unlockByAStranger(t *testing.T, s *stage) {
	first, second := s.locker(lock.Config{}), s.rival()
	lease := s.lock(first)
	s.lose()
	next := s.lock(second)
	s.wantErr("Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
	if err := next.Check(t.Context()); err != nil {
		t.Errorf("Check() of the holder = %v", err)
	}
	s.unlock(next)
}

func reentry(t *testing.T, s *stage) {
	c := s.client(lock.Config{})
	l, owner := s.open(c), c.NewOwner()
	outer := s.lock(l, lock.As(owner))
	inner := s.lock(l, lock.As(owner), lock.For(15*time.Second))
	info, err := l.Info(t.Context())
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Holds != 2 || !strings.HasPrefix(info.Holders[0].Owner, owner.String()) {
		t.Errorf("Info() = %+v, %v, want two holds of the owner", info, err)
	}
	if info.Remaining <= 20*time.Second {
		t.Errorf("remaining lease %v: the inner hold shortened it", info.Remaining)
	}
	s.unlock(inner)
	if err := outer.Check(t.Context()); err != nil {
		t.Errorf("Check() of the outer hold = %v", err)
	}
	if info, err := l.Info(t.Context()); err != nil || info.Remaining <= 20*time.Second || info.Holders[0].Holds != 1 {
		t.Errorf("Info() after the inner Unlock = %+v, %v", info, err)
	}
	s.unlock(outer)
}
