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
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// An acquire whose script lost a right behind its first command has changed something, perhaps set a key without an end, and is taken back
// as soon as the right is back.
func TestHalfAnAcquireIsTakenBack(t *testing.T) {
	for _, right := range []string{"pexpire", "set", "publish"} {
		for _, kind := range kindsWithLeases {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				mine, others := leasedKinds(t, c)[kind], leasedKinds(t, other)[kind]
				mustUnlockOf(t, kind, mine)
				w.srv.Deny(right)
				lease, err := takeSoon(t, mine)
				w.sleep(10 * time.Second)
				w.srv.Deny()
				w.sleep(time.Second)
				if err == nil {
					mustUnlock(t, lease)
				} else if _, ok := errors.AsType[resp.Error](err); !ok {
					t.Errorf("%s without %s: %v", kind, right, err)
				}
				mustUnlockOf(t, kind, others)
				if n, err := c.PermitSemaphore("permits").Available(t.Context()); n != 3 || err != nil {
					t.Errorf("%s without %s: %d permits, %v, want 3", kind, right, n, err)
				}
			})
		}
	}
}

// kindsWithLeases are the keys of leasedKinds.
var kindsWithLeases = strings.Fields("reentrant nonreentrant spin fenced fair nonreentrantfair read write plain fastermulti permits")

// takeSoon takes a lock within a second.
func takeSoon(t *testing.T, take func(context.Context, ...lock.Option) (*lock.Lease, error), opts ...lock.Option) (*lock.Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return take(ctx, opts...)
}

// mustUnlockOf takes a lock within a second, and releases it.
func mustUnlockOf(t *testing.T, kind string, take func(context.Context, ...lock.Option) (*lock.Lease, error)) {
	t.Helper()
	lease, err := takeSoon(t, take)
	if err != nil {
		t.Errorf("%s: %v", kind, err)
		return
	}
	mustUnlock(t, lease)
}

// A change of which a part has run is refused, and not repeated: the server could not recognize the repeat.
func TestHalfAChangeIsNotRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := w.client(lock.Config{}).Semaphore("sem")
		if _, err := s.TrySetPermits(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		w.srv.Deny("set")
		err := s.AddPermits(t.Context(), 2)
		_, refused := errors.AsType[resp.Error](err)
		if release := s.Release(t.Context(), 2); !refused || release == nil || errors.Is(release, lock.ErrUncertain) {
			t.Errorf("AddPermits() = %v, Release() = %v", err, release)
		}
		w.sleep(10 * time.Second)
		w.srv.Deny()
		w.sleep(time.Second)
		if n, err := s.Available(t.Context()); n > 9 || err != nil {
			t.Errorf("Available() = %d, %v, want 9 at most", n, err)
		}
	})
}

// A user with the rights that Redisson needs for counts, and without SET, which latches need, changes no count.
func TestCountsWithoutLatches(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, ctx := w.client(lock.Config{}), t.Context()
		s, p, l := c.Semaphore("sem"), c.PermitSemaphore("permits"), c.CountDownLatch("latch")
		for _, set := range []func(context.Context, int) (bool, error){s.TrySetPermits, p.TrySetPermits, l.TrySetCount} {
			if _, err := set(ctx, 2); err != nil {
				t.Fatal(err)
			}
		}
		w.srv.Deny("set")
		for name, change := range map[string]func() error{
			"TryAcquire":                      func() error { return s.TryAcquire(ctx, 1) },
			"Release":                         func() error { return s.Release(ctx, 1) },
			"ReleaseIfExists":                 func() error { _, err := s.ReleaseIfExists(ctx, 1); return err },
			"AddPermits":                      func() error { return s.AddPermits(ctx, 1) },
			"DrainPermits":                    func() error { _, err := s.DrainPermits(ctx); return err },
			"SetPermits":                      func() error { return p.SetPermits(ctx, 3) },
			"AddPermits of a PermitSemaphore": func() error { return p.AddPermits(ctx, 1) },
			"CountDown":                       func() error { return l.CountDown(ctx) },
			"Delete":                          func() error { _, err := l.Delete(ctx); return err },
		} {
			if err := change(); err == nil {
				t.Errorf("%s succeeded without the right to SET", name)
			}
			w.wantKey("sem", "2")
			w.wantKey("permits", "2")
			w.wantKey("latch", "2")
		}
		w.sleep(10 * time.Second)
		w.srv.Deny()
		w.sleep(time.Second)
		w.wantKey("sem", "2")
		w.wantKey("permits", "2")
		w.wantKey("latch", "2")
	})
}

// No request that lost a right halfway changes for ever how many permits there are.
func TestPermitsWithoutRights(t *testing.T) {
	acquire := func(w *world, c *lock.Client) {
		if err := c.Semaphore("sem").TryAcquire(w.t.Context(), 2); err == nil {
			w.srv.Deny()
			_ = c.Semaphore("sem").Release(w.t.Context(), 2)
		}
		if lease, err := c.PermitSemaphore("permits").TryAcquireMany(w.t.Context(), 2); err == nil {
			_ = lease.Unlock(w.t.Context())
		}
	}
	pairs := map[string]string{"acquire": "zadd incrby", "force": "del decrby"} // what is taken back needs no right of its own
	for what, request := range map[string]func(w *world, c *lock.Client, taken *lock.Lease){
		"acquire": func(w *world, c *lock.Client, _ *lock.Lease) { acquire(w, c) },
		"undo": func(w *world, c *lock.Client, _ *lock.Lease) {
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if isAcquire(cmd) {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			})
			acquire(w, c)
			w.sleep(time.Second)
			w.srv.Intercept(nil)
		},
		"unlock": func(w *world, _ *lock.Client, taken *lock.Lease) { _ = taken.Unlock(w.t.Context()) },
		"release": func(w *world, c *lock.Client, taken *lock.Lease) {
			_ = c.PermitSemaphore("permits").Release(w.t.Context(), taken.PermitIDs()...)
		},
		"force": func(w *world, c *lock.Client, _ *lock.Lease) {
			_, _ = c.PermitSemaphore("permits").ReleaseAll(w.t.Context())
		},
		"acquire behind an ended lease": func(w *world, c *lock.Client, _ *lock.Lease) {
			w.sleep(time.Minute)
			acquire(w, c)
		},
	} {
		rights := strings.Fields("decrby del incrby pexpire pttl set zadd zcard zcount zrange zrem zremrangebyscore zscore")
		if pair := pairs[what]; pair != "" {
			rights = append(rights, pair)
		}
		for _, right := range rights {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				_, _ = c.Semaphore("sem").TrySetPermits(t.Context(), 5)
				_, _ = c.PermitSemaphore("permits").TrySetPermits(t.Context(), 5)
				taken, err := c.PermitSemaphore("permits").AcquireMany(t.Context(), 2, lock.For(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				w.srv.Deny(strings.Fields(right)...)
				request(w, other, taken)
				w.srv.Deny()
				w.sleep(2 * time.Minute)
				for kind, available := range map[string]func(context.Context) (int, error){
					"Semaphore": c.Semaphore("sem").Available, "PermitSemaphore": c.PermitSemaphore("permits").Available,
				} {
					if n, err := available(t.Context()); n != 5 || err != nil {
						t.Errorf("%s without %s: %s.Available() = %d, %v, want 5", what, right, kind, n, err)
					}
				}
			})
		}
	}
}

// A change of a count that lost a right halfway, and then its answer, is not taken for done: either it fails and has changed nothing, or the
// right is back for its repeat.
func TestLostRefusalOfAChange(t *testing.T) {
	for _, back := range []bool{false, true} {
		for name, test := range map[string]struct {
			right, key, want string
			change           func(ctx context.Context, c *lock.Client) error
		}{
			"Release":      {"incrby", "sem", "7", func(ctx context.Context, c *lock.Client) error { return c.Semaphore("sem").Release(ctx, 2) }},
			"AddPermits":   {"incrby", "sem", "3", func(ctx context.Context, c *lock.Client) error { return c.Semaphore("sem").AddPermits(ctx, -2) }},
			"DrainPermits": {"decrby", "sem", "0", drainFive},
			"AddPermits of a PermitSemaphore": {"incrby", "permits", "7", func(ctx context.Context, c *lock.Client) error {
				return c.PermitSemaphore("permits").AddPermits(ctx, 2)
			}},
			"SetPermits": {"incrby", "permits", "4", func(ctx context.Context, c *lock.Client) error {
				return c.PermitSemaphore("permits").SetPermits(ctx, 4)
			}},
			"CountDown": {"decr", "latch", "4", func(ctx context.Context, c *lock.Client) error { return c.CountDownLatch("latch").CountDown(ctx) }},
		} {
			t.Run(fmt.Sprint(name, ", the right is back ", back), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					for _, key := range []string{"sem", "permits", "latch"} {
						w.srv.Do("SET", key, "5")
					}
					w.srv.Deny(test.right)
					scripts := 0
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if !strings.HasPrefix(cmd.Name, "EVAL") {
							return fakeredis.Run()
						}
						if scripts++; scripts == 1 {
							return fakeredis.RunThenClose()
						}
						if back {
							w.srv.Deny()
						}
						return fakeredis.Run()
					})
					err, want := test.change(t.Context(), c), test.want
					_, refused := errors.AsType[resp.Error](err)
					if !back {
						want = "5"
					}
					if back != (err == nil) || refused == back {
						t.Errorf("the error is %v", err)
					}
					w.wantKey(test.key, want)
				})
			})
		}
	}
}

func drainFive(ctx context.Context, c *lock.Client) error {
	if n, err := c.Semaphore("sem").DrainPermits(ctx); err != nil || n != 5 {
		return fmt.Errorf("%d permits: %w", n, err)
	}
	return nil
}

// A waiter for permits whose request lost a right halfway, and then its answer, gets them once the right is there.
func TestWaiterWithoutTheAnswerOfAPart(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		_, _ = c.Semaphore("sem").TrySetPermits(t.Context(), 5)
		w.srv.Deny("decrby")
		lost := false
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if lost || !isAcquire(cmd) {
				return fakeredis.Run()
			}
			lost = true
			time.AfterFunc(2*time.Millisecond, func() { w.srv.Deny() })
			return fakeredis.RunThenClose()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Semaphore("sem").Acquire(ctx, 2); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Semaphore("sem").Available(t.Context()); n != 3 || err != nil {
			t.Errorf("Available() = %d, %v, want 3", n, err)
		}
	})
}

// A release of an inner hold of which a part has run is repeated, and leaves the outer hold.
func TestHalfAReleaseOfAnInnerHold(t *testing.T) {
	for _, right := range []string{"set", "pexpire", "hincrby", "hdel", "hset", "zrange", "exists", "hget"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			owner := c.NewOwner()
			outer := mustLock(t, c, "job", lock.As(owner), lock.For(time.Hour))
			inner := mustLock(t, c, "job", lock.As(owner), lock.For(time.Hour))
			w.srv.Deny(right)
			err := inner.Unlock(t.Context())
			w.sleep(10 * time.Second)
			w.srv.Deny()
			w.sleep(time.Second)
			if again := inner.Unlock(t.Context()); again != nil && (!errors.Is(again, lock.ErrUncertain) || !strings.HasPrefix(again.Error(), `lock "job": `)) {
				t.Errorf("without %s: Unlock() = %v, then %v", right, err, again)
			}
			if n := w.srv.Do("HGET", "job", outer.Owner()); n != "1" || outer.Err() != nil {
				t.Errorf("without %s: %v holds, %v", right, n, err)
			}
			mustUnlock(t, outer)
		})
	}
}

// The same if the first request had no answer, and a part of its repeat has run.
func TestHalfARepeatOfAnInnerRelease(t *testing.T) {
	for _, right := range []string{"set", "pexpire", "hincrby"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			owner := c.NewOwner()
			outer := mustLock(t, c, "job", lock.As(owner), lock.For(time.Hour))
			inner := mustLock(t, c, "job", lock.As(owner), lock.For(time.Hour))
			w.srv.Deny(right)
			w.onScript("release", func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.Close()
				}
				return fakeredis.Run()
			})
			err := inner.Unlock(t.Context())
			w.sleep(10 * time.Second)
			w.srv.Deny()
			w.sleep(time.Second)
			if n := w.srv.Do("HGET", "job", outer.Owner()); n != "1" || outer.Err() != nil {
				t.Errorf("without %s: %v holds, %v; Unlock() = %v", right, n, outer.Err(), err)
			}
			mustUnlock(t, outer)
		})
	}
}

// A release for which the right is missing is repeated, and frees the lock as soon as the right is back.
func TestReleaseWithoutRights(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		for _, kind := range kindsWithLeases {
			lease, err := leasedKinds(t, c)[kind](t.Context())
			if err != nil {
				t.Fatal(kind, err)
			}
			w.srv.Deny("evalsha", "eval")
			err = lease.Unlock(t.Context())
			wantErr(t, kind+": Unlock", err, lock.ErrUncertain)
			wantErr(t, kind+": Unlock", err, resp.ErrNoPerm)
			w.sleep(5 * time.Second)
			w.srv.Deny()
			w.sleep(time.Second)
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("%s: Unlock() = %v once the right is back", kind, err)
			}
			mustUnlockOf(t, kind, leasedKinds(t, other)[kind])
		}
	})
}

// Waiters of a fair lock that have given up while their client had no rights keep nobody waiting once it has rights again.
func TestFairWaitersWithoutRights(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		holder := mustLockFair(t, other)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		failed := make(chan error)
		for range 3 {
			go func() {
				_, err := c.Fair("job").Lock(ctx)
				failed <- err
			}()
		}
		w.sleep(500 * time.Millisecond)
		w.srv.Deny("evalsha", "eval", "unsubscribe")
		for range 3 {
			wantErr(t, "Lock", <-failed, context.DeadlineExceeded)
		}
		if line := w.line(); len(line) != 3 {
			t.Errorf("%v stand in line", line)
		}
		w.sleep(2 * time.Minute)
		w.srv.Deny()
		w.sleep(time.Second)
		w.wantLine()
		_ = holder.Unlock(t.Context())
	})
}

// An acquire without an answer is taken back also if the undo lost a right halfway: by its latch the server would take a repeat for done, and
// the latch still keeps the acquire from taking effect later.
func TestHalfAnUndoOfALostAcquire(t *testing.T) {
	for _, right := range []string{"hget", "hmget", "hdel", "zrem", "get", "hlen", "zrange", "lrange"} {
		for _, kind := range kindsWithLeases {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				mine, others := leasedKinds(t, c)[kind], leasedKinds(t, other)[kind]
				mustUnlockOf(t, kind, mine)
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if isAcquire(cmd) {
						return fakeredis.RunThenClose()
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				w.srv.Deny(right)
				if lease, err := mine(ctx); err == nil {
					mustUnlock(t, lease)
				}
				w.sleep(2 * time.Second)
				w.srv.Intercept(nil)
				w.srv.Deny()
				w.sleep(2 * time.Second)
				mustUnlockOf(t, kind+" without "+right, others)
				if n, err := c.PermitSemaphore("permits").Available(t.Context()); n != 3 || err != nil {
					t.Errorf("%s without %s: %d permits, %v, want 3", kind, right, n, err)
				}
			})
		}
	}
}

// An acquire that finds an ended lease of a group and may not set its own leaves the group a group.
func TestHalfAnAcquireInPlaceOfAnEndedLease(t *testing.T) {
	for _, right := range []string{"hset", "hdel"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			ended, other := c.FasterMulti("group", "ended"), c.FasterMulti("group", "other")
			lease, err := other.Lock(t.Context(), lock.For(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ended.Lock(t.Context(), lock.For(time.Second)); err != nil {
				t.Fatal(err)
			}
			w.sleep(2 * time.Second)
			w.srv.Deny(right)
			if _, err := ended.TryLock(t.Context()); err == nil {
				t.Errorf("TryLock without %s succeeds", right)
			}
			w.srv.Deny()
			w.sleep(time.Second)
			mustUnlock(t, lease)
			mustUnlockOf(t, "without "+right, ended.Lock)
		})
	}
}

// A request of which a part has run leaves a lock of its kind: who has it can be asked, and it can be taken by force.
func TestHalfARequestLeavesALockOfItsKind(t *testing.T) {
	for _, right := range strings.Fields("del hdel hincrby hset lpop pexpire publish rpush set zadd zrem") {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c, other := w.client(lock.Config{}), w.client(lock.Config{})
			handles, others := ownedHandles(c), ownedHandles(other)
			for kind, h := range handles {
				owner := c.NewOwner()
				for _, opts := range [][]lock.Option{nil, {lock.AtLeast(time.Minute)}, {lock.As(owner)}, {lock.As(owner), lock.AtLeast(time.Minute)}} {
					w.halfRequests(t, kind, h, others[kind], right, opts...)
				}
			}
		})
	}
}

// halfRequests takes and releases a lock beside a waiter of each process, all but the first hold without a right.
func (w *world) halfRequests(t *testing.T, kind string, h, other *lock.Handle, right string, opts ...lock.Option) {
	t.Helper()
	lease, err := takeSoon(t, h.Lock, opts...)
	if errors.Is(err, lock.ErrInvalid) {
		return // not each kind has each option
	}
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, waiter := range []*lock.Handle{h, other} {
		wg.Go(func() {
			if lease, err := takeSoon(t, waiter.Lock); err == nil {
				_ = lease.Unlock(t.Context())
			}
		})
	}
	synctest.Wait()
	w.srv.Deny(right)
	if further, err := h.TryLock(t.Context(), opts...); err == nil {
		_ = further.Unlock(t.Context())
	}
	_ = lease.Unlock(t.Context())
	wg.Wait()
	if lease, err := other.TryLock(t.Context()); err == nil {
		_ = lease.Unlock(t.Context())
	}
	if _, err := other.Info(t.Context()); err != nil {
		t.Errorf("%s without %s: Info() = %v", kind, right, err)
	}
	if _, err := other.ForceUnlock(t.Context()); err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("%s without %s: ForceUnlock() = %v", kind, right, err)
	}
	w.srv.Deny()
	w.sleep(2 * time.Minute)
}

// ownedHandles are locks of all kinds with an owner, each with a name of its own.
func ownedHandles(c *lock.Client) map[string]*lock.Handle {
	return map[string]*lock.Handle{
		"reentrant": &c.Reentrant("a").Handle, "nonreentrant": &c.NonReentrant("b").Handle, "fenced": &c.Fenced("c").Handle,
		"fair": &c.Fair("d").Handle, "nonreentrantfair": &c.NonReentrantFair("e").Handle, "read": &c.ReadWrite("f").Read().Handle,
		"write": &c.ReadWrite("g").Write().Handle, "plain": &c.Plain("h").Handle, "fastermulti": &c.FasterMulti("i", "1", "2").Handle,
	}
}

// A renewal or a Check that lacks a right does not say that another has the lock: it is held, and released, once the right is back.
func TestRenewalWithoutRights(t *testing.T) {
	for _, right := range []string{"hexists", "hmget", "hget", "get", "zscore"} {
		for _, kind := range kindsWithLeases {
			inVirtualTime(t, func(t *testing.T, w *world) {
				lease, err := leasedKinds(t, w.client(lock.Config{}))[kind](t.Context())
				if err != nil {
					t.Fatal(kind, err)
				}
				w.srv.Deny(right)
				w.sleep(12 * time.Second)
				if err := lease.Check(t.Context()); errors.Is(err, lock.ErrLost) {
					t.Errorf("%s without %s: Check() = %v", kind, right, err)
				}
				w.srv.Deny()
				w.sleep(10 * time.Second)
				if err := lease.Unlock(t.Context()); err != nil {
					t.Errorf("%s, once %s is back: Unlock() = %v", kind, right, err)
				}
			})
		}
	}
}
