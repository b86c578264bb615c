package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

func (w *world) holds(t *testing.T, c *lock.Client, name string) int64 {
	t.Helper()
	info, err := c.Reentrant(name).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Holders) == 0 {
		return 0
	}
	return info.Holders[0].Holds
}

func TestReentryCountsHolds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner))
		if n := w.holds(t, c, "job"); n != 2 {
			t.Errorf("%d holds, want 2", n)
		}
		if outer.Owner() != owner.String() || inner.Owner() != owner.String() {
			t.Errorf("owners %q and %q, want %q", outer.Owner(), inner.Owner(), owner)
		}
		// In any order: holds are equal.
		mustUnlock(t, outer)
		if n := w.holds(t, c, "job"); n != 1 {
			t.Errorf("%d holds after one Unlock, want 1", n)
		}
		if err := inner.Err(); err != nil {
			t.Errorf("Err() of the hold that remains = %v", err)
		}
		mustUnlock(t, inner)
		w.free()
	})
}

// Redisson sets the lease to the inner hold's and loses the outer one with it.
func TestReentryNeverShortensTheOuterLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner), lock.For(time.Minute))
		inner := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
		if got := w.ttl("job"); got != time.Minute {
			t.Errorf("lease %v after re-entry for 1s, want 1m", got)
		}
		time.Sleep(2 * time.Second)
		lostBecause(t, inner.Err(), lock.Expired)
		if err := outer.Err(); err != nil {
			t.Errorf("outer Err() = %v", err)
		}
		mustUnlock(t, inner)
		if got := w.ttl("job"); got != 58*time.Second {
			t.Errorf("lease %v after the partial unlock, want the outer hold's 58s", got)
		}
		mustUnlock(t, outer)
		w.free()
	})
}

func TestPartialUnlockRestoresTheOuterLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner), lock.For(10*time.Second))
		inner := mustLock(t, c, "job", lock.As(owner), lock.For(time.Hour))
		if got := w.ttl("job"); got != time.Hour {
			t.Errorf("lease %v after re-entry for 1h, want 1h", got)
		}
		time.Sleep(4 * time.Second)
		mustUnlock(t, inner)
		if got := w.ttl("job"); got != 6*time.Second {
			t.Errorf("lease %v after the partial unlock, want the outer hold's 6s", got)
		}
		mustUnlock(t, outer)
		w.free()
	})
}

// The outer hold is renewed, the inner one is not: the end of the inner one leaves renewal alone, which Redisson stops.
// Waiters sleep until the end of the longest lease. They learn that an inner hold has taken it along, by a release or an undo.
func TestWaitersLearnOfAShorterLease(t *testing.T) {
	for name, job := range map[string]func(c *lock.Client) goldenLock{
		"Reentrant": func(c *lock.Client) goldenLock { return c.Reentrant("job") },
		"Fenced":    func(c *lock.Client) goldenLock { return c.Fenced("job") },
		"Fair":      func(c *lock.Client) goldenLock { return c.Fair("job") },
		"Write":     func(c *lock.Client) goldenLock { return c.ReadWrite("job").Write() },
		"Group":     func(c *lock.Client) goldenLock { return c.FasterMulti("job", "1", "2") },
	} {
		for _, undone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, undone: %v", name, undone), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { w.shortens(job, undone) })
			})
		}
	}
}

// shortens takes a lock for 5 s, and by an inner hold for a minute until another client waits, and lets the lock expire.
func (w *world) shortens(job func(c *lock.Client) goldenLock, undone bool) {
	t := w.t
	c, other := w.client(lock.Config{}), w.client(lock.Config{})
	owner := lock.As(c.NewOwner())
	begin := time.Now()
	mustHave(t, job(c), owner, lock.For(5*time.Second))
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if undone && strings.HasPrefix(cmd.Name, "EVAL") && slices.Contains(cmd.Args, "60000") {
			return fakeredis.Run().Late(time.Second)
		}
		return fakeredis.Run()
	})
	free := make(chan *lock.Lease, 1)
	time.AfterFunc(100*time.Millisecond, func() {
		lease, err := job(other).Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		free <- lease
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	inner, err := job(c).Lock(ctx, owner, lock.For(time.Minute))
	if undone != (err != nil) {
		t.Fatalf("Lock of an inner hold = %v", err)
	}
	if w.sleep(time.Second); inner != nil {
		mustUnlock(t, inner)
	}
	next := <-free
	if took := time.Since(begin); took < 5*time.Second || took > 6*time.Second {
		t.Errorf("the waiter has the lock after %v, and it was held for 5s", took)
	}
	mustUnlock(t, next)
	w.sleep(latchLife)
	w.srv.Do("DEL", "redisson_lock_token:{job}")
	w.free()
}

func TestEachHoldHasItsOwnRenewal(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner), lock.For(5*time.Second))
		mustUnlock(t, inner)
		time.Sleep(10 * time.Minute)
		if err := outer.Err(); err != nil {
			t.Fatalf("outer Err() = %v", err)
		}
		again := mustLock(t, c, "job", lock.As(owner))
		mustUnlock(t, outer)
		time.Sleep(10 * time.Minute)
		if err := again.Err(); err != nil {
			t.Fatalf("Err() of the hold that remains = %v", err)
		}
		mustUnlock(t, again)
		w.free()
	})
}

// An outer hold that has ended and was never released does not keep the lock when the inner one goes.
func TestLastLivingHoldFreesTheLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
		inner := mustLock(t, c, "job", lock.As(owner))
		time.Sleep(time.Minute)
		lostBecause(t, outer.Err(), lock.Expired)
		mustUnlock(t, inner)
		wantErr(t, "Unlock of the outer hold", outer.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()
	})
}

func TestWithoutAnOwnerASecondLockWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		first := mustLock(t, c, "job")
		_, err := c.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrNotAcquired)
		second := make(chan *lock.Lease)
		go func() { second <- mustLock(t, c, "job") }()
		time.Sleep(time.Hour)
		select {
		case <-second:
			t.Fatal("a second Lock got the lock while the first has it")
		default:
		}
		mustUnlock(t, first)
		synctest.Wait()
		mustUnlock(t, <-second)
		w.free()
	})
}

func TestOwnersThatCannotWork(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		for name, owner := range map[string]lock.Owner{"zero": {}, "another client's": other.NewOwner()} {
			_, err := c.Reentrant("job").Lock(t.Context(), lock.As(owner))
			if wantErr(t, name, err, lock.ErrInvalid); w.srv.Count("EVALSHA") != 0 {
				t.Errorf("%s owner: a script was sent", name)
			}
		}
		if one, two := c.NewOwner(), c.NewOwner(); one.String() == two.String() {
			t.Error("two owners have the same name")
		}
	})
}

// The release of one hold and the end of another, or an acquire that is given up, meet: each finds what it has to.
func TestHoldsOfOneOwnerEndTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(10 * time.Millisecond)
		owner := c.NewOwner()
		for range 3 {
			var leases []*lock.Lease
			for range 3 {
				leases = append(leases, mustLock(t, c, "job", lock.As(owner)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
			defer cancel()
			outcomes := make(chan error)
			go func() { // no answer before its context ends: it is undone
				_, err := c.Reentrant("job").Lock(ctx, lock.As(owner))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock() = %v", err)
				}
				outcomes <- nil
			}()
			time.Sleep(5 * time.Millisecond)
			for _, l := range leases {
				go func() { outcomes <- l.Unlock(t.Context()) }()
			}
			for range 4 {
				if err := <-outcomes; err != nil {
					t.Errorf("Unlock() = %v", err)
				}
			}
			time.Sleep(latchLife)
			w.free()
		}
	})
}

// A lease that ended, by time or by force, is released after its owner has taken the lock anew.
func TestUnlockSparesWhatWasTakenSince(t *testing.T) {
	for name, end := range map[string]func(*world){
		"expired": func(*world) { time.Sleep(2 * time.Second) },
		"forced":  func(w *world) { w.srv.Do("DEL", "job") },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := c.NewOwner()
				old := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
				end(w)
				lease := mustLock(t, c, "job", lock.As(owner))
				wantErr(t, "Unlock of the lease that had ended", old.Unlock(t.Context()), lock.ErrNotHeld)
				w.wantHolds("job", "1", lease)
				mustUnlock(t, lease)
				w.free()
			})
		})
	}
}

// The server grants an owner its first hold: whatever it believes to hold since earlier had been lost in between, and the
// renewals of the new hold must not hide that.
func TestNewHoldTellsEarlierOnes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		old := mustLock(t, c, "job", lock.As(owner))
		w.srv.Do("DEL", "job")
		next := mustLock(t, c, "job", lock.As(owner))
		time.Sleep(time.Minute)
		lostBecause(t, old.Err(), lock.Forced)
		w.wantHolds("job", "1", next)
		mustUnlock(t, next)
		w.free()
	})
}

func TestConcurrentUnlocksOfOneOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(time.Millisecond)
		owner := c.NewOwner()
		var leases []*lock.Lease
		for range 3 {
			leases = append(leases, mustLock(t, c, "job", lock.As(owner)))
		}
		var wg sync.WaitGroup
		for _, l := range leases {
			wg.Go(func() {
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock() = %v", err)
				}
			})
		}
		wg.Wait()
		w.free()
	})
}

// Calls of one Owner that wait for somebody else are holds of one owner when the lock is free: none waits for another, nor
// for a stranger who stands between them in line.
func TestWaitingCallsOfOneOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		other, c := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		taken := mustLock(t, other, "job")
		leases := make(chan *lock.Lease, 3)
		call := func(opts ...lock.Option) {
			go func() { leases <- mustLock(t, c, "job", opts...) }()
			synctest.Wait()
		}
		call(lock.As(owner))
		call()
		call(lock.As(owner))
		mustUnlock(t, taken)
		start := time.Now()
		first, second := <-leases, <-leases
		if first.Owner() != owner.String() || second.Owner() != owner.String() || time.Since(start) != 0 {
			t.Errorf("after %v the holders are %s and %s, want both to be %v", time.Since(start), first.Owner(), second.Owner(), owner)
		}
		w.wantHolds("job", "2", first)
		mustUnlock(t, first)
		mustUnlock(t, second)
		mustUnlock(t, <-leases)
		w.free()
	})
}

// A call that waits at the front takes part in what the same Owner gets by TryLock.
func TestTryLockOfAWaitingOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		c.OnlyWoken()
		owner := c.NewOwner()
		w.srv.Do("HSET", "job", "stranger:1", "1")
		waiting := make(chan *lock.Lease)
		go func() { waiting <- mustLock(t, c, "job", lock.As(owner)) }()
		time.Sleep(time.Second)
		w.srv.Do("DEL", "job") // and nobody is told
		tried, err := c.Reentrant("job").TryLock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, <-waiting)
		mustUnlock(t, tried)
		w.free()
	})
}

// To the server a lock is the same in all kinds that look alike, and so are its holds.
func TestKindsShareTheHoldsOfAnOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		handles := map[string]*lock.Handle{
			"Reentrant": &c.Reentrant("job").Handle, "Spin": &c.Spin("job", lock.Backoff{}).Handle, "Fenced": &c.Fenced("job").Handle,
			"Fair": &c.Fair("job").Handle, "NonReentrant": &c.NonReentrant("job").Handle,
		}
		for around, first := range handles {
			for within, second := range handles {
				if within == "NonReentrant" {
					continue
				}
				owner := lock.As(c.NewOwner())
				outer, err := first.Lock(t.Context(), owner)
				if err != nil {
					t.Fatal(err)
				}
				inner, err := second.Lock(t.Context(), owner)
				if err != nil {
					t.Fatal(err)
				}
				mustUnlock(t, inner)
				w.wantHolds("job", "1", outer)
				if forced, err := second.ForceUnlock(t.Context()); !forced || err != nil || outer.Err() == nil {
					t.Errorf("%s within %s: ForceUnlock() = %v, %v, and the holder is told %v", within, around, forced, err, outer.Err())
				}
			}
		}
		w.srv.Do("DEL", "redisson_lock_token:{job}")
		w.free()
	})
}

// A further hold that the server was asked for in vain does not stand behind those who wait for the owner to go.
func TestReentryStandsBehindNobody(t *testing.T) {
	for name, halves := range map[string]func(c *lock.Client) (outer, inner *lock.Handle){
		"reentrant": func(c *lock.Client) (_, _ *lock.Handle) { h := &c.Reentrant("job").Handle; return h, h },
		"read beneath write": func(c *lock.Client) (_, _ *lock.Handle) {
			l := c.ReadWrite("job")
			return &l.Write().Handle, &l.Read().Handle
		},
	} {
		for _, broken := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " ", broken), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { w.reenters(broken, halves) })
			})
		}
	}
}

// reenters has an owner take a hold within another one while somebody waits, with so many answers lost.
func (w *world) reenters(broken int, halves func(*lock.Client) (outer, inner *lock.Handle)) {
	c := w.client(lock.Config{})
	owner := lock.As(c.NewOwner())
	outer, inner := halves(c)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	take := func(h *lock.Handle, opts ...lock.Option) *lock.Lease {
		lease, err := h.Lock(ctx, opts...)
		if err != nil && h == inner && len(opts) > 0 {
			w.t.Errorf("Lock() by the owner = %v", err)
		}
		return lease
	}
	around := take(outer, owner)
	behind := make(chan *lock.Lease)
	go func() { behind <- take(inner) }()
	w.sleep(time.Second)
	lost := 0
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name != "EVALSHA" || lost == broken || !slices.Contains(cmd.Args, around.Owner()) && !slices.Contains(cmd.Args, strings.TrimSuffix(around.Owner(), ":write")) {
			return fakeredis.Run()
		}
		lost++
		return fakeredis.RunThenClose()
	})
	within := take(inner, owner)
	if w.t.Failed() {
		around.Unlock(ctx)
		<-behind
		return
	}
	mustUnlock(w.t, within)
	mustUnlock(w.t, around)
	mustUnlock(w.t, <-behind)
	w.sleep(latchLife)
	w.free()
}

// An Owner may have any number of locks, one after the other: the client forgets those without holds, and no others.
func TestOwnerOfManyLocks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		old := mustLock(t, c, "old", lock.As(owner), lock.For(time.Second))
		outer, inner := mustLock(t, c, "kept", lock.As(owner)), mustLock(t, c, "kept", lock.As(owner))
		w.sleep(2 * time.Second)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for i := range 300 {
					mustUnlock(t, mustLock(t, c, fmt.Sprint(i), lock.As(owner)))
				}
			})
		}
		callers.Wait()
		if n := owner.Records(); n > 100 {
			t.Errorf("records of %d locks are kept", n)
		}
		again := mustLock(t, c, "old", lock.As(owner))
		wantErr(t, "Unlock of the lease that had ended", old.Unlock(t.Context()), lock.ErrNotHeld)
		w.wantHolds("old", "1", again)
		mustUnlock(t, again)
		mustUnlock(t, inner)
		w.wantHolds("kept", "1", outer)
		mustUnlock(t, outer)
		w.free()
	})
}

// A hold that the client has lost and the server still has is released by its Unlock, however many locks the Owner had in between.
func TestLostHoldOfAnOwnerOfManyLocks(t *testing.T) {
	for name, test := range map[string]struct {
		opts []lock.Option
		lose func(t *testing.T, w *world, l *lock.Lease)
	}{
		"held too long": {[]lock.Option{lock.AtMost(time.Second)}, func(*testing.T, *world, *lock.Lease) {}},
		"extended without an answer": {[]lock.Option{lock.For(time.Second)}, func(t *testing.T, w *world, l *lock.Lease) {
			w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Drop() })
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			wantErr(t, "Extend", l.Extend(ctx, time.Hour), conn.ErrUncertain)
			w.srv.Intercept(nil)
		}},
		"not renewed": {nil, func(_ *testing.T, w *world, _ *lock.Lease) {
			w.onScript("renew", func(int) fakeredis.Action { return fakeredis.Drop() })
			w.sleep(29 * time.Second)
			w.srv.Intercept(nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := c.NewOwner()
				l := mustLock(t, c, "job", append(test.opts, lock.As(owner))...)
				test.lose(t, w, l)
				w.sleep(2 * time.Second)
				if l.Err() == nil || w.ttl("job") <= 0 {
					t.Fatalf("the client has lost it: %v; the server has it for %v", l.Err(), w.ttl("job"))
				}
				for i := range 200 {
					mustUnlock(t, mustLock(t, c, fmt.Sprint(i), lock.As(owner)))
				}
				err := l.Unlock(t.Context())
				if left := w.srv.Do("EXISTS", "job"); left != int64(0) {
					t.Errorf("the lock is there after Unlock() = %v", err)
				}
			})
		})
	}
}

// An outer hold whose time was up, unseen, before the server granted the next hold as the first was not removed.
func TestReasonOfAnOuterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: 3 * time.Second})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		w.machine.Sleep(3 * time.Second)
		w.srv.Do("DEL", "job") // the server's clock went on
		inner := mustLock(t, c, "job", lock.As(owner))
		lostBecause(t, outer.Err(), lock.ClockJump)
		mustUnlock(t, inner)
		w.free()
	})
}

// Beside other readers the server counts ended holds of an Owner until their Unlock, which releases them however many locks the Owner had
// in between.
func TestEndedReadHoldsOfAnOwnerOfManyLocks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, keeper := w.client(lock.Config{}), mustRead(t, w.client(lock.Config{}))
		owner := c.NewOwner()
		ended := []*lock.Lease{mustRead(t, c, lock.As(owner), lock.For(time.Second)), mustRead(t, c, lock.As(owner), lock.For(time.Second))}
		w.sleep(10 * time.Second)
		for i := range 200 {
			mustUnlock(t, mustLock(t, c, fmt.Sprint(i), lock.As(owner)))
		}
		_, err := c.ReadWrite("job").Write().TryLock(t.Context(), lock.As(owner))
		wantErr(t, "TryLock to write", err, lock.ErrNotAcquired)
		for _, l := range ended {
			l.Unlock(t.Context())
		}
		if count := w.srv.Do("HGET", "job", owner.String()); count != nil {
			t.Errorf("the server counts %v holds", count)
		}
		mustUnlock(t, keeper)
		w.sleep(latchLife)
		w.free()
	})
}
