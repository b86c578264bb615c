package lock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// late has the first request for a script disappear along with its connection. The function returned has it arrive after
// all, as what was in a buffer of the network when a connection died may.
func (w *world) late(operation string) (arrive func()) {
	var args []string
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if args == nil && isScript(cmd, operation) {
			args = cmd.Args
			return fakeredis.Close()
		}
		return fakeredis.Run()
	})
	return func() {
		w.t.Helper()
		w.srv.Intercept(nil)
		if args == nil {
			w.t.Fatalf("no %s was sent", operation)
		}
		w.srv.Do(args...)
	}
}

// A release that arrives after its repeat was answered gives back no second hold.
func TestLateReleaseTakesNoOtherHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner))
		arrive := w.late("release")
		mustUnlock(t, inner)
		w.sleep(time.Second)
		arrive()
		w.wantHolds("job", "1", outer)
		mustUnlock(t, outer)

		outer = mustLock(t, c, "job", lock.As(owner))
		arrive = w.late("release")
		mustUnlock(t, outer)
		again := mustLock(t, c, "job", lock.As(owner))
		w.sleep(time.Second)
		arrive()
		w.wantHolds("job", "1", again)
		mustUnlock(t, again)
		w.sleep(latchLife)
		w.free()
	})
}

// Nor does a release by one who cannot have another hold, whose latch the next release uses again; a repeat of it finds that.
func TestLateReleaseOfASingleHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		arrive := w.late("release")
		mustUnlock(t, lease)
		arrive()
		again := mustLock(t, c, "job")
		arrive()
		w.wantHolds("job", "1", again)

		runs := 0
		w.onScript("release", func(n int) fakeredis.Action {
			if runs = n; n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		mustUnlock(t, again)
		if latches := w.srv.Do("KEYS", "redisson_unlock_latch:*"); runs != 2 || len(latches.([]any)) != 1 {
			t.Errorf("%d releases, latches %v; want 2 with the one latch of both", runs, latches)
		}

		taken := mustLock(t, c, "job")
		if did, err := c.Reentrant("job").ForceUnlock(t.Context()); !did || err != nil {
			t.Fatalf("ForceUnlock() = %v, %v", did, err)
		}
		w.onScript("release", func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		wantErr(t, "Unlock() of what had been freed, repeated", taken.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()
	})
}

// A release that found nothing, because the lease had ended, finds nothing later either.
func TestLateReleaseOfAnEndedLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		old := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
		w.sleep(2 * time.Second)
		arrive := w.late("release")
		wantErr(t, "Unlock", old.Unlock(t.Context()), lock.ErrNotHeld)
		lease := mustLock(t, c, "job", lock.As(owner))
		arrive()
		w.wantHolds("job", "1", lease)
		mustUnlock(t, lease)
		w.sleep(latchLife)
		w.free()
	})
}

// An undo that arrives after its repeat was answered takes back no later acquire.
func TestLateUndoTakesNoLaterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		arrive := w.late("undo")
		w.srv.Latency(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Reentrant("job").TryLock(ctx, lock.As(owner)); err == nil {
			t.Fatal("TryLock() succeeded without an answer")
		}
		inner := mustLock(t, c, "job", lock.As(owner))
		arrive()
		w.wantHolds("job", "2", inner)
		mustUnlock(t, inner)
		w.wantHolds("job", "1", outer)
		mustUnlock(t, outer)
		w.sleep(latchLife)
		w.free()
	})
}

// An undo is sent behind its acquire, on the same connection, also where there are several and it is one of many.
func TestUndoFollowsItsAcquire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{Conns: 4}, lock.Config{})
		// The names are on three connections. While the undo of a is under way those of b and c come together.
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScript(cmd, "acquire") && cmd.Args[3] == "c":
				return fakeredis.Delay(time.Second, fakeredis.Run())
			case isScript(cmd, "acquire"):
				return fakeredis.Run().Late(150 * time.Millisecond)
			}
			return fakeredis.Run()
		})
		var wg sync.WaitGroup
		for i, name := range []string{"a", "b", "c"} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+i)*time.Millisecond)
				defer cancel()
				if _, err := c.Reentrant(name).TryLock(ctx, lock.For(time.Hour)); err == nil {
					t.Errorf("TryLock(%q) succeeded without an answer", name)
				}
			})
		}
		wg.Wait()
		w.sleep(30 * time.Second)
		w.free()
	})
}

// The caller leaves and the connection dies at the same moment, with the acquire on its way.
func TestUndoOfALateAcquireOfACallerThatLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var args []string
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScript(cmd, "acquire") {
				cancel()
				args = cmd.Args
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		if _, err := c.Reentrant("job").TryLock(ctx, lock.For(time.Hour)); err == nil {
			t.Fatal("TryLock() succeeded without an answer")
		}
		w.sleep(time.Second)
		w.srv.Intercept(nil)
		w.srv.Do(args...)
		w.sleep(10 * time.Second)
		w.free()
	})
}

// A grant that took longer than the lease is none: Lock asks again, and TryLock says so.
func TestGrantThatComesTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		slow := func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.Run().Late(2 * time.Second)
			}
			return fakeredis.Run()
		}
		w.onScript("acquire", slow)
		lease := mustLock(t, c, "job", lock.For(time.Second))
		if err := lease.Err(); err != nil {
			t.Errorf("Lock() returned a lease that was over: %v", err)
		}
		mustUnlock(t, lease)
		for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
			w.onScript("acquire", slow)
			_, err := c.Reentrant("job").TryLock(t.Context(), append(opts, lock.For(time.Second))...)
			lostBecause(t, err, lock.Expired)
			if errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("TryLock() = %v, as if somebody had the lock", err)
			}
		}
		w.free()
	})
}

// besideAWaiter calls further while an owner has a lock for which another caller of the process waits. Both get it in turn.
func (w *world) besideAWaiter(c *lock.Client, owner lock.Option, further func()) {
	w.t.Helper()
	outer := mustLock(w.t, c, "job", owner)
	behind := make(chan *lock.Lease)
	go func() { behind <- mustLock(w.t, c, "job") }()
	w.sleep(time.Second)
	further()
	mustUnlock(w.t, outer)
	mustUnlock(w.t, <-behind)
	w.free()
}

// An Owner whose further hold was granted too late asks again at once, also behind others, who wait for the release of the first.
func TestFurtherHoldThatComesTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		w.besideAWaiter(c, owner, func() {
			w.onScript("acquire", func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.Run().Late(2 * time.Second)
				}
				return fakeredis.Run()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := c.Reentrant("job").Lock(ctx, owner, lock.For(time.Second)); err != nil {
				t.Errorf("Lock of the holder = %v", err)
			}
		})
	})
}

// An Owner whose further holds are all granted too late gives up as others do, also behind others, who wait for its release.
func TestFurtherHoldsThatAllComeTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		w.besideAWaiter(c, owner, func() {
			w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Run().Late(500 * time.Millisecond) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			_, err := c.Reentrant("job").Lock(ctx, owner, lock.For(100*time.Millisecond))
			lostBecause(t, err, lock.Expired)
			if took := time.Since(start); took < 30*time.Second || took > 33*time.Second {
				t.Errorf("Lock gave up after %v, want about 30s", took)
			}
		})
	})
}

// A server that grants too late every time has been asked, and the lock was not to be had: a wait that ends with its
// context says that, and one that could go on is given up after a lease of the client's.
func TestGrantsThatAllComeTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Run().Late(500 * time.Millisecond) })
		for after := 600 * time.Millisecond; after < 3*time.Second; after += 150 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, err := c.Reentrant("job").Lock(ctx, lock.For(100*time.Millisecond))
			cancel()
			for _, want := range []error{lock.ErrNotAcquired, context.DeadlineExceeded} {
				wantErr(t, "Lock that ends after "+after.String(), err, want)
			}
			if errors.Is(err, lock.ErrLost) {
				t.Errorf("Lock that ends after %v = %v, but nothing had been acquired", after, err)
			}
			w.sleep(time.Minute)
		}
		start := time.Now()
		_, err := c.Reentrant("job").Lock(t.Context(), lock.For(100*time.Millisecond))
		lostBecause(t, err, lock.Expired)
		if took := time.Since(start); took < 30*time.Second || took > 33*time.Second {
			t.Errorf("Lock gave up after %v, want about 30s", took)
		}
		w.free()
	})
}

// A grant that came too late is an answer all the same: a server that could not be reached for almost as long as a waiter puts
// up with, and then was slow once, is there again.
func TestGrantThatComesTooLateAfterAnOutage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		w.onScript("acquire", func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.Run().Late(5 * time.Second)
			}
			return fakeredis.Run()
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			w.sleep(28 * time.Second)
			w.srv.Refuse(false)
		})
		lease, err := c.Reentrant("job").Lock(t.Context(), lock.For(time.Second))
		wg.Wait()
		if err != nil {
			t.Fatalf("Lock() = %v", err)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// slowClient returns a client that looks at the answer to the first script after slow is set a while after it has come,
// as one that gets no processor does.
func (w *world) slowClient() (c *lock.Client, slow *atomic.Bool) {
	w.t.Helper()
	slow = new(atomic.Bool)
	trace := &conn.Trace{CommandEnd: func(_ context.Context, info conn.CommandEnd) {
		if (info.Name == "EVALSHA" || info.Name == "SCRIPT") && slow.CompareAndSwap(true, false) {
			w.sleep(100 * time.Millisecond)
		}
	}}
	return w.clientOn(conn.Config{Trace: trace}, lock.Config{}), slow
}

// Who forces a lock is slow to learn that it worked; the next holder is not the one it was taken from.
func TestForceSparesTheNextHolder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, slow := w.slowClient()
		old := mustLock(t, c, "job")
		next := make(chan *lock.Lease, 1)
		go func() {
			lease, err := c.Reentrant("job").Lock(t.Context())
			if err != nil {
				t.Errorf("Lock() = %v", err)
			}
			next <- lease
		}()
		w.sleep(time.Second)
		slow.Store(true)
		if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lostBecause(t, old.Err(), lock.Forced)
		lease := <-next
		if lease == nil {
			return
		}
		w.wantHolds("job", "1", lease)
		mustUnlock(t, lease)
		w.free()
	})
}

// The watchdog is slow to learn that the lock was forced; what the owner has taken since is another matter.
func TestDeniedRenewalSparesALaterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, slow := w.slowClient()
		owner := c.NewOwner()
		first := mustLock(t, c, "job", lock.As(owner))
		w.sleep(9 * time.Second)
		w.srv.Do("DEL", "job")
		slow.Store(true)
		w.sleep(time.Second + 50*time.Millisecond)
		second := mustLock(t, c, "job", lock.As(owner))
		w.sleep(time.Second)
		lostBecause(t, first.Err(), lock.Forced)
		wantErr(t, "Unlock", first.Unlock(t.Context()), lock.ErrNotHeld)
		w.wantHolds("job", "1", second)
		mustUnlock(t, second)
		w.free()
	})
}

// A release repeated for so long that its latch may have expired is confirmed in another way. The last request for it, which comes
// only then, gives back neither a further hold of the owner nor a later one.
func TestHeldUpReleaseBehindItsConfirmation(t *testing.T) {
	for kind, of := range releases {
		for _, nested := range []bool{true, false} {
			if nested && kind == "plain" {
				continue // nobody has it twice
			}
			t.Run(fmt.Sprint(kind, " nested ", nested), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{Lease: time.Minute})
					o := lock.As(c.NewOwner())
					var other *lock.Lease
					if nested {
						other = mustHave(t, of(c), o)
					}
					lease := mustHave(t, of(c), o)
					var mu sync.Mutex
					var late []string
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						mu.Lock()
						defer mu.Unlock()
						if isScriptOf(kind, cmd, "release") {
							late = slices.Clone(cmd.Args)
							return fakeredis.Close()
						}
						return fakeredis.Run()
					})
					for first := time.Now(); ; w.sleep(10 * time.Millisecond) {
						err := lease.Unlock(t.Context())
						if wantErr(t, "Unlock", err, lock.ErrUncertain); strings.Contains(err.Error(), "released now") {
							break
						}
						if time.Since(first) > time.Minute {
							t.Fatalf("Unlock() = %v after a minute", err)
						}
					}
					if !nested {
						other = mustHave(t, of(c), o)
					}
					w.srv.Intercept(nil)
					w.srv.Do(late...)
					if err := other.Check(t.Context()); err != nil {
						t.Errorf("the other hold: %v", err)
					}
					mustUnlock(t, other)
				})
			})
		}
	}
}

func TestLatches(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for key, lasts := range map[string]int{
			"redisson_unlock_latch:{jo*}:2": 3000, "redisson_unlock_latch:{jo*}:1": 2000, // of the name jo*
			"redisson_unlock_latch:{job}:1": 1000, "redisson_unlock_latch:{jo*}": 1000, "jo*": 1000,
		} {
			w.srv.Do("SET", key, "1", "PX", strconv.Itoa(lasts))
		}
		want := []lock.Latch{
			{Key: "redisson_unlock_latch:{jo*}:1", Remaining: 2 * time.Second},
			{Key: "redisson_unlock_latch:{jo*}:2", Remaining: 3 * time.Second},
		}
		for _, name := range []string{"jo*", "{jo*}"} {
			if found, err := c.Latches(t.Context(), name); err != nil || !reflect.DeepEqual(found, want) {
				t.Errorf("Latches(%s) = %v, %v, want %v", name, found, err, want)
			}
		}
		if found, err := c.Latches(t.Context(), "free"); err != nil || len(found) != 0 {
			t.Errorf("Latches() without any = %v, %v", found, err)
		}
		_, err := c.Latches(t.Context(), "a{b")
		wantErr(t, "Latches of a bad name", err, lock.ErrInvalid)
	})
}

// The latch of a release is deleted soon after the answer.
func TestLatchOfARelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		mustUnlock(t, lease)
		found, err := c.Latches(t.Context(), "job")
		if err != nil || len(found) != 1 || found[0].Remaining > 20*time.Second {
			t.Errorf("Latches() just after a release = %v, %v", found, err)
		}
		w.sleep(time.Second)
		if found, err := c.Latches(t.Context(), "job"); err != nil || len(found) != 0 {
			t.Errorf("Latches() a second after a release = %v, %v", found, err)
		}
	})
}

// The outcomes of releases are forgotten by one command for many, or, where the keys cannot be in one command, by one for
// each.
func TestLatchesAreDeletedTogether(t *testing.T) {
	for _, test := range []struct {
		name    string
		cluster bool
		want    [2]int // commands that delete, in the first round and in the second
	}{
		{"one server", false, [2]int{1, 1}},
		{"node of a cluster", true, [2]int{1 + 5, 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if test.cluster && cmd.Name == "DEL" && len(cmd.Args) > 2 {
						return fakeredis.Reply("-CROSSSLOT Keys in request don't hash to the same slot\r\n")
					}
					return fakeredis.Run()
				})
				for _, want := range test.want {
					w.srv.ClearLog()
					for i := range 5 {
						mustUnlock(t, mustLock(t, c, fmt.Sprint("job", i)))
					}
					w.sleep(time.Second)
					if got := w.srv.Count("DEL"); got != want || len(w.srv.Keys()) > 0 {
						t.Errorf("%d commands to delete latches, want %d; left: %v", got, want, w.srv.Dump())
					}
				}
			})
		})
	}
}

// Locks that are forced one after the other are told within a second, also by a server far away: news that have arrived together share a
// round trip.
func TestManyForcedLocksAreToldWithinASecond(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.listening(), w.client(lock.Config{})
		var leases []*lock.Lease
		for i := range 100 {
			leases = append(leases, mustLock(t, c, strconv.Itoa(i)))
		}
		w.sleep(2 * time.Second)
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 1 && cmd.Args[1] == kinds.All()["reentrant"]["renew"].Digest() {
				return fakeredis.Run().Late(20 * time.Millisecond)
			}
			return fakeredis.Run()
		})
		for _, l := range leases {
			if forced, err := other.Reentrant(l.Name()).ForceUnlock(t.Context()); err != nil || !forced {
				t.Fatal(forced, err)
			}
		}
		w.sleep(time.Second)
		told := 0
		for _, l := range leases {
			if errors.Is(l.Err(), lock.ErrLost) {
				told++
			}
		}
		if told != len(leases) {
			t.Errorf("%d of %d are told", told, len(leases))
		}
	})
}
