package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// keepTaking takes values in a client of its own again and again, for a time each, until the returned function is called.
func (w *world) keepTaking(t *testing.T, hold, pause time.Duration, values ...string) (end func()) {
	stop, c := make(chan struct{}), w.client(lock.Config{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			lease := mustHaveValues(t, c, values...)
			w.sleep(hold)
			mustUnlock(t, lease)
			w.sleep(pause)
		}
	})
	return func() { close(stop); done.Wait() }
}

// mustHaveWithin wants a waiter to have its values within a time, and gives them back.
func (w *world) mustHaveWithin(t *testing.T, waiter <-chan *lock.Lease, most time.Duration) {
	t.Helper()
	begin := time.Now()
	mustUnlock(t, <-waiter)
	if took := time.Since(begin); took > most {
		t.Errorf("a waiter has its values after %v, want %v at most", took, most)
	}
}

// numbered returns n values.
func numbered(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprint("v", i))
	}
	return values
}

// One that wants several values does not pass one in front that wants some of them.
func TestOrderOfOneAndTwoValues(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		a, b := mustHaveValues(t, w.client(lock.Config{}), "a"), mustHaveValues(t, w.client(lock.Config{}), "b")
		first := toValues("a").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		second := toValues("a", "b").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		mustUnlock(t, b)
		w.sleep(time.Millisecond)
		mustUnlock(t, a)
		w.sleep(time.Millisecond)
		if !has(first) || has(second) {
			t.Fatalf("the first has its value: %v, and the second: %v", has(first), has(second))
		}
		mustUnlock(t, <-first)
		mustUnlock(t, <-second)
	})
}

// Processes that want the value and another one each do not keep off one that wants the value alone.
func TestNobodyStarvesBesideThoseForTwoValues(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		w.srv.Latency(50 * time.Microsecond)
		var ends []func()
		for i := range 4 {
			b := fmt.Sprint("b", i)
			ends = append(ends, w.keepTaking(t, 5*time.Millisecond, 0, "a", b), w.keepTaking(t, time.Millisecond, 2*time.Millisecond, b))
		}
		w.sleep(500 * time.Millisecond)
		w.mustHaveWithin(t, toValues("a").waits(t, t.Context(), w.client(lock.Config{})), 500*time.Millisecond)
		for _, end := range ends {
			end()
		}
		w.srv.Latency(0)
	})
}

// A release of many values calls one process for each.
func TestManyValuesAtOnce(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		values := numbered(20)
		all := mustHaveValues(t, w.client(lock.Config{}), values...)
		var waiters []<-chan *lock.Lease
		for _, v := range values {
			c := w.client(lock.Config{})
			c.OnlyWoken()
			waiters = append(waiters, toValues(v).waits(t, t.Context(), c))
		}
		w.sleep(3 * time.Second)
		mustUnlock(t, all)
		w.sleep(5 * time.Millisecond)
		for i, waiter := range waiters {
			if !has(waiter) {
				t.Errorf("the value %s is free, and its waiter waits", values[i])
			}
			mustUnlock(t, <-waiter)
		}
	})
}

// Behind many that want a free value and another one, which is held for long, one that wants the free value alone has it when the first lets others in.
func TestBehindManyForTwoValues(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		others := numbered(100)
		ctx, cancel := context.WithCancel(t.Context())
		long, a := mustHaveValues(t, w.client(lock.Config{}), others...), mustHaveValues(t, w.client(lock.Config{}), "a")
		c := w.client(lock.Config{})
		var waiters []<-chan *lock.Lease
		for _, v := range others {
			waiters = append(waiters, toValues("a", v).waits(t, ctx, c))
		}
		waiter := toValues("a").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(25 * time.Second) // the first keeps others out for 8 s from now on
		mustUnlock(t, a)
		w.mustHaveWithin(t, waiter, 10*time.Second)
		cancel()
		for _, waiter := range waiters {
			<-waiter
		}
		mustUnlock(t, long)
	})
}

// More than a hundred places for other values hold nobody up.
func TestLineBehindManyPlaces(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		values := numbered(150)
		all := mustHaveValues(t, w.client(lock.Config{}), values...)
		c := w.client(lock.Config{})
		var waiters []<-chan *lock.Lease
		for _, v := range values {
			waiters = append(waiters, toValues(v).waits(t, t.Context(), c))
		}
		end := w.keepTaking(t, 10*time.Millisecond, 0, "x")
		w.sleep(13 * time.Millisecond)
		w.mustHaveWithin(t, toValues("x").waits(t, t.Context(), w.client(lock.Config{})), 50*time.Millisecond)
		end()
		mustUnlock(t, all)
		for _, waiter := range waiters {
			mustUnlock(t, <-waiter)
		}
	})
}

// Waiters keep their order though the server's clock is set back.
func TestLineOfAGroupAfterAClockSetBack(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		w.srv.Latency(50 * time.Microsecond)
		lease := mustHaveValues(t, w.client(lock.Config{}), "a")
		waiter := toValues("a").waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Second)
		w.srv.Jump(-time.Hour)
		ends := []func(){w.keepTaking(t, 5*time.Millisecond, 0, "a"), w.keepTaking(t, 5*time.Millisecond, 0, "a")}
		w.sleep(5 * time.Millisecond)
		mustUnlock(t, lease)
		w.mustHaveWithin(t, waiter, 100*time.Millisecond)
		for _, end := range ends {
			end()
		}
		w.srv.Latency(0)
	})
}

// With another key at the line's name, all are told of a release.
func TestLineOfAGroupIsAnotherKey(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		w.srv.Do("SET", groupLine, "x")
		lease := mustHaveValues(t, w.client(lock.Config{}), "a")
		waiter := toValues("a").waits(t, t.Context(), w.client(lock.Config{}))
		mustUnlock(t, lease)
		w.mustHaveWithin(t, waiter, 10*time.Millisecond)
		w.srv.Do("DEL", groupLine)
	})
}

// A waiter to whom a full server gives no place looks after a second.
func TestWaiterWithoutAPlaceInAGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, w *world) {
		a, b := mustHaveValues(t, w.client(lock.Config{}), "a"), mustHaveValues(t, w.client(lock.Config{}), "b")
		w.srv.Full(true)
		without := toValues("a").waits(t, t.Context(), w.client(lock.Config{}))
		w.srv.Full(false)
		other := toValues("b").waits(t, t.Context(), w.client(lock.Config{}))
		mustUnlock(t, a)
		w.mustHaveWithin(t, without, 1200*time.Millisecond)
		mustUnlock(t, b)
		mustUnlock(t, <-other)
	})
}
