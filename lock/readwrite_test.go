package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

func mustHave(t *testing.T, l goldenLock, opts ...lock.Option) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	lease, err := l.Lock(ctx, opts...)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func mustRead(t *testing.T, c *lock.Client, opts ...lock.Option) *lock.Lease {
	t.Helper()
	return mustHave(t, c.ReadWrite("job").Read(), opts...)
}

func mustWrite(t *testing.T, c *lock.Client, opts ...lock.Option) *lock.Lease {
	t.Helper()
	return mustHave(t, c.ReadWrite("job").Write(), opts...)
}

// isTaken fails the test unless l is not to be had by anybody else.
func isTaken(t *testing.T, l goldenLock) {
	t.Helper()
	_, err := l.TryLock(t.Context())
	wantErr(t, "TryLock", err, lock.ErrNotAcquired)
}

// onScriptOf has action decide about the n-th request for a script of a kind, n from 1.
func (w *world) onScriptOf(kind, operation string, action func(n int) fakeredis.Action) {
	n, s := 0, kinds.All()[kind][operation]
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if len(cmd.Args) < 2 || cmd.Args[1] != s.Digest() && cmd.Args[1] != s.Source() {
			return fakeredis.Run()
		}
		n++
		return action(n)
	})
}

// timeoutsLeft is what is left of the leases of so many holds that owner has as a reader.
func (w *world) timeoutsLeft(owner string, holds int64) (left []time.Duration) {
	for n := range holds {
		left = append(left, w.timeoutLeft("job", owner, n+1))
	}
	return left
}

func wantLeft(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: leases of %v, want %v", what, got, want)
	}
}

const noKey = -2 * time.Millisecond

func TestReadersOrOneWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		a, b := w.client(lock.Config{}), w.client(lock.Config{})
		first, second := mustRead(t, a), mustRead(t, b)
		isTaken(t, a.ReadWrite("job").Write())
		mustUnlock(t, first)
		isTaken(t, a.ReadWrite("job").Write())
		mustUnlock(t, second)
		writer := mustWrite(t, a)
		isTaken(t, a.ReadWrite("job").Write())
		isTaken(t, b.ReadWrite("job").Write())
		isTaken(t, b.ReadWrite("job").Read())
		mustUnlock(t, writer)
		w.free()
	})
}

// Each hold has its lease in a key of its own. When one ends, those that are left have what the other holds need, and the
// lock what its readers need.
func TestLeasesOfReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		id := owner.String()
		long := mustRead(t, c, lock.As(owner), lock.For(time.Hour))
		short := mustRead(t, c, lock.As(owner), lock.For(10*time.Second))
		middle := mustRead(t, other, lock.For(time.Minute))
		wantLeft(t, "three holds", w.timeoutsLeft(id, 2), time.Hour, 10*time.Second)
		wantLeft(t, "three holds", w.timeoutsLeft(middle.Owner(), 1), time.Minute)
		w.sleep(4 * time.Second)
		mustUnlock(t, long)
		wantLeft(t, "without the longest", w.timeoutsLeft(id, 2), 6*time.Second, noKey)
		if got := w.ttl("job"); got != 56*time.Second {
			t.Errorf("without the longest hold the lock lasts %v, want as long as the other reader's", got)
		}
		mustUnlock(t, middle)
		if got := w.ttl("job"); got != 6*time.Second {
			t.Errorf("with the shortest hold alone the lock lasts %v, want 6s", got)
		}
		mustUnlock(t, short)
		w.free()
	})
}

// The watchdog extends the leases of its own readers, and shortens none.
func TestRenewalOfReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		reader, second := mustRead(t, c, lock.As(owner)), mustRead(t, c, lock.As(owner))
		long, short := mustRead(t, other, lock.For(time.Hour)), mustRead(t, other, lock.For(25*time.Second))
		w.sleep(20 * time.Second)
		synctest.Wait()
		wantLeft(t, "renewed", w.timeoutsLeft(owner.String(), 2), 30*time.Second, 30*time.Second)
		wantLeft(t, "not renewed", w.timeoutsLeft(short.Owner(), 1), 5*time.Second)
		wantLeft(t, "not renewed", w.timeoutsLeft(long.Owner(), 1), time.Hour-20*time.Second)
		w.sleep(11 * time.Second)
		lostBecause(t, short.Err(), lock.Expired)
		mustUnlock(t, long)
		if got := w.ttl("job"); got != 29*time.Second {
			t.Errorf("the lock lasts %v, want as long as the reader that is renewed", got)
		}
		for range 10 {
			w.sleep(time.Minute)
			isTaken(t, other.ReadWrite("job").Write())
		}
		mustUnlock(t, reader)
		mustUnlock(t, second)
		w.free()
	})
}

// What a renewal finds without a lease of its own is lost, and is not revived by it.
func TestRenewalRevivesNoReader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		reader, keeper := mustRead(t, c), mustRead(t, other, lock.For(time.Hour))
		w.srv.Do("DEL", lockscripts.TimeoutKey("job", reader.Owner(), 1))
		w.sleep(11 * time.Second)
		lostBecause(t, reader.Err(), lock.Forced)
		wantLeft(t, "after the renewal", w.timeoutsLeft(reader.Owner(), 1), noKey)
		mustUnlock(t, keeper)
		w.free()
	})
}

// A former master confirms the release of one hold. The next master counts both, and the hold that stays has the lease of the other one.
func TestReadHoldReleasedAtAFormerMaster(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		short := mustRead(t, c, lock.As(owner), lock.For(5*time.Second))
		reader := mustRead(t, c, lock.As(owner))
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") {
				return fakeredis.Reply(":0\r\n")
			}
			return fakeredis.Run()
		})
		mustUnlock(t, short)
		w.srv.Intercept(nil)
		w.sleep(time.Minute)
		if err := reader.Err(); err != nil {
			t.Error(err)
		}
		isTaken(t, other.ReadWrite("job").Write())
		mustUnlock(t, reader)
		w.free()
	})
}

// A reader that died keeps nothing from its end when all that live have released, however long others kept the lock.
func TestDeadReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.redisson("dead:1").readLock(5 * time.Second)
		owner := c.NewOwner()
		lost := mustRead(t, c, lock.As(owner), lock.For(5*time.Second))
		keeper := mustRead(t, c)
		w.sleep(time.Minute)
		lostBecause(t, lost.Err(), lock.Expired)
		info, err := c.ReadWrite("job").Read().Info(t.Context())
		if err != nil || len(info.Holders) != 3 {
			t.Fatalf("Info() = %+v, %v, want three readers", info, err)
		}
		for _, h := range info.Holders {
			if alive := h.Owner == keeper.Owner(); alive != (h.Remaining > 0) {
				t.Errorf("Info() gives %s %v", h.Owner, h.Remaining)
			}
		}
		// The owner whose hold is over comes as a new reader, and with a write lock would not wait for itself.
		again := mustRead(t, c, lock.As(owner), lock.For(5*time.Second))
		wantErr(t, "Unlock of the hold that is over", lost.Unlock(t.Context()), lock.ErrNotHeld)
		if err := again.Check(t.Context()); err != nil {
			t.Errorf("Check() of the new hold = %v", err)
		}
		w.sleep(6 * time.Second)
		_, err = c.ReadWrite("job").Write().TryLock(t.Context(), lock.As(owner))
		wantErr(t, "TryLock for writing", err, lock.ErrNotAcquired)
		mustUnlock(t, keeper)
		mustUnlock(t, mustWrite(t, c))
		w.free()
	})
}

func TestReadBeneathWrite(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		both := c.ReadWrite("job")
		for _, writeFirst := range []bool{true, false} {
			write := mustWrite(t, c, lock.As(owner), lock.For(time.Minute))
			read := mustRead(t, c, lock.As(owner), lock.For(10*time.Second))
			isTaken(t, other.ReadWrite("job").Read())
			if !writeFirst {
				mustUnlock(t, read)
				if got := w.ttl("job"); got != time.Minute {
					t.Errorf("after the inner Unlock the lock lasts %v, want the write lease's 1m", got)
				}
				isTaken(t, other.ReadWrite("job").Read())
				mustUnlock(t, write)
				continue
			}
			mustUnlock(t, write)
			if info, err := both.Read().Info(t.Context()); err != nil || info.Mode != lock.ModeRead || info.Remaining != 10*time.Second {
				t.Errorf("Info() = %+v, %v, want a read lock for 10s", info, err)
			}
			beside := mustRead(t, other)
			mustUnlock(t, read)
			mustUnlock(t, beside)
		}
		// A read hold whose lease is over does not keep the lock from being free.
		write := mustWrite(t, c, lock.As(owner))
		mustRead(t, c, lock.As(owner), lock.For(time.Second))
		w.sleep(10 * time.Second)
		mustUnlock(t, write)
		w.free()
	})
}

// Several write holds of an owner, and what it reads beneath: the lock lasts as long as the longest needs.
func TestNestedWrites(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustWrite(t, c, lock.As(owner), lock.For(10*time.Second))
		inner := mustWrite(t, c, lock.As(owner), lock.For(time.Hour))
		read := mustRead(t, c, lock.As(owner), lock.For(20*time.Second))
		info, err := c.ReadWrite("job").Write().Info(t.Context())
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Holds != 2 || info.Holders[0].Owner != outer.Owner() {
			t.Errorf("Info() = %+v, %v, want two holds of %s", info, err, outer.Owner())
		}
		mustUnlock(t, inner)
		if got := w.ttl("job"); got != 20*time.Second {
			t.Errorf("the lock lasts %v, want 20s, for the read lock", got)
		}
		mustUnlock(t, read)
		mustUnlock(t, outer)
		w.free()
	})
}

// A writer releases: all readers that wait come in at once, of each process and of several, with one request each.
func TestReadersComeInTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const clients, readers = 3, 20
		writer := mustWrite(t, w.client(lock.Config{}), lock.For(time.Hour))
		var wg, in sync.WaitGroup
		in.Add(clients * readers)
		for range clients {
			c := w.client(lock.Config{})
			c.OnlyWoken()
			for range readers {
				wg.Go(func() {
					lease := mustRead(t, c)
					in.Done()
					in.Wait() // all of them have it at the same time
					mustUnlock(t, lease)
				})
			}
		}
		w.sleep(time.Second)
		w.srv.ClearLog()
		released := time.Now()
		mustUnlock(t, writer)
		wg.Wait()
		if took := time.Since(released); took != 0 {
			t.Errorf("that took %v, want no waiting", took)
		}
		// A release of the writer's, an acquire and a release of each reader's.
		if n := w.srv.Count("EVALSHA"); n > 1+2*clients*readers+clients {
			t.Errorf("%d scripts for %d readers", n, clients*readers)
		}
		w.free()
	})
}

func TestReadWriteForce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, operator := w.client(lock.Config{}), w.client(lock.Config{})
		both := operator.ReadWrite("job")
		force := func(l goldenLock, want bool) {
			t.Helper()
			if forced, err := l.ForceUnlock(t.Context()); err != nil || forced != want {
				t.Errorf("ForceUnlock() = %v, %v, want %v", forced, err, want)
			}
		}
		force(both.Read(), false)
		force(both.Write(), false)
		owner := c.NewOwner()
		read := mustRead(t, c, lock.As(owner))
		force(both.Write(), false)
		force(both.Read(), true)
		lostBecause(t, read.Check(t.Context()), lock.Forced)
		write := mustWrite(t, c, lock.As(owner))
		beneath := mustRead(t, c, lock.As(owner))
		force(both.Read(), false)
		force(c.ReadWrite("job").Write(), true)
		lostBecause(t, write.Err(), lock.Forced)
		lostBecause(t, beneath.Err(), lock.Forced)
		w.sleep(time.Minute) // the leases of holds that were ended by force end by themselves
		w.free()
	})
}

func TestReadWriteNames(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		if got := c.ReadWrite("job").Name(); got != "job" {
			t.Errorf("Name() = %q", got)
		}
		_, err := c.ReadWrite("a{b").Read().Lock(t.Context())
		wantErr(t, "Lock", err, lock.ErrInvalid)
		_, err = c.ReadWrite("a{b").Write().ForceUnlock(t.Context())
		wantErr(t, "ForceUnlock", err, lock.ErrInvalid)
		// A tag of its own stays what it is.
		lease := mustHave(t, c.ReadWrite("{tag}:job").Read())
		if _, there := w.srv.Key("{tag}:job:" + lease.Owner() + ":rwlock_timeout:1"); !there {
			t.Errorf("keys %v", w.srv.Do("KEYS", "*"))
		}
		mustUnlock(t, lease)
		// A lock of another kind is none of ours.
		other := mustLock(t, c, "job")
		for _, l := range []goldenLock{c.ReadWrite("job").Read(), c.ReadWrite("job").Write()} {
			_, err := l.TryLock(t.Context())
			wantErr(t, "TryLock of another kind", err, lock.ErrWrongType)
			_, err = l.Info(t.Context())
			wantErr(t, "Info of another kind", err, lock.ErrWrongType)
		}
		mustUnlock(t, other)
		w.free()
	})
}

// An acquire that is not answered is taken back, whatever the server did and whoever else reads.
func TestReadWriteAcquireWithoutAnAnswer(t *testing.T) {
	for _, half := range []string{"read", "write"} {
		for name, action := range map[string]fakeredis.Action{
			"lost":  fakeredis.RunThenClose(),
			"never": fakeredis.Close(),
			"late":  fakeredis.Delay(2*time.Second, fakeredis.Run()),
		} {
			t.Run(half+" "+name, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					owner := c.NewOwner()
					outer := mustWrite(t, c, lock.As(owner))
					beneath := mustRead(t, c, lock.As(owner))
					w.onScriptOf(half, "acquire", func(n int) fakeredis.Action {
						if n == 1 {
							return action
						}
						return fakeredis.Run()
					})
					l := halves(c)[half]
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err := l.TryLock(ctx, lock.As(owner))
					cancel()
					if err == nil || errors.Is(err, lock.ErrNotAcquired) {
						t.Fatalf("TryLock() = %v", err)
					}
					w.sleep(5 * time.Second)
					mustUnlock(t, mustHave(t, l, lock.As(owner)))
					mustUnlock(t, beneath)
					mustUnlock(t, outer)
					w.sleep(latchLife)
					w.free()
				})
			})
		}
	}
}

func halves(c *lock.Client) map[string]goldenLock {
	return map[string]goldenLock{"read": c.ReadWrite("job").Read(), "write": c.ReadWrite("job").Write()}
}

// A release whose reply is lost is known again by its latch.
func TestReadWriteReleaseWithoutAnAnswer(t *testing.T) {
	for _, half := range []string{"read", "write"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			owner := c.NewOwner()
			l := halves(c)[half]
			first, second := mustHave(t, l, lock.As(owner)), mustHave(t, l, lock.As(owner))
			w.onScriptOf(half, "release", func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			})
			mustUnlock(t, first)
			info, err := l.Info(t.Context())
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Holds != 1 {
				t.Errorf("%s: Info() = %+v, %v, want one hold", half, info, err)
			}
			mustUnlock(t, second)
			w.sleep(latchLife)
			w.free()
		})
	}
}

// Readers with fixed leases: the lock is for writing when the last of them has ended or gone, and not before.
func TestReadersThatExpire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		start := time.Now()
		first := mustRead(t, c, lock.For(10*time.Second))
		w.sleep(5 * time.Second)
		mustUnlock(t, mustRead(t, other, lock.For(10*time.Second)))
		write := mustWrite(t, other)
		if took := time.Since(start); took < 10*time.Second || took > 10010*time.Millisecond {
			t.Errorf("the writer came in after %v, want 10s, when the reader that is left has expired", took)
		}
		lostBecause(t, first.Err(), lock.Expired)
		wantErr(t, "Unlock of the reader that has expired", first.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, write)

		owner := c.NewOwner()
		start = time.Now()
		outer := mustRead(t, c, lock.As(owner), lock.For(4*time.Second))
		w.sleep(3 * time.Second)
		mustUnlock(t, mustRead(t, c, lock.As(owner), lock.For(4*time.Second)))
		mustUnlock(t, mustWrite(t, other))
		if took := time.Since(start); took < 4*time.Second || took > 4010*time.Millisecond {
			t.Errorf("the writer came in after %v, want 4s: the further hold was released", took)
		}
		lostBecause(t, outer.Err(), lock.Expired)
		wantErr(t, "Unlock of the reader that has expired", outer.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()
	})
}

// A writer that reads too is renewed in both, and goes on being renewed as a reader when it has released the write lock.
func TestRenewalOfBothHalves(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner))
		read := mustRead(t, c, lock.As(owner))
		look := func(when string) {
			t.Helper()
			for range 5 {
				w.sleep(11 * time.Second)
				if a, b := w.ttl("job"), w.timeoutLeft("job", owner.String(), 1); a <= 19*time.Second || b <= 19*time.Second {
					t.Errorf("%s the lock lasts %v and the reader's lease %v, want more than 19s", when, a, b)
				}
				isTaken(t, other.ReadWrite("job").Write())
			}
		}
		look("with both halves")
		mustUnlock(t, write)
		look("with the read lock")
		mustUnlock(t, read)
		w.free()
	})
}

// The leases of readers that died are looked through in one script when the last that lives releases.
func TestManyDeadReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for i := range 60 {
			w.redisson(fmt.Sprint("dead:", i)).readLock(30 * time.Second)
		}
		keeper := mustRead(t, c)
		w.sleep(35 * time.Second)
		isTaken(t, c.ReadWrite("job").Write())
		mustUnlock(t, keeper)
		mustUnlock(t, mustWrite(t, c))
		w.free()
	})
}

// A renewal extends the leases of all holds that the server counts, and touches none that came after it was made: only its KEYS.
func TestRenewalOfAnOwnersReads(t *testing.T) {
	t.Run("a hold has ended", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			owner := lock.As(c.NewOwner())
			outer := mustRead(t, c, owner, lock.For(time.Second))
			inner := mustRead(t, c, owner)
			w.sleep(time.Minute)
			lostBecause(t, outer.Err(), lock.Expired)
			if err := inner.Check(t.Context()); err != nil || w.timeoutLeft("job", inner.Owner(), 2) < 15*time.Second {
				t.Errorf("%v, and the lease of the hold is %v", err, w.timeoutLeft("job", inner.Owner(), 2))
			}
			mustUnlock(t, inner)
		})
	})
	t.Run("holds come meanwhile", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, w *world) {
			server, c := w.onSlowServer()
			owner := lock.As(c.NewOwner())
			leases := []*lock.Lease{mustRead(t, c, owner)}
			w.sleep(9 * time.Second)
			server.batch.Store(true)
			for w.sleep(time.Second); server.batch.Load(); w.sleep(100 * time.Millisecond) {
			}
			leases = append(leases, mustRead(t, c, owner), mustRead(t, c, owner, lock.For(5*time.Second)))
			w.sleep(time.Minute)
			lostBecause(t, leases[2].Err(), lock.Expired)
			for _, l := range leases[:2] {
				if err := l.Check(t.Context()); err != nil {
					t.Error(err)
				}
				mustUnlock(t, l)
			}
		})
	})
}

// The request of a Check names the leases of the holds at the time of the request: the answer says nothing of a hold granted since.
func TestCheckBesideAFurtherReadHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		w.srv.Latency(20 * time.Millisecond)
		first := mustRead(t, c, lock.As(owner), lock.For(time.Second))
		w.sleep(time.Until(first.ValidUntil()) - 10*time.Millisecond)
		further := make(chan *lock.Lease)
		go func() { further <- mustRead(t, c, lock.As(owner)) }()
		w.sleep(5 * time.Millisecond)
		renew := scriptsFor("read", "renew")[0].Digest()
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 1 && cmd.Args[1] == renew {
				return fakeredis.Delay(50*time.Millisecond, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		lostBecause(t, first.Check(t.Context()), lock.Expired)
		second := <-further
		w.wantHolds("job", "2", second)
		first.Unlock(t.Context())
		mustUnlock(t, second)
		w.sleep(latchLife)
		w.free()
	})
}
