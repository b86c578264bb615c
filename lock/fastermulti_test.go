package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
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

// Redisson's holder is waited for, until it gives its value back or its lease has ended; of its dead hold nothing is left.
func TestFasterMultiBesideRedisson(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		const hold = fieldA + ":java:1"
		take := func(left time.Duration) {
			ends := fmt.Sprint(time.Now().Add(left).UnixMilli())
			w.srv.Do("HSET", "group", fieldA, "java:1", hold+":expire_time", ends, hold+":lock_count", "2")
			w.pexpire("group", left.Milliseconds())
		}
		for _, releases := range []bool{true, false} {
			begin := time.Now()
			take(20 * time.Second)
			_, err := c.FasterMulti("group", "a").TryLock(t.Context())
			if denied, ok := errors.AsType[*lock.NotAcquiredError](err); !ok || denied.Remaining != 20*time.Second {
				t.Errorf("TryLock() = %v", err)
			}
			w.pexpire("group", 60_000) // somebody else has another value
			got := make(chan *lock.Lease)
			go func() { got <- mustHaveValues(t, c, "order:1", "a") }()
			w.sleep(5 * time.Second)
			want := 20 * time.Second
			if releases {
				want = 5 * time.Second
				w.srv.Do("HDEL", "group", fieldA, hold+":expire_time", hold+":lock_count")
				w.srv.Do("PUBLISH", groupChannel, "0")
			}
			lease := <-got
			if took := time.Since(begin); took < want || took > want+100*time.Millisecond {
				t.Errorf("the waiter has the lock after %v, want %v", took, want)
			}
			w.wantValue(fieldA, lease.Owner(), 30*time.Second)
			if n := w.srv.Do("HLEN", "group"); n != int64(6) {
				t.Errorf("%v fields, want three for each value", n)
			}
			mustUnlock(t, lease)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A10: leases are judged by the clock of the server, wherever those of the clients are.
func TestA10(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 40 * time.Second, time.Hour} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.srv.Clock(ahead)
			c, other := w.client(lock.Config{}), w.client(lock.Config{})
			lease := mustHaveValues(t, c, "1", "2")
			for range 10 {
				w.sleep(9 * time.Second)
				_, err := other.FasterMulti("group", "2").TryLock(t.Context())
				wantErr(t, "TryLock", err, lock.ErrNotAcquired)
			}
			mustUnlock(t, lease)
			mustUnlock(t, mustHaveValues(t, other, "2"))
			w.free()
		})
	}
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
