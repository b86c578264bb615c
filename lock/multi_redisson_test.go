package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// redissonMulti takes locks by the rules of Redisson's RedissonMultiLock, its faults included.
type redissonMulti struct {
	w      *world
	c      *lock.Client
	names  []string
	held   map[string]*lock.Lease
	leases []time.Duration // that each turn of its loop asked for
}

// lock is RedissonMultiLock.lock(lease, unit): an interrupt is noted, and the call returns as if it had the locks.
func (r *redissonMulti) lock(ctx context.Context, lease int64, unit time.Duration) error {
	_ = r.lockInterruptibly(ctx, lease, unit)
	return nil
}

// lockInterruptibly converts the lease anew in each turn of the loop.
func (r *redissonMulti) lockInterruptibly(ctx context.Context, lease int64, unit time.Duration) error {
	wait := time.Duration(len(r.names)) * 1500 * time.Millisecond
	for {
		lease = int64(time.Duration(lease) * unit / time.Millisecond)
		r.leases = append(r.leases, time.Duration(lease)*time.Millisecond)
		switch ok, err := r.tryLock(ctx, wait, time.Duration(lease)*time.Millisecond); {
		case err != nil:
			return err
		case ok:
			return nil
		}
	}
}

// tryLock takes the locks in the order given, for twice the wait, and then sets the lease of their keys, whosever they are by
// now: of a fenced lock that of its token too.
func (r *redissonMulti) tryLock(ctx context.Context, wait, lease time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	r.held = map[string]*lock.Lease{}
	for _, name := range r.names {
		held, err := r.c.Fenced(name).Lock(ctx, lock.For(2*wait))
		if err != nil {
			for _, l := range r.held {
				_ = l.Unlock(ctx)
			}
			if errors.Is(context.Cause(ctx), errWaited) {
				return false, nil
			}
			return false, err
		}
		r.held[name] = held
	}
	for _, name := range r.names {
		ms := lease.Milliseconds()
		r.w.pexpire(name, ms)
		r.w.pexpire("redisson_lock_token:{"+name+"}", ms)
	}
	return true, nil
}

var errWaited = errors.New("waited for long enough")

func fenceds(c *lock.Client, names ...string) []lock.Member {
	var list []lock.Member
	for _, name := range names {
		list = append(list, c.Fenced(name))
	}
	return list
}

// A11: a lease never goes to a token. Redisson's ends with the lease, and the tokens begin again at 1.
func TestA11MultiKeepsTokens(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{PlainTokens: true})
		const token = "redisson_lock_token:{a}"
		w.srv.Do("SET", token, "41")
		lease := lockMulti(t, newMulti(t, fenceds(c, "a", "b")...), lock.For(time.Second))
		if got, left := w.srv.Do("GET", token), w.srv.Do("PTTL", token); got != "42" || left != int64(-1) {
			t.Errorf("token %v, its lease %v ms", got, left)
		}
		w.sleep(2 * time.Second)
		lostBecause(t, lease.Err(), lock.Expired)
		if got := lockFencedToken(t, c); got != 43 {
			t.Errorf("the next token is %d, want 43", got)
		}

		theirs := &redissonMulti{w: w, c: c, names: []string{"a", "b"}}
		if ok, err := theirs.tryLock(t.Context(), 500*time.Millisecond, time.Second); !ok {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		if got := lockFencedToken(t, c); got != 1 {
			t.Errorf("by Redisson's rule the next token is %d: the test proves nothing", got)
		}
	})
}

func lockFencedToken(t *testing.T, c *lock.Client) int64 {
	t.Helper()
	lease, err := c.Fenced("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer mustUnlock(t, lease)
	return lease.Token()
}

// A12: a wait that ends is an error and holds nothing; the lease is what was asked for, however often the locks are tried.
// Redisson returns as if it had them, and multiplies.
func TestA12MultiCancelledAndTriedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		theirs := &redissonMulti{w: w, c: c, names: []string{"a", "b"}}
		ours := newMulti(t, fenceds(c, "a", "b")...)
		taken := mustLock(t, other, "b")

		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := ours.Lock(soon, lock.For(10*time.Second))
		wantErr(t, "Lock() that is cancelled", err, context.DeadlineExceeded)
		wantErr(t, "Lock() that is cancelled", err, lock.ErrNotAcquired)
		soon, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := theirs.lock(soon, 10, time.Second); err != nil || len(theirs.held) == 2 {
			t.Errorf("by Redisson's rule the cancelled call returns %v: the test proves nothing", err)
		}
		w.sleep(time.Second)
		if w.srv.Do("EXISTS", "a") != int64(0) {
			t.Error("a is taken by nobody")
		}

		go func() { w.sleep(10 * time.Second); _ = taken.Unlock(context.Background()) }()
		lease := lockMulti(t, ours, lock.For(10*time.Second))
		if left := w.ttl("b"); left > 10*time.Second {
			t.Errorf("asked for 10s, the lease is %v", left)
		}
		mustUnlock(t, lease)
		taken = mustLock(t, other, "b")
		go func() { w.sleep(4 * time.Second); _ = taken.Unlock(context.Background()) }()
		theirs.leases = nil
		if err := theirs.lock(t.Context(), 10, time.Second); err != nil {
			t.Fatal(err)
		}
		if last := theirs.leases[len(theirs.leases)-1]; last < 2*time.Hour {
			t.Errorf("by Redisson's rule the lease is %v: the test proves nothing", last)
		}
	})
}
