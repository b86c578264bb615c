package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// The fields of the values a and order:1.
const fieldA, fieldOrder = "qwvAS12pR0CgRitaypEjUw", "VohkkMHNiudvq57uOYf+SQ"

const groupChannel = "redisson_lock__channel:{group}"

func mustHaveValues(t *testing.T, c *lock.Client, values ...string) *lock.Lease {
	t.Helper()
	lease, err := c.FasterMulti("group", values...).Lock(t.Context())
	if err != nil {
		t.Fatalf("Lock() of %v = %v", values, err)
	}
	return lease
}

// wantValue compares the three fields of a value with the hold of owner, which ends after left.
func (w *world) wantValue(field, owner string, left time.Duration) {
	w.t.Helper()
	hold := field + ":" + owner
	ends := fmt.Sprint(time.Now().Add(left).UnixMilli())
	got := fmt.Sprint(w.srv.Do("HMGET", "group", field, hold+":expire_time", hold+":lock_count"))
	if want := fmt.Sprint([]any{owner, ends, "1"}); got != want {
		w.t.Errorf("the server has %s, want %s", got, want)
	}
}

// What is on the server is what Redisson's client would leave, with the server's time.
func TestFasterMultiFields(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustHaveValues(t, c, "order:1", "a", "a")
		w.wantValue(fieldA, lease.Owner(), 30*time.Second)
		w.wantValue(fieldOrder, lease.Owner(), 30*time.Second)
		if n, left := w.srv.Do("HLEN", "group"), w.ttl("group"); n != int64(6) || left != 30*time.Second {
			t.Errorf("%v fields for %v", n, left)
		}
		w.sleep(65 * time.Second)
		w.wantValue(fieldA, lease.Owner(), 25*time.Second) // renewed
		if left := w.ttl("group"); left != 25*time.Second || lease.Check(t.Context()) != nil {
			t.Errorf("the group stays for %v, %v", left, lease.Err())
		}
		info, err := c.FasterMulti("group", "a", "free").Info(t.Context())
		if h := info.Holders; err != nil || len(h) != 1 || h[0] != (lock.Holder{Owner: lease.Owner(), Holds: 1, Remaining: 25 * time.Second}) {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		mustUnlock(t, lease)
		if said := w.srv.Messages(); len(said) == 0 {
			t.Error("nobody was told of the release")
		}
		w.free()
	})
}

// Locks with a value in common exclude each other, and others do not, within a process and between two.
func TestFasterMultiExclusion(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		a := w.client(lock.Config{})
		one, two := mustHaveValues(t, a, "1"), mustHaveValues(t, a, "2")
		if n := w.srv.Count("SUBSCRIBE"); n > 0 {
			t.Error("a caller has waited for a free lock, because the process has another one of the group")
		}
		mustUnlock(t, one)
		mustUnlock(t, two)
		for name, b := range map[string]*lock.Client{"same": a, "other": w.client(lock.Config{})} {
			first := mustHaveValues(t, a, "1", "2")
			_, err := b.FasterMulti("group", "2", "3").TryLock(t.Context())
			wantErr(t, name, err, lock.ErrNotAcquired)
			got := make(chan *lock.Lease)
			go func() { got <- mustHaveValues(t, b, "2", "3") }()
			synctest.Wait()
			begin := time.Now()
			second := mustHaveValues(t, b, "3", "4") // nobody has these, though somebody waits for one of them
			if took := time.Since(begin); took > 0 {
				t.Errorf("%s: a free lock took %v", name, took)
			}
			mustUnlock(t, first)
			synctest.Wait()
			select {
			case <-got:
				t.Fatalf("%s: two owners have the value 3", name)
			default:
			}
			mustUnlock(t, second)
			mustUnlock(t, <-got)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("%s: the waiter was not woken, and got the lock after %v", name, took)
			}
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A value that somebody else has taken is a loss, and Unlock gives back the others.
func TestFasterMultiLoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for reason, lose := range map[lock.Reason]func(owner string){
			lock.Taken:  func(string) { w.srv.Do("HSET", "group", fieldA, "java:1") },
			lock.Forced: func(owner string) { w.srv.Do("HDEL", "group", fieldA, fieldA+":"+owner+":expire_time") },
		} {
			lease := mustHaveValues(t, c, "order:1", "a")
			ctx, cancel := lease.Context(context.Background())
			lose(lease.Owner())
			w.sleep(11 * time.Second)
			lostBecause(t, context.Cause(ctx), reason)
			cancel()
			wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
			if n := w.srv.Do("HEXISTS", "group", fieldOrder); n != int64(0) {
				t.Error("the other value is still taken")
			}
			if holder := w.srv.Do("HGET", "group", fieldA); reason == lock.Taken && holder != "java:1" {
				t.Errorf("the value of the other owner has gone to %v", holder)
			}
			w.srv.Do("DEL", "group")
		}
		w.sleep(latchLife)
		w.free()
	})
}

// ForceUnlock frees its values, and leaves alone who has others of the group.
func TestFasterMultiForce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		hit, spared := mustHaveValues(t, c, "1", "2"), mustHaveValues(t, c, "3")
		if forced, err := c.FasterMulti("group", "2", "4").ForceUnlock(t.Context()); !forced || err != nil {
			t.Errorf("ForceUnlock() = %v, %v", forced, err)
		}
		lostBecause(t, hit.Err(), lock.Forced)
		w.sleep(time.Minute)
		if err := errors.Join(spared.Err(), spared.Check(t.Context())); err != nil {
			t.Errorf("the lock of another value is lost: %v", err)
		}
		if forced, err := c.FasterMulti("group", "2").ForceUnlock(t.Context()); forced || err != nil {
			t.Errorf("ForceUnlock() of a free value = %v, %v", forced, err)
		}
		wantErr(t, "Unlock", hit.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, spared)
		w.sleep(latchLife)
		w.free()
	})
}

func TestFasterMultiInvalid(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		many := make([]string, 1001)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for what, l := range map[string]*lock.FasterMulti{"no value": c.FasterMulti("group"), "1001 values": c.FasterMulti("group", many...), "a name": c.FasterMulti("a{", "1")} {
			_, err := l.TryLock(t.Context())
			wantErr(t, what, err, lock.ErrInvalid)
		}
		_, err := lock.NewMulti(c.FasterMulti("group", "1"), c.FasterMulti("group", "2"))
		wantErr(t, "a Multi", err, lock.ErrInvalid)
		mustUnlock(t, mustHaveValues(t, c, many[1:]...))

		held := mustLock(t, c, "group")
		_, err = c.FasterMulti("group", "1").TryLock(t.Context())
		wantErr(t, "a group that is a lock", err, lock.ErrWrongType)
		mustUnlock(t, held)
		w.free()
	})
}

// The group's name leads to the owners of all its values, and to those alone whose leases have not ended.
func TestGroupByName(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		a, b := w.client(lock.Config{Name: "a"}), w.client(lock.Config{Name: "b"})
		seen := watchAll(t, b, "*")
		w.sleep(time.Second)
		seen.want(t, "at the beginning", "watching")
		first := mustHaveValues(t, a, "1", "2")
		w.sleep(time.Second)
		seen.want(t, "one owner", "acquired group "+first.Owner())
		second, err := b.FasterMulti("group", "3").Lock(t.Context(), lock.For(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		seen.want(t, "two owners", "acquired group "+second.Owner())
		group, err := b.Inspect(t.Context(), "group")
		if err != nil || group.Shape != lock.ShapeFasterMulti || len(group.Info.Holders) != 2 || len(group.Clients) != 2 {
			t.Errorf("Inspect() = %+v, %v, want two owners of two processes", group, err)
		}
		w.sleep(2 * time.Minute)
		found := slices.Collect(maps.Values(listed(t, b, "*")))
		if len(found) != 1 || found[0].Name != "group" || len(found[0].Info.Holders) != 1 || found[0].Info.Holders[0].Owner != first.Owner() {
			t.Errorf("List() = %+v, want the owner whose lease goes on", found)
		}
		wantErr(t, "Unlock after the end", second.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, first)
		w.sleep(time.Second)
		if got := seen.take(); !slices.Contains(got, "released group "+first.Owner()) {
			t.Errorf("at the end: %q", got)
		}
		_ = seen.close()
	})
}

// Nobody takes the values of one owner by the group's name alone.
func TestForceUnlockOwnerOfAGroup(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustHaveValues(t, c, "1")
		_, err := c.ForceUnlockOwner(t.Context(), "group", lease.Owner())
		wantErr(t, "ForceUnlockOwner", err, lock.ErrInvalid)
		mustUnlock(t, lease)
		for _, fields := range [][]string{{"a", "1", "b", "2"}, {fieldA, "x", "b", "2"}, {fieldA + ":0-0-0-0-0:1:expire_time", "1", fieldA, "nobody"}} {
			w.srv.Do(append([]string{"HSET", "user"}, fields...)...)
			if seen, err := c.Inspect(t.Context(), "user"); err != nil || seen.Shape != lock.ShapeOther {
				t.Errorf("Inspect() of the hash %v = %+v, %v", fields, seen, err)
			}
			w.srv.Do("DEL", "user")
		}
	})
}

// ownsValues takes values of the group as an Owner.
func ownsValues(t *testing.T, c *lock.Client, owner lock.Owner, values string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := c.FasterMulti("group", strings.Split(values, "")...).Lock(t.Context(), append(opts, lock.As(owner))...)
	if err != nil {
		t.Fatalf("Lock() of %s = %v", values, err)
	}
	return lease
}

// wantCounts compares the hold counts of an owner with want, by value, and looks for fields of other values.
func (w *world) wantCounts(owner lock.Owner, want map[string]int) {
	w.t.Helper()
	got := map[string]int{}
	for _, value := range strings.Split("abcd", "") {
		field := kinds.ValueField(value)
		count, _ := w.srv.Do("HGET", "group", field+":"+owner.String()+":lock_count").(string)
		if holder := w.srv.Do("HGET", "group", field); count != "" && holder == owner.String() {
			got[value], _ = strconv.Atoi(count)
		}
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("the server counts %v, want %v", got, want)
	}
}

// testReentrantLock and testReentrancy of Redisson.
func TestFasterMultiReentry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		outer := ownsValues(t, c, owner, "ab", lock.For(30*time.Second))
		inner := ownsValues(t, c, owner, "ba", lock.For(30*time.Second))
		w.wantCounts(owner, map[string]int{"a": 2, "b": 2})
		for _, holds := range []int64{2, 1} {
			info, err := c.FasterMulti("group", "a").Info(t.Context())
			if h := info.Holders; err != nil || len(h) != 1 || h[0].Owner != owner.String() || h[0].Holds != holds {
				t.Errorf("Info() = %+v, %v, want %d holds", info, err, holds)
			}
			_, err = other.FasterMulti("group", "b").TryLock(t.Context())
			wantErr(t, "TryLock of another client", err, lock.ErrNotAcquired)
			_, err = c.FasterMulti("group", "b").TryLock(t.Context(), lock.As(c.NewOwner()))
			wantErr(t, "TryLock of another Owner", err, lock.ErrNotAcquired)
			if holds == 2 {
				mustUnlock(t, outer) // in any order: holds are equal
			}
		}
		w.wantCounts(owner, map[string]int{"a": 1, "b": 1})
		if inner.Err() != nil || inner.Owner() != owner.String() {
			t.Errorf("the inner hold of %s: %v", inner.Owner(), inner.Err())
		}
		mustUnlock(t, inner)
		w.free()
	})
}

// Sets of one Owner may overlap: each value has its own count, and is free with its last hold.
func TestFasterMultiOverlap(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		first, second := ownsValues(t, c, owner, "ab"), ownsValues(t, c, owner, "bc")
		w.wantCounts(owner, map[string]int{"a": 1, "b": 2, "c": 1})
		w.sleep(time.Minute)
		mustUnlock(t, first)
		w.wantCounts(owner, map[string]int{"b": 1, "c": 1})
		mustUnlock(t, mustHaveValues(t, other, "a"))
		w.sleep(time.Minute)
		_, err := other.FasterMulti("group", "b").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrNotAcquired)
		mustUnlock(t, second)
		w.sleep(latchLife)
		w.free()
	})
}

// An Owner does not stand behind callers who wait for a value of its own.
func TestFasterMultiOwnerStandsBehindNobody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		mine, others := ownsValues(t, c, owner, "b"), mustHaveValues(t, other, "c")
		behind, got := make(chan *lock.Lease), make(chan *lock.Lease)
		go func() { behind <- mustHaveValues(t, c, "b", "c") }()
		synctest.Wait()
		go func() { got <- ownsValues(t, c, owner, "bc") }()
		w.sleep(time.Second)
		begin := time.Now()
		mustUnlock(t, others)
		mustUnlock(t, <-got)
		if took := time.Since(begin); took > 0 {
			t.Errorf("the Owner has the free value after %v", took)
		}
		mustUnlock(t, mine)
		mustUnlock(t, <-behind)
		w.sleep(latchLife)
		w.free()
	})
}

// The loss of a value ends the leases that have it, and no other of the Owner.
func TestFasterMultiOwnerLosesAValue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		hit, spared := ownsValues(t, c, owner, "ab"), ownsValues(t, c, owner, "bc")
		w.srv.Do("HSET", "group", kinds.ValueField("a"), "java:1")
		w.sleep(time.Minute)
		lostBecause(t, hit.Err(), lock.Taken)
		if err := spared.Err(); err != nil {
			t.Errorf("a lease without the lost value: %v", err)
		}
		wantErr(t, "Unlock", hit.Unlock(t.Context()), lock.ErrNotHeld)
		w.wantCounts(owner, map[string]int{"b": 1, "c": 1})
		mustUnlock(t, spared)
		w.srv.Do("DEL", "group")
		w.sleep(latchLife)
		w.free()
	})
}

// A lost value that the Owner takes anew counts from one, and the earlier lease is told: somebody else may have had the value.
func TestFasterMultiNewHoldTellsEarlierOnes(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"all":     func(w *world) { w.srv.Do("DEL", "group") },
		"a value": func(w *world) { w.srv.Do("HDEL", "group", kinds.ValueField("a")) },
		"expired": func(w *world) { w.sleep(11 * time.Second) },
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			owner := c.NewOwner()
			old := ownsValues(t, c, owner, "ab", lock.For(10*time.Second))
			end(w)
			next := ownsValues(t, c, owner, "ab")
			reason := lock.Forced
			if name == "expired" {
				reason = lock.Expired
			}
			lostBecause(t, old.Err(), reason)
			wantErr(t, name, old.Unlock(t.Context()), lock.ErrNotHeld)
			w.sleep(time.Minute)
			w.wantCounts(owner, map[string]int{"a": 1, "b": 1})
			if err := next.Err(); err != nil {
				t.Errorf("%s: the new hold: %v", name, err)
			}
			mustUnlock(t, next)
			w.sleep(latchLife)
			w.free()
		})
	}
}

// The undo of a further hold leaves the first one as it was, whether or not the acquire has arrived, or arrives later.
func TestFasterMultiUndoOfAFurtherHold(t *testing.T) {
	for name, act := range map[string]fakeredis.Action{
		"no answer":     fakeredis.RunThenClose(),
		"late answer":   fakeredis.Run().Late(5 * time.Second),
		"never arrives": fakeredis.Close(),
		"arrives late":  fakeredis.Delay(5*time.Second, fakeredis.Run()),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := c.NewOwner()
				begin := time.Now()
				outer := ownsValues(t, c, owner, "ab", lock.For(time.Minute))
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name == "EVALSHA" && slices.Contains(cmd.Args, "3600000") {
						return act
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, err := c.FasterMulti("group", "b", "c").TryLock(ctx, lock.As(owner), lock.For(time.Hour)); err == nil {
					t.Fatal("TryLock without an answer has the lock")
				}
				w.sleep(10 * time.Second)
				w.wantCounts(owner, map[string]int{"a": 1, "b": 1})
				// The undo gives the lease back that was left when it was sent: it is as much longer as it was on its way.
				text, _ := w.srv.Do("HGET", "group", kinds.ValueField("b")+":"+owner.String()+":expire_time").(string)
				ends, _ := strconv.ParseInt(text, 10, 64)
				if took := time.UnixMilli(ends).Sub(begin); took < time.Minute || took > 65*time.Second {
					t.Errorf("the outer hold ends after %v, want a minute", took)
				}
				w.srv.Intercept(nil)
				mustUnlock(t, outer)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// A release takes one hold, however often it arrives, and none that the Owner has taken since.
func TestFasterMultiReleasesOnce(t *testing.T) {
	for name, act := range map[string]fakeredis.Action{
		"no answer":     fakeredis.RunThenClose(),
		"never arrives": fakeredis.Close(),
		"arrives late":  fakeredis.Delay(700*time.Millisecond, fakeredis.Run()).ThenClose(),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := c.NewOwner()
				outer, inner := ownsValues(t, c, owner, "ab"), ownsValues(t, c, owner, "bc")
				hit := false
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if hit || cmd.Name != "EVALSHA" {
						return fakeredis.Run()
					}
					hit = true
					return act
				})
				mustUnlock(t, inner)
				w.wantCounts(owner, map[string]int{"a": 1, "b": 1})
				again := ownsValues(t, c, owner, "bc")
				w.sleep(10 * time.Second)
				w.wantCounts(owner, map[string]int{"a": 1, "b": 2, "c": 1})
				mustUnlock(t, outer)
				mustUnlock(t, again)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// Releases of one Owner that meet leave nothing behind.
func TestFasterMultiConcurrentUnlocks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(time.Millisecond)
		owner := c.NewOwner()
		for range 20 {
			var wg sync.WaitGroup
			for _, values := range []string{"ab", "bc", "ab", "b", "abcd"} {
				lease := ownsValues(t, c, owner, values)
				wg.Go(func() {
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock() of %s = %v", values, err)
					}
				})
			}
			wg.Wait()
			w.wantCounts(owner, map[string]int{})
		}
		w.sleep(latchLife)
		w.free()
	})
}

// Whatever two Owners take and give back, and whichever answers are lost, the server counts the leases that they have.
func TestFasterMultiCountsAtRandom(t *testing.T) {
	seeds := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for range 20 {
		seed := seeds.Uint64()
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.countAtRandom(seed)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (w *world) countAtRandom(seed uint64) {
	t, dice := w.t, rand.New(rand.NewPCG(seed, 2))
	c := w.client(lock.Config{})
	owners := []lock.Owner{c.NewOwner(), c.NewOwner()}
	losses := rand.New(rand.NewPCG(seed, 3))
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name != "EVALSHA" || losses.IntN(4) > 0 {
			return fakeredis.Run()
		}
		return []fakeredis.Action{fakeredis.RunThenClose(), fakeredis.Close(), fakeredis.Run().Late(300 * time.Millisecond),
			fakeredis.Delay(300*time.Millisecond, fakeredis.Run()).ThenClose()}[losses.IntN(4)]
	})
	type hold struct {
		lease  *lock.Lease
		owner  int
		values string
	}
	var holds []hold
	for range 40 {
		if n := len(holds); n > 0 && dice.IntN(2) == 0 {
			i := dice.IntN(n)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(dice.IntN(400))*time.Millisecond)
			if err := holds[i].lease.Unlock(ctx); err != nil {
				w.sleep(5 * time.Second) // until the background has released
			}
			cancel()
			holds = slices.Delete(holds, i, i+1)
		} else {
			owner, values := dice.IntN(2), []string{"a", "ab", "bc", "abc", "cd", "d"}[dice.IntN(6)]
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+dice.IntN(400))*time.Millisecond)
			lease, err := c.FasterMulti("group", strings.Split(values, "")...).Lock(ctx, lock.As(owners[owner]))
			cancel()
			if err == nil {
				holds = append(holds, hold{lease, owner, values})
			}
			w.sleep(5 * time.Second) // until the background has undone
		}
		for i, owner := range owners {
			want := map[string]int{}
			for _, h := range holds {
				for value := range strings.SplitSeq(h.values, "") {
					if h.owner == i {
						want[value]++
					}
				}
			}
			w.wantCounts(owner, want)
		}
		for _, h := range holds {
			if err := h.lease.Err(); err != nil {
				t.Errorf("a lease of %s is lost: %v", h.values, err)
			}
		}
		if t.Failed() {
			return
		}
	}
	w.srv.Intercept(nil)
	for _, h := range holds {
		mustUnlock(t, h.lease)
	}
	w.sleep(latchLife)
	w.free()
}
