package lock_test

import (
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
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
