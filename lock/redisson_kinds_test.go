package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// redissonThread is a client of the fake server that does to read-write locks what Redisson's scripts do, faults and all. They are
// here for tests to show what our own rules are good for.
type redissonThread struct {
	w     *world
	owner string // of its one thread
}

const redissonLatch = "redisson_unlock_latch:{job}:0123456789abcdef0123456789abcdef"

func (w *world) redisson(owner string) *redissonThread {
	for name, rule := range map[string]func(*fakeredis.Call) any{
		"read acquire":  redissonReadAcquire,
		"read release":  redissonReadRelease,
		"read renew":    redissonReadRenew,
		"write acquire": redissonWriteAcquire,
		"write release": redissonWriteRelease,
	} {
		w.srv.Script(name, rule)
	}
	return &redissonThread{w, owner}
}

func (r *redissonThread) eval(script string, keys []string, args ...string) any {
	return r.w.srv.Do(append(append([]string{"EVAL", script, text(int64(len(keys)))}, keys...), args...)...)
}

func (r *redissonThread) timeouts() string { return "{job}:" + r.owner + ":rwlock_timeout" }

func ms(d time.Duration) string { return text(d.Milliseconds()) }

// readLock and the like return the script's reply: nil if the lock is had.
func (r *redissonThread) readLock(lease time.Duration) any {
	return r.eval("read acquire", []string{"job", r.timeouts()}, ms(lease), r.owner, r.owner+":write")
}

func (r *redissonThread) writeLock(lease time.Duration) any {
	return r.eval("write acquire", []string{"job"}, ms(lease), r.owner+":write")
}

func (r *redissonThread) readUnlock() any {
	defer r.w.srv.Do("DEL", redissonLatch)
	return r.readUnlockOnce()
}

// readUnlockOnce leaves the latch, as if the reply had been lost.
func (r *redissonThread) readUnlockOnce() any {
	return r.eval("read release", []string{"job", "redisson_rwlock:{job}", r.timeouts(), "{job}", redissonLatch},
		"0", r.owner, "PUBLISH", "16000")
}

func (r *redissonThread) writeUnlock(lease time.Duration) any {
	defer r.w.srv.Do("DEL", redissonLatch)
	return r.eval("write release", []string{"job", "redisson_rwlock:{job}", redissonLatch},
		"1", ms(lease), r.owner+":write", "PUBLISH", "16000")
}

func (r *redissonThread) renewRead(lease time.Duration) any {
	return r.eval("read renew", []string{"job", "{job}"}, ms(lease), r.owner)
}

func redissonReadAcquire(c *fakeredis.Call) any {
	name, timeouts, lease, owner := c.Keys[0], c.Keys[1], c.Args[0], c.Args[1]
	mode, _ := c.Do("HGET", name, "mode").(string)
	if mode == "" {
		c.Do("HSET", name, "mode", "read")
		c.Do("HSET", name, owner, "1")
		c.Do("SET", timeouts+":1", "1")
		c.Do("PEXPIRE", timeouts+":1", lease)
		c.Do("PEXPIRE", name, lease)
		return nil
	}
	if mode == "read" || mode == "write" && c.Int("HEXISTS", name, c.Args[2]) == 1 {
		key := timeouts + ":" + text(c.Int("HINCRBY", name, owner, "1"))
		c.Do("SET", key, "1")
		c.Do("PEXPIRE", key, lease)
		c.Do("PEXPIRE", name, text(max(c.Int("PTTL", name), number(lease))))
		return nil
	}
	return c.Do("PTTL", name)
}

func redissonReadRelease(c *fakeredis.Call) any {
	name, channel, timeouts, prefix, latch := c.Keys[0], c.Keys[1], c.Keys[2], c.Keys[3], c.Keys[4]
	payload, owner, publish, life := c.Args[0], c.Args[1], c.Args[2], c.Args[3]
	if outcome, ok := c.Do("GET", latch).(string); ok {
		return number(outcome)
	}
	mode, _ := c.Do("HGET", name, "mode").(string)
	if mode == "" {
		c.Do(publish, channel, payload)
		c.Do("SET", latch, "1", "PX", life)
		return nil
	}
	if c.Int("HEXISTS", name, owner) == 0 {
		return nil
	}
	count := c.Int("HINCRBY", name, owner, "-1")
	if count == 0 {
		c.Do("HDEL", name, owner)
	}
	c.Do("DEL", timeouts+":"+text(count+1))
	if c.Int("HLEN", name) > 1 {
		longest := int64(-3)
		for field, value := range fields(c, name) {
			for i := number(value); i >= 1; i-- {
				longest = max(longest, c.Int("PTTL", prefix+":"+field+":rwlock_timeout:"+text(i)))
			}
		}
		if longest > 0 {
			c.Do("PEXPIRE", name, text(longest))
			c.Do("SET", latch, "0", "PX", life)
			return int64(0)
		}
		if mode == "write" {
			c.Do("SET", latch, "0", "PX", life)
			return int64(0)
		}
	}
	c.Do("DEL", name)
	c.Do(publish, channel, payload)
	c.Do("SET", latch, "1", "PX", life)
	return int64(1)
}

func redissonReadRenew(c *fakeredis.Call) any {
	name, prefix, lease := c.Keys[0], c.Keys[1], c.Args[0]
	renewed := int64(0)
	for _, owner := range c.Args[1:] {
		for i := range c.Int("HGET", name, owner) {
			c.Do("PEXPIRE", prefix+":"+owner+":rwlock_timeout:"+text(i+1), lease)
			renewed = 1
		}
	}
	if renewed == 1 {
		c.Do("PEXPIRE", name, lease)
	}
	return renewed
}

func redissonWriteAcquire(c *fakeredis.Call) any {
	name, lease, owner := c.Keys[0], c.Args[0], c.Args[1]
	mode, _ := c.Do("HGET", name, "mode").(string)
	if mode == "" {
		c.Do("HSET", name, "mode", "write")
		c.Do("HSET", name, owner, "1")
		c.Do("PEXPIRE", name, lease)
		return nil
	}
	if mode == "write" && c.Int("HEXISTS", name, owner) == 1 {
		c.Do("HINCRBY", name, owner, "1")
		c.Do("PEXPIRE", name, text(c.Int("PTTL", name)+number(lease)))
		return nil
	}
	return c.Do("PTTL", name)
}

func redissonWriteRelease(c *fakeredis.Call) any {
	name, channel, latch := c.Keys[0], c.Keys[1], c.Keys[2]
	payload, lease, owner, publish, life := c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4]
	if outcome, ok := c.Do("GET", latch).(string); ok {
		return number(outcome)
	}
	mode, _ := c.Do("HGET", name, "mode").(string)
	switch {
	case mode == "":
		c.Do(publish, channel, payload)
		c.Do("SET", latch, "1", "PX", life)
		return nil
	case mode == "read", c.Int("HEXISTS", name, owner) == 0:
		return nil
	}
	if c.Int("HINCRBY", name, owner, "-1") > 0 {
		c.Do("PEXPIRE", name, lease)
		c.Do("SET", latch, "0", "PX", life)
		return int64(0)
	}
	c.Do("HDEL", name, owner)
	if c.Int("HLEN", name) == 1 {
		c.Do("DEL", name)
		c.Do(publish, channel, payload)
	} else {
		c.Do("HSET", name, "mode", "read")
	}
	c.Do("SET", latch, "1", "PX", life)
	return int64(1)
}

// readIsLocked and writeIsLocked are what Redisson's isLocked says of a lock, and isLockedAsync of either half.
func (r *redissonThread) readIsLocked() bool {
	n, _ := r.w.srv.Do("HLEN", "job").(int64)
	mode := r.w.srv.Do("HGET", "job", "mode")
	return mode == "read" || mode == "write" && n > 2
}

func (r *redissonThread) writeIsLocked() bool { return r.w.srv.Do("HGET", "job", "mode") == "write" }

func (r *redissonThread) isLockedAsync() bool { return r.w.srv.Do("EXISTS", "job") == int64(1) }

// redissonWatchdog is who Redisson renews on one lock: one schedule for plain and write locks, one for read locks, both by
// the thread and not by the owner.
type redissonWatchdog struct{ plain, read map[string]bool }

// readUnlock ends the renewal of a read lock, and, of the same thread, that of a plain one.
func (d *redissonWatchdog) readUnlock(thread string) {
	delete(d.read, thread)
	delete(d.plain, thread)
}

// renew does one round.
func (d *redissonWatchdog) renew(w *world, lease time.Duration) {
	for thread := range d.plain {
		if w.srv.Do("HEXISTS", "job", thread+":write") == int64(1) {
			w.srv.Do("PEXPIRE", "job", ms(lease))
		}
	}
	for thread := range d.read {
		w.redisson(thread).renewRead(lease)
	}
}

// redissonGate is what threads of one process wait at: a semaphore that a message gives permits.
type redissonGate struct {
	permits chan struct{}
	parked  int
}

func (g *redissonGate) heard(payload string) {
	n := 1 // of 0, one is kept for who comes
	if strings.TrimSpace(payload) == "1" {
		n = g.parked
	}
	for range n {
		g.permits <- struct{}{}
	}
}

// park waits for a permit, or for as long as the lock is taken at most.
func (g *redissonGate) park(left time.Duration) {
	g.parked++
	defer func() { g.parked-- }()
	select {
	case <-g.permits:
	case <-time.After(left):
	}
}

// mixed is a read-write lock that our owners and Redisson's threads share, and who should have what.
type mixed struct {
	t       *testing.T
	w       *world
	ours    []lock.Owner
	clients []*lock.Client
	theirs  []*redissonThread
	leases  map[string][]*lock.Lease // of ours, by owner and half
	holds   map[string]int           // by owner and half
}

// Redisson's rules and ours, on the same lock in any order, agree about who has it: what the one grants the other respects,
// and what the one leaves the other can release.
func TestSharedWithRedisson(t *testing.T) {
	for seed := range uint64(20) {
		inVirtualTime(t, func(t *testing.T, w *world) {
			m := &mixed{t: t, w: w, leases: map[string][]*lock.Lease{}, holds: map[string]int{}}
			for i := range 2 {
				c := w.client(lock.Config{})
				m.clients = append(m.clients, c)
				m.ours = append(m.ours, c.NewOwner())
				m.theirs = append(m.theirs, w.redisson(fmt.Sprint("java:", i)))
			}
			random := rand.New(rand.NewPCG(seed, 1))
			for range 400 {
				m.step(random)
				m.check()
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			for range 3 { // what is held is released
				for who := range 4 {
					for _, part := range []string{"write", "read"} {
						for m.holds[m.name(who)+part] > 0 {
							m.release(who, part)
						}
					}
				}
			}
			w.free()
		})
	}
}

func (m *mixed) name(who int) string {
	if who < 2 {
		return m.ours[who].String()
	}
	return m.theirs[who-2].owner
}

func (m *mixed) step(random *rand.Rand) {
	who, part := random.IntN(4), []string{"read", "write"}[random.IntN(2)]
	if random.IntN(2) == 0 {
		m.acquire(who, part)
	} else if m.holds[m.name(who)+part] > 0 {
		m.release(who, part)
	}
	if random.IntN(3) == 0 {
		m.w.sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
	}
}

// allowed reports whether who may have the lock in that way now.
func (m *mixed) allowed(who int, part string) bool {
	for key, n := range m.holds {
		other := key != m.name(who)+"read" && key != m.name(who)+"write"
		switch {
		case n == 0:
		case part == "write" && other,
			part == "write" && key == m.name(who)+"read" && m.holds[m.name(who)+"write"] == 0,
			part == "read" && other && key[len(key)-5:] == "write":
			return false
		}
	}
	return true
}

// leaseOfAll is longer than a walk takes.
const leaseOfAll = time.Hour

func (m *mixed) acquire(who int, part string) {
	m.t.Helper()
	key, granted := m.name(who)+part, false
	if who < 2 {
		lease, err := halves(m.clients[who])[part].TryLock(m.t.Context(), lock.As(m.ours[who]), lock.For(leaseOfAll))
		if granted = err == nil; granted {
			m.leases[key] = append(m.leases[key], lease)
		}
	} else if r := m.theirs[who-2]; part == "read" {
		granted = r.readLock(leaseOfAll) == nil
	} else {
		granted = r.writeLock(leaseOfAll) == nil
	}
	if granted != m.allowed(who, part) {
		m.t.Errorf("%s asks to %s, and is granted %v, with holds %v", m.name(who), part, granted, m.holds)
	}
	if granted {
		m.holds[key]++
	}
}

func (m *mixed) release(who int, part string) {
	m.t.Helper()
	key := m.name(who) + part
	m.holds[key]--
	switch {
	case who < 2:
		last := len(m.leases[key]) - 1
		lease := m.leases[key][last]
		m.leases[key] = m.leases[key][:last]
		if err := lease.Unlock(m.t.Context()); err != nil {
			m.t.Errorf("%s releases %s: %v", m.name(who), part, err)
		}
	case part == "read" && m.theirs[who-2].readUnlock() == nil, part == "write" && m.theirs[who-2].writeUnlock(leaseOfAll) == nil:
		m.t.Errorf("%s releases %s, and Redisson says that it had nothing", m.name(who), part)
	}
}

// check compares the server's hash, and the keys of the readers' leases, with who should have what.
func (m *mixed) check() {
	m.t.Helper()
	held := false
	for who := range 4 {
		owner := m.name(who)
		reads, writes := m.holds[owner+"read"], m.holds[owner+"write"]
		held = held || reads+writes > 0
		for field, want := range map[string]int{owner: reads, owner + ":write": writes} {
			got, _ := m.w.srv.Do("HGET", "job", field).(string)
			if number(got) != int64(want) {
				m.t.Errorf("%s has %q holds on the server, want %d", field, got, want)
			}
		}
		for n := range 5 {
			if left := m.w.timeoutLeft("job", owner, int64(n+1)); (left > 0) != (n < reads) {
				m.t.Errorf("%s with %d read holds: the lease of the %d. is %v", owner, reads, n+1, left)
			}
		}
	}
	if left := m.w.ttl("job"); held != (left > time.Minute) {
		m.t.Errorf("the lock lasts %v with holds %v", left, m.holds)
	}
}

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
