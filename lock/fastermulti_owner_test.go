package lock_test

import (
	"context"
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
