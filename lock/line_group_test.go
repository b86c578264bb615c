package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

const groupLine = "lockwire_line:{group}"

// toValues returns the lock of values of the group.
func toValues(values ...string) lockOf {
	return func(c *lock.Client) goldenLock { return c.FasterMulti("group", values...) }
}

// inGroup runs test in virtual time, and wants the server and the clients empty behind it.
func inGroup(t *testing.T, test func(t *testing.T, w *world)) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		test(t, w)
		w.srv.Intercept(nil)
		w.sleep(26 * time.Second) // the note that all were told may be the last member
		if w.srv.Do("EXISTS", groupLine) != int64(0) {
			t.Errorf("the line is left: %v", w.srv.Do("ZRANGE", groupLine, "0", "-1", "WITHSCORES"))
		}
		w.free()
	})
}

// has reports whether a waiter has its lock.
func has(waiter <-chan *lock.Lease) bool { return len(waiter) > 0 }

// A release calls each process that finds all its values free, in the order of their coming, and no other.
func TestLineOfAGroupCallsAllWhoFit(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		lease := mustHaveValues(t, w.client(lock.Config{}), "a", "b", "c", "d")
		var waiters []<-chan *lock.Lease
		for _, values := range [][]string{{"a", "b"}, {"b", "c"}, {"c"}, {"d", "e"}} {
			c := w.client(lock.Config{})
			c.OnlyWoken()
			waiters = append(waiters, toValues(values...).waits(t, t.Context(), c))
			w.sleep(time.Millisecond)
		}
		w.srv.ClearLog()
		mustUnlock(t, lease)
		w.sleep(time.Millisecond)
		if !has(waiters[0]) || has(waiters[1]) || !has(waiters[2]) || !has(waiters[3]) {
			t.Fatalf("%v, %v, %v, %v, want all but the second to have their values", has(waiters[0]), has(waiters[1]), has(waiters[2]), has(waiters[3]))
		}
		mustUnlock(t, <-waiters[0])
		w.sleep(time.Millisecond)
		if has(waiters[1]) {
			t.Fatal("b and c are taken while c is held")
		}
		mustUnlock(t, <-waiters[2])
		mustUnlock(t, <-waiters[1])
		mustUnlock(t, <-waiters[3])
		if asked := w.asked(); asked != 4 {
			t.Errorf("four processes asked %d times", asked)
		}
	})
}

// Processes that take one value each, so that two are never free at once, do not keep off one that waits for both.
func TestNobodyStarvesForTwoValues(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		var ends []func()
		for _, value := range []string{"a", "b", "a", "b"} {
			ends = append(ends, w.keepTaking(t, 10*time.Millisecond, 0, value))
			w.sleep(5 * time.Millisecond)
		}
		w.sleep(100 * time.Millisecond)
		l := w.client(lock.Config{}).FasterMulti("group", "a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		for i := range 20 {
			lease, err := l.Lock(ctx)
			if err != nil {
				t.Errorf("the lock %d of two values: %v", i, err)
				break
			}
			mustUnlock(t, lease)
		}
		cancel()
		for _, end := range ends {
			end()
		}
	})
}

// Who waits for two values, of which one is held for long, leaves the other to those behind it, for half of the time.
func TestFirstInAGroupLetsOthersIn(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		long := mustHaveValues(t, w.client(lock.Config{}), "a")
		both := toValues("a", "b").waits(t, t.Context(), w.client(lock.Config{}))
		c, free, begin := w.client(lock.Config{}), time.Duration(0), time.Now()
		for time.Since(begin) < 40*time.Second {
			asked := time.Now()
			lease := mustHaveValues(t, c, "b")
			if waited := time.Since(asked); waited > 10*time.Second {
				t.Errorf("b is kept from others for %v", waited)
			}
			w.sleep(100 * time.Millisecond)
			mustUnlock(t, lease)
			free += 100 * time.Millisecond
		}
		if free < 15*time.Second {
			t.Errorf("others had b for %v of 40 s", free)
		}
		mustUnlock(t, long)
		mustUnlock(t, <-both)
	})
}

// One who is called and does not come costs the others its turn, once.
func TestHungProcessInAGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		lease := mustHaveValues(t, w.client(lock.Config{}), "a")
		hung := w.client(lock.Config{})
		first := toValues("a").waits(t, t.Context(), hung)
		w.sleep(time.Millisecond)
		second := toValues("a", "b").waits(t, t.Context(), w.client(lock.Config{}))
		arrive := w.hangs(hung)
		begin := time.Now()
		mustUnlock(t, lease)
		got := <-second
		if took := time.Since(begin); took > 1200*time.Millisecond {
			t.Errorf("the second has the values after %v", took)
		}
		mustUnlock(t, got)
		arrive()
		mustUnlock(t, <-first)
	})
}

// A process that has gone is passed over, and the lease of one that has died passes to the first in the line.
func TestDeadProcessesInAGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		lease := mustHaveValues(t, w.client(lock.Config{}), "a")
		w.srv.Do("ZADD", groupLine, "1", "00000000-0000-0000-0000-000000000000:"+fieldA+":1:100")
		c := w.client(lock.Config{})
		c.OnlyWoken()
		got := toValues("a").waits(t, t.Context(), c)
		begin := time.Now()
		mustUnlock(t, lease)
		lease = <-got
		if took := time.Since(begin); took > 10*time.Millisecond {
			t.Errorf("behind a dead place the value is had after %v", took)
		}
		mustUnlock(t, lease)

		holder := w.client(lock.Config{})
		dead, err := holder.FasterMulti("group", "a", "b").Lock(t.Context(), lock.For(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		first := toValues("a").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		second := toValues("a", "b").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(5050 * time.Millisecond)
		if !has(first) || has(second) {
			t.Errorf("after the lease the first has its value: %v, and the second: %v", has(first), has(second))
		}
		wantErr(t, "Unlock behind the lease", dead.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, <-first)
		mustUnlock(t, <-second)
	})
}

// A waiter that leaves when it is called passes the call on.
func TestCalledWaiterLeavesAGroup(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 12 * time.Millisecond, 17 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			inGroup(t, func(t *testing.T, w *world) {
				lease := mustHaveValues(t, w.client(lock.Config{}), "a", "b")
				ctx, cancel := context.WithCancel(t.Context())
				stayer := w.client(lock.Config{})
				stayer.OnlyWoken()
				gone := toValues("a", "b").waits(t, ctx, w.client(lock.Config{}))
				w.sleep(time.Millisecond)
				got := toValues("b").waits(t, t.Context(), stayer)
				w.leavesWhenCalled(t, lease, after, cancel, gone, got)
			})
		})
	}
}

// TryLock does not take values for which another process was called, but others, and all for its own process.
func TestTryLockBesideTheCalledInAGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		waiting, passing := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustHaveValues(t, w.client(lock.Config{}), "a", "b")
		got := toValues("a", "b").waits(t, t.Context(), waiting)
		arrive := w.hangs(waiting)
		mustUnlock(t, lease)
		for _, values := range [][]string{{"a"}, {"b", "c"}} {
			if _, err := passing.FasterMulti("group", values...).TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("TryLock() of %v = %v, want ErrNotAcquired", values, err)
			}
		}
		other, err := passing.FasterMulti("group", "c").TryLock(t.Context())
		if err != nil {
			t.Errorf("TryLock() of c = %v", err)
		} else {
			mustUnlock(t, other)
		}
		arrive()
		mustUnlock(t, <-got)
	})
}

// A client that knows Redisson's channel only is told of each release, and those who wait in line as well.
func TestVisitorsOfAGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		told, leave := w.visits(t, groupChannel)
		for range 3 {
			lease := mustHaveValues(t, w.client(lock.Config{}), "a")
			waiter := w.client(lock.Config{})
			waiter.OnlyWoken()
			got := toValues("a").waits(t, t.Context(), waiter)
			mustUnlock(t, lease)
			lease = <-got
			mustUnlock(t, lease)
		}
		w.sleep(time.Millisecond)
		if got := told(); got != "[0 0 0 0 0 0]" {
			t.Errorf("the visitor is told %v, want six releases", got)
		}
		leave()
	})
}

// An Owner that has values waits for further ones behind others, and takes its own again beside them.
func TestOwnerInALineOfAGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		mine := ownsValues(t, c, owner, "a")
		other := mustHaveValues(t, w.client(lock.Config{}), "b")
		both := toValues("a", "b").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		again := ownsValues(t, c, owner, "a")
		mustUnlock(t, again)
		mustUnlock(t, mine)
		if has(both) {
			t.Error("a and b are taken while b is held")
		}
		mustUnlock(t, other)
		mustUnlock(t, <-both)
	})
}

// An Owner that waits for a further value is called when that is free, in front of one who waits for a value that the Owner keeps.
func TestOwnerWithAFurtherValueInALine(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		c.OnlyWoken()
		mine := ownsValues(t, c, owner, "a")
		other := mustHaveValues(t, w.client(lock.Config{}), "b")
		both := toValues("a", "b").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		further := make(chan *lock.Lease, 1)
		go func() { further <- ownsValues(t, c, owner, "ab") }()
		w.sleep(3 * time.Second) // the first asks for its word again meanwhile
		begin := time.Now()
		mustUnlock(t, other)
		l := <-further
		if took := time.Since(begin); took > time.Millisecond {
			t.Errorf("the Owner has the free value after %v", took)
		}
		mustUnlock(t, l)
		mustUnlock(t, mine)
		mustUnlock(t, <-both)
	})
}
