package lock_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

const taken = "{pex}:timeout"

// permitsOf returns a semaphore with n permits.
func permitsOf(t *testing.T, c *lock.Client, n int) *lock.PermitSemaphore {
	t.Helper()
	s := c.PermitSemaphore("pex")
	if _, err := s.TrySetPermits(t.Context(), n); err != nil {
		t.Fatalf("TrySetPermits(%d) = %v", n, err)
	}
	return s
}

func take(t *testing.T, s *lock.PermitSemaphore, n int, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := s.AcquireMany(t.Context(), n, opts...)
	if err != nil {
		t.Fatalf("AcquireMany(%d) = %v", n, err)
	}
	return lease
}

// wantPermits fails the test unless there are so many permits in all, free, and taken.
func wantPermits(t *testing.T, s *lock.PermitSemaphore, all, free, acquired int) {
	t.Helper()
	a, err1 := s.Permits(t.Context())
	f, err2 := s.Available(t.Context())
	n, err3 := s.Acquired(t.Context())
	if err := errors.Join(err1, err2, err3); err != nil || a != all || f != free || n != acquired {
		t.Fatalf("%d permits, %d free, %d taken, %v, want %d, %d, %d", a, f, n, err, all, free, acquired)
	}
}

func TestPermitsCount(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, ctx := w.client(lock.Config{}).PermitSemaphore("pex"), t.Context()
		wantPermits(t, s, 0, 0, 0)
		_, err := s.TryAcquire(ctx)
		wantErr(t, "TryAcquire of what nobody set up", err, lock.ErrNotSet)
		for i, want := range []bool{true, false} {
			if set, err := s.TrySetPermits(ctx, 10+5*i); set != want || err != nil {
				t.Errorf("TrySetPermits() = %v, %v, want %v", set, err, want)
			}
		}
		wantOK(t, "SetPermits", s.SetPermits(ctx, 5))
		lease := take(t, s, 3)
		wantPermits(t, s, 5, 2, 3)
		wantOK(t, "SetPermits", s.SetPermits(ctx, 3))
		wantPermits(t, s, 3, 0, 3)
		wantOK(t, "SetPermits", s.SetPermits(ctx, 2))
		wantPermits(t, s, 2, -1, 3)
		wantOK(t, "AddPermits", s.AddPermits(ctx, 5))
		wantOK(t, "AddPermits", s.AddPermits(ctx, -1))
		wantPermits(t, s, 6, 3, 3)
		_, err = s.TryAcquireMany(ctx, 4)
		wantErr(t, "TryAcquireMany(4)", err, lock.ErrNotAcquired)
		wantOK(t, "Unlock", lease.Unlock(ctx))
		wantErr(t, "Release of what is released", s.Release(ctx, lease.PermitIDs()...), lock.ErrNotHeld)
		wantPermits(t, s, 6, 6, 0)
		for _, step := range [][2]int{{5, 11}, {-10, 1}, {-10, -9}} {
			wantOK(t, "AddPermits", s.AddPermits(ctx, step[0]))
			wantPermits(t, s, step[1], step[1], 0)
		}
		w.srv.Do("DEL", "pex")
		wantOK(t, "SetPermits of nothing", s.SetPermits(ctx, 0))
		w.wantKey("pex", "0")
		w.srv.Do("DEL", "pex")
		w.free()
	})
}

func TestPermitsRefuse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, ctx := w.client(lock.Config{}), t.Context()
		s, bad := permitsOf(t, c, 1), c.PermitSemaphore("a}b")
		held := take(t, s, 1)
		_, owner := s.Acquire(ctx, lock.As(c.NewOwner()))
		_, none := s.AcquireMany(ctx, 0)
		_, many := s.TryAcquireMany(ctx, 1001)
		_, short := s.Acquire(ctx, lock.For(time.Millisecond))
		_, acquire := bad.Acquire(ctx)
		_, set := bad.TrySetPermits(ctx, 1)
		_, all := bad.ReleaseAll(ctx)
		_, info := bad.Info(ctx)
		id := held.PermitIDs()[0]
		_, lease := bad.LeaseOf(ctx, id)
		for what, err := range map[string]error{
			"Acquire with an Owner": owner, "AcquireMany(0)": none, "TryAcquireMany(1001)": many, "a short lease": short,
			"Acquire": acquire, "TrySetPermits": set, "ReleaseAll": all, "Info": info, "LeaseOf": lease, "Release": bad.Release(ctx, id),
			"Release()": s.Release(ctx), "Release(a, a)": s.Release(ctx, id, strings.ToUpper(id)), "SetPermits(-1)": s.SetPermits(ctx, -1),
			"UpdateLease for a moment": s.UpdateLease(ctx, strings.Repeat("0", 32), 1), "UpdateLease of a Lease's": s.UpdateLease(ctx, id, time.Hour),
		} {
			wantErr(t, what, err, lock.ErrInvalid)
		}
		for _, unknown := range []string{"", "1234", "x", strings.Repeat("g", 32), strings.Repeat("0", 34), strings.Repeat("0", 32)} {
			wantErr(t, "Release of an unknown id", s.Release(ctx, unknown), lock.ErrNotHeld)
			wantErr(t, "UpdateLease of an unknown id", s.UpdateLease(ctx, unknown, time.Second), lock.ErrNotHeld)
			_, err := s.LeaseOf(ctx, unknown)
			wantErr(t, "LeaseOf an unknown id", err, lock.ErrNotHeld)
		}
		mustUnlock(t, held)
		w.settled("pex")
	})
}

// A semaphore is listed while a permit is taken. The key of a permit outlives the permit's lease, until somebody asks for a permit.
func TestListOfEndedPermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		s := permitsOf(t, c, 2)
		take(t, s, 1, lock.For(time.Second))
		if found := listed(t, c, ""); found["pex"].Info.Permits.Taken != 1 {
			t.Errorf("List() = %+v, want the semaphore", found)
		}
		w.sleep(2 * time.Second)
		if found := listed(t, c, ""); len(found) != 0 {
			t.Errorf("List() after the end of the lease = %+v, want nothing", found)
		}
	})
}

// What is on the wire is Redisson's: ids of 16 bytes, by the server's time at which their leases end.
func TestPermitsOnTheWire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var logged bytes.Buffer
		c := w.client(lock.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		s := permitsOf(t, c, 4)
		lease := take(t, s, 2, lock.For(5*time.Second))
		ids := lease.PermitIDs()
		form := regexp.MustCompile(`^[0-9a-f]{32}$`)
		if len(ids) != 2 || !form.MatchString(ids[0]) || !form.MatchString(ids[1]) || lease.Owner() != ids[0]+","+ids[1] {
			t.Fatalf("PermitIDs() = %q, Owner() = %q", ids, lease.Owner())
		}
		for _, id := range ids {
			raw, _ := hex.DecodeString(id)
			if got, want := fmt.Sprint(w.srv.Do("ZSCORE", taken, string(raw))), fmt.Sprint(time.Now().Add(5*time.Second).UnixMilli()); got != want {
				t.Errorf("the permit's score is %v", got)
			}
			if left, err := s.LeaseOf(t.Context(), id); left != 5*time.Second || err != nil {
				t.Errorf("LeaseOf() = %v, %v", left, err)
			}
		}
		info, err := s.Info(t.Context())
		if err != nil || len(info.Holders) != 2 || info.Locked || info.Permits != (lock.Permits{Set: true, Free: 2, Taken: 2}) {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		for _, h := range info.Holders {
			if !strings.Contains(lease.Owner(), h.Owner) {
				t.Errorf("a holder is %q", h.Owner)
			}
		}
		wantOK(t, "Release", w.client(lock.Config{}).PermitSemaphore("pex").Release(t.Context(), ids[0]))
		wantErr(t, "Check", lease.Check(t.Context()), lock.ErrLost)
		err = lease.Unlock(t.Context())
		wantErr(t, "Unlock", err, lock.ErrNotHeld)
		raw, _ := hex.DecodeString(ids[1])
		if said := err.Error() + logged.String(); strings.Contains(said, string(raw)) || !strings.Contains(logged.String(), "lost") {
			t.Errorf("said %q", said)
		}
		if mustLock(t, c, "job").PermitIDs() != nil {
			t.Error("a lock has ids of permits")
		}
		w.srv.Do("DEL", "job")
		w.sleep(31 * time.Second)
		w.settled("pex")
	})
}

// The watchdog renews a permit, and a permit that somebody else gave back is lost.
func TestPermitsAreRenewed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{}).PermitSemaphore("pex")
		s := permitsOf(t, c, 3)
		one, two := take(t, s, 1), take(t, s, 2)
		w.sleep(95 * time.Second)
		wantPermits(t, s, 3, 0, 3)
		if left, err := other.LeaseOf(t.Context(), one.PermitIDs()[0]); left != 25*time.Second || err != nil {
			t.Errorf("LeaseOf() = %v, %v, want it renewed 5 s ago", left, err)
		}
		wantOK(t, "Check", one.Check(t.Context()))
		wantOK(t, "Release by somebody else", other.Release(t.Context(), two.PermitIDs()[1]))
		<-two.Lost()
		lostBecause(t, two.Err(), lock.Forced)
		wantOK(t, "Err of the other", one.Err())
		wantPermits(t, s, 3, 1, 2) // the rest is not renewed, and not given back either
		wantErr(t, "Unlock", two.Unlock(t.Context()), lock.ErrNotHeld)
		wantPermits(t, s, 3, 2, 1)
		wantOK(t, "Release by the same client", s.Release(t.Context(), one.PermitIDs()...))
		lostBecause(t, one.Err(), lock.Forced)
		wantErr(t, "Unlock", one.Unlock(t.Context()), lock.ErrNotHeld)
		wantPermits(t, s, 3, 3, 0)
		w.settled("pex")
	})
}

// Permits whose lease has ended are free, and who waits for them is served without anybody telling.
func TestPermitsExpire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		s := permitsOf(t, c, 2)
		old := take(t, s, 2, lock.For(2*time.Second))
		start := time.Now()
		next := take(t, other.PermitSemaphore("pex"), 1)
		if took := time.Since(start); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		wantErr(t, "Unlock", old.Unlock(t.Context()), lock.ErrNotHeld)
		wantErr(t, "Release", s.Release(t.Context(), old.PermitIDs()...), lock.ErrNotHeld)
		wantPermits(t, s, 2, 1, 1)
		mustUnlock(t, next)

		late := take(t, s, 1, lock.For(time.Second))
		w.sleep(time.Second)
		wantPermits(t, s, 2, 2, 0) // and the key still has 1
		w.wantKey("pex", "1")
		wantErr(t, "Unlock at the end of the lease", late.Unlock(t.Context()), lock.ErrNotHeld)
		w.wantKey("pex", "2")
		w.settled("pex")
	})
}

func TestPermitsForever(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		s := permitsOf(t, c, 1)
		lease := take(t, s, 1, lock.Forever())
		if until := time.Until(lease.ValidUntil()); until < 200*365*24*time.Hour {
			t.Errorf("ValidUntil() is %v away", until)
		}
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		id := lease.PermitIDs()[0]
		raw, _ := hex.DecodeString(id)
		if got := fmt.Sprint(w.srv.Do("ZSCORE", taken, string(raw))); got != "922337203685477" {
			t.Errorf("the permit's score is %v, not Redisson's", got)
		}
		w.sleep(5 * time.Hour)
		if err := errors.Join(ctx.Err(), lease.Err(), lease.Check(t.Context())); err != nil {
			t.Errorf("after five hours: %v", err)
		}
		if left, err := s.LeaseOf(t.Context(), id); left >= 0 || err != nil {
			t.Errorf("LeaseOf() = %v, %v, want less than 0", left, err)
		}
		if info, err := s.Info(t.Context()); err != nil || !info.Locked || info.Remaining >= 0 {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		if _, err := s.TryAcquire(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryAcquire() = %v", err)
		}
		if n := c.Stats().Renewals; n != 0 {
			t.Errorf("%d renewals", n)
		}
		mustUnlock(t, lease)
		w.settled("pex")
	})
}

func TestPermitsUpdateLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{}).PermitSemaphore("pex")
		s, ctx := permitsOf(t, c, 1), t.Context()
		lease := take(t, s, 1, lock.Forever())
		id := lease.PermitIDs()[0]
		wantOK(t, "UpdateLease", other.UpdateLease(ctx, id, time.Second))
		if left, err := other.LeaseOf(ctx, id); left != time.Second || err != nil {
			t.Errorf("LeaseOf() = %v, %v", left, err)
		}
		wantOK(t, "UpdateLease", other.UpdateLease(ctx, id, 3*time.Second))
		w.sleep(2800 * time.Millisecond)
		wantPermits(t, s, 1, 0, 1)
		if info, err := s.Info(ctx); err != nil || info.Remaining != 200*time.Millisecond {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		w.sleep(500 * time.Millisecond)
		wantPermits(t, s, 1, 1, 0)
		wantErr(t, "UpdateLease of what has ended", other.UpdateLease(ctx, id, time.Second), lock.ErrNotHeld)
		wantErr(t, "Check", lease.Check(ctx), lock.ErrLost)
		wantErr(t, "Unlock", lease.Unlock(ctx), lock.ErrNotHeld)

		short := take(t, s, 1, lock.For(time.Second))
		wantOK(t, "UpdateLease", other.UpdateLease(ctx, short.PermitIDs()[0], -1))
		w.sleep(time.Hour)
		wantPermits(t, s, 1, 0, 1)
		wantOK(t, "Release", other.Release(ctx, short.PermitIDs()...))
		w.settled("pex")
	})
}

// A key that has a lifetime gives it to that of its permits, so that nothing stays when it ends.
func TestPermitsOfAKeyThatExpires(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := permitsOf(t, w.client(lock.Config{}), 1)
		w.srv.Do("PEXPIRE", "pex", "3000")
		take(t, s, 1, lock.For(time.Minute))
		if left := w.ttl(taken); left != 3*time.Second {
			t.Errorf("the ids last %v", left)
		}
		w.sleep(4 * time.Second)
		if n := w.srv.Do("DBSIZE"); n != int64(0) {
			t.Errorf("%v keys are left", n)
		}
		w.sleep(time.Minute)
		w.settled()
	})
}

func TestPermitsReleaseAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		s := permitsOf(t, c, 3)
		mine, theirs := take(t, s, 1, lock.Forever()), take(t, other.PermitSemaphore("pex"), 2)
		for _, want := range []bool{true, false} {
			if any, err := s.ReleaseAll(t.Context()); any != want || err != nil {
				t.Errorf("ReleaseAll() = %v, %v, want %v", any, err, want)
			}
		}
		lostBecause(t, mine.Err(), lock.Forced)
		<-theirs.Lost()
		wantErr(t, "Unlock", theirs.Unlock(t.Context()), lock.ErrNotHeld)
		wantPermits(t, s, 3, 3, 0)
		err := s.Do(t.Context(), func(ctx context.Context) error {
			wantPermits(t, s, 3, 2, 1)
			return ctx.Err()
		})
		wantOK(t, "Do", err)
		w.settled("pex")
	})
}

// A1: the answer to an acquire is lost. Its permits are given back, once, also when the acquire comes late; one that is sent
// twice takes them once.
func TestA01Permits(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{
		"lost answer":  fakeredis.RunThenClose(),
		"lost request": fakeredis.Close(),
		"late request": fakeredis.Delay(4*time.Second, fakeredis.Run()),
	} {
		for _, opts := range [][]lock.Option{nil, {lock.Forever()}} {
			t.Run(name, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					s := permitsOf(t, w.client(lock.Config{}), 5)
					w.onKind("permits", "acquire", first(action))
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := s.TryAcquireMany(ctx, 3, opts...); err == nil || errors.Is(err, lock.ErrNotAcquired) {
						t.Fatalf("TryAcquireMany() = %v without an answer", err)
					}
					w.sleep(10 * time.Second)
					wantPermits(t, s, 5, 5, 0)
					w.onKind("permits", "acquire", first(action))
					lease := take(t, s, 3, opts...)
					w.sleep(10 * time.Second)
					wantPermits(t, s, 5, 2, 3)
					mustUnlock(t, lease)
					wantPermits(t, s, 5, 5, 0)
					w.settled("pex")
				})
			})
		}
	}
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := permitsOf(t, w.client(lock.Config{}), 5)
		acquire := kinds.All()["permits"]["acquire"]
		for range 2 {
			_, err := acquire.Run(t.Context(), w.pools[0], []string{"pex", "c", taken, "latch"}, 30_000, strings.Repeat("x", 16)+strings.Repeat("y", 16), "PUBLISH", 0, 0, soon())
			wantOK(t, "acquire, sent twice", err)
		}
		wantPermits(t, s, 5, 3, 2)
		w.srv.Do("DEL", taken)
		w.settled("pex")
	})
}

// A2: releases and changes whose answers are lost are repeated, are made once, and tell what they did.
func TestA02Permits(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{"lost answer": fakeredis.RunThenClose(), "lost request": fakeredis.Close()} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, ctx := w.client(lock.Config{}), t.Context()
				s := c.PermitSemaphore("pex")
				w.onKind("permits", "set", first(action))
				if set, err := s.TrySetPermits(ctx, 3); !set || err != nil {
					t.Errorf("TrySetPermits() = %v, %v", set, err)
				}
				for _, more := range []int{2, -1} {
					w.onKind("permits", "add", first(action))
					wantOK(t, "AddPermits", s.AddPermits(ctx, more))
				}
				wantPermits(t, s, 4, 4, 0)
				for _, n := range []int{1, 3} {
					lease := take(t, s, n)
					w.onKind("permits", "release", first(action))
					mustUnlock(t, lease)
					wantPermits(t, s, 4, 4, 0)
					lease = take(t, s, n)
					w.onKind("permits", "give", first(action))
					wantOK(t, "Release", s.Release(ctx, lease.PermitIDs()...))
					wantPermits(t, s, 4, 4, 0)
				}
				w.srv.Intercept(nil)
				w.settled("pex")
			})
		})
	}
}

// Whenever an Acquire is given up, the permits are all there in the end, or its lease has them.
func TestPermitsCancelledAtEachStep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(time.Millisecond)
		s, other := permitsOf(t, w.client(lock.Config{}), 2), w.client(lock.Config{}).PermitSemaphore("pex")
		for step := range 60 {
			held := take(t, other, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step)*250*time.Microsecond)
			var lease *lock.Lease
			done := make(chan error)
			go func() {
				var err error
				lease, err = s.AcquireMany(ctx, 2, lock.Forever())
				done <- err
			}()
			w.sleep(4 * time.Millisecond)
			mustUnlock(t, held)
			err := <-done
			cancel()
			w.sleep(time.Second)
			if err == nil {
				wantPermits(t, s, 2, 0, 2)
				mustUnlock(t, lease)
			}
			wantPermits(t, s, 2, 2, 0)
		}
		w.settled("pex")
	})
}

// A20: a message that is lost costs a waiter some seconds, and not the rest of its life.
func TestA20Permits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := permitsOf(t, w.client(lock.Config{}), 0)
		got := make(chan *lock.Lease)
		go func() { got <- take(t, s, 1) }()
		w.sleep(time.Minute)
		w.srv.Do("INCRBY", "pex", "1") // and nobody is told
		start := time.Now()
		mustUnlock(t, <-got)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("served after %v", took)
		}
		w.settled("pex")
	})
}

// Payloads are those that Redisson's listeners count with.
func TestPermitsTell(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, ctx := permitsOf(t, w.client(lock.Config{}), 5), t.Context()
		many, one := take(t, s, 3), take(t, s, 1)
		wantOK(t, "AddPermits", s.AddPermits(ctx, 2))
		wantOK(t, "AddPermits", s.AddPermits(ctx, -2))
		wantOK(t, "SetPermits", s.SetPermits(ctx, 5)) // as many as there are
		mustUnlock(t, one)
		mustUnlock(t, many)
		wantOK(t, "Release", s.Release(ctx, take(t, s, 2).PermitIDs()...))
		wantOK(t, "Release", s.Release(ctx, take(t, s, 1).PermitIDs()...))
		wantOK(t, "SetPermits", s.SetPermits(ctx, 1))
		take(t, s, 1, lock.For(time.Second))
		w.sleep(2 * time.Second)
		mustUnlock(t, take(t, s, 1))
		var told []string
		for _, m := range w.srv.Messages() {
			told = append(told, m.Payload)
		}
		want := "[5 2 2 3 2 5 1 1 1]" // set, added, free, returned, returned, free, set, reclaimed, free
		if fmt.Sprint(told) != want {
			t.Errorf("published %v, want %v", told, want)
		}
		w.settled("pex")
	})
}

// A renewal takes as many permits as it takes locks, or those of one lease: the server does nothing else meanwhile.
func TestRenewalOfManyPermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := permitsOf(t, w.client(lock.Config{RenewBatch: 10}), 40)
		for _, n := range []int{4, 6, 1, 20, 3} {
			defer mustUnlock(t, take(t, s, n))
		}
		w.srv.ClearLog()
		w.sleep(10*time.Second + time.Millisecond)
		if n := w.srv.Count("EVALSHA"); n < 3 || n > 4 {
			t.Errorf("%d scripts for leases of 4, 6, 1, 20 and 3 permits, ten in each", n)
		}
	})
}
