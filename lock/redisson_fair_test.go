package lock_test

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/pubsub"
)

// The rules of Redisson's fair lock, with its faults, as scripts of the fake server.
const (
	redissonAcquire = "redisson: fair lock, acquire" // KEYS lock queue timeouts; ARGV lease owner wait now, 1 to stand in line
	redissonRelease = "redisson: fair lock, release" // KEYS lock queue timeouts channel; ARGV owner now
)

func teachRedisson(srv *fakeredis.Server) {
	srv.Script(redissonAcquire, redissonFairAcquire)
	srv.Script(redissonRelease, redissonFairRelease)
}

// redissonEvict drops heads whose time is up. One without a time stops it.
func redissonEvict(c *fakeredis.Call, now int64) {
	for {
		head, ok := c.Do("LINDEX", c.Keys[1], "0").(string)
		if !ok {
			return
		}
		score, ok := c.Do("ZSCORE", c.Keys[2], head).(string)
		if !ok || number(score) > now {
			return
		}
		c.Do("ZREM", c.Keys[2], head)
		c.Do("LPOP", c.Keys[1])
	}
}

func redissonFairAcquire(c *fakeredis.Call) any {
	lock, queue, timeouts := c.Keys[0], c.Keys[1], c.Keys[2]
	lease, owner, wait, now := c.Args[0], c.Args[1], number(c.Args[2]), number(c.Args[3])
	redissonEvict(c, now)
	head, waited := c.Do("LINDEX", queue, "0").(string)
	if c.Int("EXISTS", lock) == 0 && (!waited || head == owner) {
		c.Do("LPOP", queue)
		c.Do("ZREM", timeouts, owner)
		for _, member := range c.Do("ZRANGE", timeouts, "0", "-1").([]any) {
			c.Do("ZINCRBY", timeouts, strconv.FormatInt(-wait, 10), member.(string))
		}
		c.Do("HSET", lock, owner, "1")
		c.Do("PEXPIRE", lock, lease)
		return nil
	}
	if c.Int("HEXISTS", lock, owner) == 1 {
		c.Do("HINCRBY", lock, owner, "1")
		c.Do("PEXPIRE", lock, lease)
		return nil
	}
	left := c.Int("PTTL", lock)
	if c.Args[4] != "1" {
		return int64(1)
	}
	if _, stands := c.Do("ZSCORE", timeouts, owner).(string); stands {
		return max(0, left)
	}
	if last, ok := c.Do("LINDEX", queue, "-1").(string); ok && last != owner {
		if score, ok := c.Do("ZSCORE", timeouts, last).(string); ok {
			left = number(score) - now
		}
	}
	if c.Int("ZADD", timeouts, strconv.FormatInt(left+wait+now, 10), owner) == 1 {
		c.Do("RPUSH", queue, owner)
	}
	return left
}

func redissonFairRelease(c *fakeredis.Call) any {
	lock, queue, channel, owner := c.Keys[0], c.Keys[1], c.Keys[3], c.Args[0]
	redissonEvict(c, number(c.Args[1]))
	tell := func() {
		if head, ok := c.Do("LINDEX", queue, "0").(string); ok {
			c.Publish(channel+":"+head, "0")
		}
	}
	switch {
	case c.Int("EXISTS", lock) == 0:
		tell()
		return int64(1)
	case c.Int("HEXISTS", lock, owner) == 0:
		return nil
	case c.Int("HINCRBY", lock, owner, "-1") > 0:
		c.Do("PEXPIRE", lock, "30000")
		return int64(0)
	}
	c.Do("DEL", lock)
	tell()
	return int64(1)
}

// fairRedisson is a process that uses Redisson's fair lock of the name job.
type fairRedisson struct {
	t      *testing.T
	pool   *conn.Pool
	events *pubsub.Subscriber
	ahead  time.Duration // of the server's clock
	late   time.Duration // from standing in line until it subscribes
	apart  bool          // it listens at a replica: the server does not count it, and its messages arrive all the same
	looks  atomic.Int64
}

const (
	jobQueue    = "redisson_lock_queue:{job}"
	jobTimeouts = "redisson_lock_timeout:{job}"
	jobChannel  = "redisson_lock__channel:{job}"
	jobIdle     = "lockwire_fair_head:{job}"
)

func (w *world) fairRedisson() *fairRedisson {
	teachRedisson(w.srv)
	r := &fairRedisson{t: w.t, pool: w.pool(conn.Config{}), late: 2 * time.Millisecond}
	r.events = pubsub.New(r.pool, pubsub.Config{})
	w.pools = append(w.pools, r.pool)
	w.t.Cleanup(func() { r.events.Close() })
	return r
}

func (r *fairRedisson) now() int64 { return time.Now().Add(r.ahead).UnixMilli() }

// acquire reports whether owner has the lock, and if not, after which time Redisson would look again.
func (r *fairRedisson) acquire(owner string, wait time.Duration, stands bool) (bool, time.Duration) {
	r.looks.Add(1)
	v, err := r.pool.Do(r.t.Context(), "EVAL", redissonAcquire, 3, "job", jobQueue, jobTimeouts,
		time.Hour.Milliseconds(), owner, wait.Milliseconds(), r.now(), stands)
	if err != nil {
		r.t.Error(err)
		return true, 0
	}
	ms, _ := v.Int()
	return v.IsNull(), time.Duration(ms) * time.Millisecond
}

// lock waits for the lock as Redisson's does: it looks, subscribes, and looks again whenever it is told, and at the end of
// the time that it was given. When ctx ends it goes without a word, as a process does that dies.
func (r *fairRedisson) lock(ctx context.Context, owner string) bool {
	const wait = 5 * time.Minute
	if got, _ := r.acquire(owner, wait, true); got {
		return true
	}
	<-time.After(r.late)
	listen := r.events.Subscribe
	if r.apart {
		listen = r.events.PSubscribe
	}
	told, err := listen(ctx, jobChannel+":"+owner)
	if err != nil {
		return false
	}
	defer told.Close()
	for ctx.Err() == nil {
		got, left := r.acquire(owner, wait, true)
		if got {
			return true
		}
		if left <= 0 {
			continue // without a timer: so many that are over when they are waited for are more than the race detector stands
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-told.Events():
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// unlock reports whether Redisson's unlock would have returned without an exception.
func (r *fairRedisson) unlock(owner string) bool {
	v, err := r.pool.Do(r.t.Context(), "EVAL", redissonRelease, 4, "job", jobQueue, jobTimeouts, jobChannel, owner, r.now())
	return err == nil && !v.IsNull()
}

// line is who waits for the lock, in order.
func (w *world) line() []string {
	var list []string
	for _, e := range w.srv.Do("LRANGE", jobQueue, "0", "-1").([]any) {
		list = append(list, e.(string))
	}
	return list
}

// deadline is until when a waiter counts as alive, as the time from now.
func (w *world) deadline(owner string) time.Duration {
	text, ok := w.srv.Do("ZSCORE", jobTimeouts, owner).(string)
	if !ok {
		w.t.Fatalf("%s has no deadline", owner)
	}
	return time.Until(time.UnixMilli(number(text)))
}

// look has a waiter look.
func (w *world) look(owner string) { w.srv.Do("PUBLISH", jobChannel+":"+owner, "0") }

// A13: who releases a lock that has ended is told.
func TestA13(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java := w.fairRedisson()
		if !java.unlock("java:1") {
			t.Fatal("Redisson's rule refuses to release a lock that is free, so this shows nothing")
		}
		lease, err := w.client(lock.Config{}).Fair("job").Lock(t.Context(), lock.For(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		wantErr(t, "Unlock of a lease that has ended", lease.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()
	})
}

// A16: behind a dead head nobody asks without a pause.
func TestA16(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(time.Millisecond)
		java := w.fairRedisson()
		holder, err := w.client(lock.Config{}).Fair("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		java.acquire("dead:1", 5*time.Minute, true)
		ctx, die := context.WithCancel(t.Context())
		gone := make(chan bool, 1)
		go func() { gone <- java.lock(ctx, "java:1") }()
		w.sleep(time.Second)
		mustUnlock(t, holder)
		w.sleep(30 * time.Second) // until when it has been told to sleep
		before := java.looks.Load()
		w.sleep(time.Second)
		if n := java.looks.Load() - before; n < 200 {
			t.Fatalf("by Redisson's rule the waiter looks %d times a second, so this shows nothing", n)
		}
		die()
		<-gone

		w.srv.ClearLog()
		start := time.Now()
		lease, err := w.client(lock.Config{}).Fair("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		took, n := time.Since(start), w.srv.Count("EVALSHA")
		if took > 3*time.Second || n > 30 {
			t.Errorf("served after %v and %d scripts, want a second or two and a handful", took, n)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// A17: neither a head whose deadline is lost blocks the lock, nor does a deadline keep somebody out of the queue.
func TestA17(t *testing.T) {
	t.Run("no deadline", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, w *world) {
			java := w.fairRedisson()
			w.srv.Do("RPUSH", jobQueue, "dead:1")
			for range 100 {
				if got, _ := java.acquire("java:1", time.Second, false); got {
					t.Fatal("Redisson's rule passes over a head without a deadline, so this shows nothing")
				}
				w.sleep(time.Minute)
			}
			lease, err := w.client(lock.Config{}).Fair("job").TryLock(t.Context())
			if err != nil {
				t.Fatalf("TryLock behind a head without a deadline = %v", err)
			}
			mustUnlock(t, lease)
			w.free()
		})
	})
	t.Run("not in the queue", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, w *world) {
			java, c := w.fairRedisson(), w.client(lock.Config{})
			holder, err := c.Fair("job").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			java.acquire("java:1", time.Minute, true)
			w.srv.Do("DEL", jobQueue)
			java.acquire("java:1", time.Minute, true)
			if line := w.line(); len(line) != 0 {
				t.Fatalf("by Redisson's rule %v stand in line, so this shows nothing", line)
			}
			owner := c.NewOwner()
			got := make(chan *lock.Lease)
			go func() {
				lease, err := c.Fair("job").Lock(t.Context(), lock.As(owner))
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			w.sleep(time.Second)
			w.srv.Do("DEL", jobQueue)
			w.look(owner.String())
			w.sleep(time.Second)
			if line := w.line(); !slices.Equal(line, []string{owner.String()}) {
				t.Errorf("%v stand in line, want the waiter", line)
			}
			w.srv.Do("ZREM", jobTimeouts, "java:1")
			mustUnlock(t, holder)
			mustUnlock(t, <-got)
			w.free()
		})
	})
}

// A18: no client's clock puts anybody out of the queue, and nothing stays of a queue that all have left in a hurry.
func TestA18(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		java.ahead = 10 * time.Minute
		holder, err := c.Fair("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.waiter(c)
		before := w.line()
		if java.acquire("java:1", time.Minute, true); slices.Equal(before, w.line()[:1]) {
			t.Fatal("by Redisson's rule a clock that is ahead drops nobody, so this shows nothing")
		}
		w.srv.Do("DEL", jobQueue, jobTimeouts)

		w.srv.ClearLog()
		w.waiter(c)
		for _, cmd := range w.srv.Log() {
			for _, arg := range cmd.Args[:max(0, len(cmd.Args)-3)] { // behind these an acquire says until when it is good, and whom it tells
				if ms := number(arg); ms > time.Now().Add(-time.Hour).UnixMilli() && ms < time.Now().Add(time.Hour).UnixMilli() {
					t.Errorf("a clock was sent: %v", cmd)
				}
			}
		}
		mustUnlock(t, holder)
	})
	inVirtualTime(t, func(t *testing.T, w *world) {
		java := w.fairRedisson()
		w.srv.Do("HSET", "job", "java:1", "1")
		w.srv.Do("PEXPIRE", "job", "30000")
		java.acquire("java:2", time.Minute, true)
		w.sleep(time.Hour)
		if len(w.line()) != 1 {
			t.Fatal("by Redisson's rule the queue is gone after an hour, so this shows nothing")
		}
		w.srv.Do("FLUSHALL")
		c := w.client(lock.Config{})
		if _, err := c.Fair("job").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			go c.Fair("job").Lock(t.Context())
			w.sleep(10 * time.Millisecond)
		}
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		w.sleep(11 * time.Minute)
		c.Close()
		w.sleep(24 * time.Hour)
		if keys := w.srv.Dump(); len(keys) != 0 {
			t.Errorf("left behind: %q", keys)
		}
		w.clients = nil // Close has said that nothing could be taken back
	})
}

// Redisson's threads that listen at a replica have their turns: they are told of a release, though the master knows of no listener.
func TestFairListenersAtAReplica(t *testing.T) {
	inShard(t, lock.Config{Acks: lock.AcksOff}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		java := w.fairRedisson()
		java.apart = true
		lease := mustLockFair(t, c, lock.For(time.Hour))
		had := make(chan bool, 1)
		go func() { had <- java.lock(t.Context(), "java:1") }()
		w.sleep(10 * time.Millisecond)
		behind := w.waiter(c)
		for range 3 {
			mustUnlock(t, lease)
			w.sleep(20 * time.Millisecond)
			select {
			case <-had:
			default:
				t.Fatalf("Redisson's thread does not have the lock, in front are %v", w.line())
			}
			go func() { java.unlock("java:1"); had <- java.lock(t.Context(), "java:1") }()
			lease = <-behind
			w.sleep(10 * time.Millisecond)
			behind = w.waiter(c)
		}
		mustUnlock(t, lease)
		<-had
		java.unlock("java:1")
		mustUnlock(t, <-behind)
	})
}

// A visit of ours, with little time, to a queue of Redisson's leaves those in it their places for as long as they wait, also those who came
// while the visitor was alone in the queue.
func TestFairVisitToRedisson(t *testing.T) {
	owners := []string{"java:1", "java:2", "java:3"}
	for _, behind := range []int{0, 2, 3} { // of the owners
		t.Run(strconv.Itoa(behind), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				java := w.fairRedisson()
				w.srv.Do("HSET", "job", "java:0", "1")
				visitor := w.client(lock.Config{})
				left := make(chan error, 1)
				for i := range len(owners) + 1 {
					if i == behind {
						go func() {
							ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
							defer cancel()
							_, err := visitor.Fair("job").Lock(ctx)
							left <- err
						}()
						synctest.Wait()
					}
					if i < len(owners) {
						java.acquire(owners[i], 2*time.Hour, true)
					}
				}
				wantErr(t, "Lock", <-left, lock.ErrNotAcquired)
				visitor.Close()
				for range 60 {
					w.sleep(time.Minute)
					w.wantLine(owners...)
				}
				told := len(w.srv.Messages())
				java.unlock("java:0")
				if told := w.srv.Messages()[told:]; len(told) != 1 || told[0].Channel != jobChannel+":java:1" {
					t.Errorf("the release tells %v, want the first in line", told)
				}
				for _, owner := range owners {
					if got, _ := java.acquire(owner, 2*time.Hour, true); !got {
						t.Errorf("it is not the turn of %s", owner)
					}
					java.unlock(owner)
				}
				w.free()
			})
		})
	}
}

// Callers of ours with little time each, in a queue with Redisson's threads, keep those in it apart by the time that each has put between itself
// and the one in front: by Redisson's rule all who wait are brought forward by that much at each grant.
func TestFairLittleTimeBesideRedisson(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		w.srv.Do("HSET", "job", "java:0", "1")
		w.srv.Do("PEXPIRE", "job", "30000")
		granted := make(chan *lock.Lease, 1)
		stand := func() {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				defer cancel()
				lease, err := c.Fair("job").Lock(ctx)
				if err != nil {
					t.Errorf("Lock: %v", err)
				}
				granted <- lease
			}()
			synctest.Wait()
		}
		for range 8 {
			stand()
		}
		leaves, gone := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := c.Fair("job").Lock(leaves)
			left <- err
		}()
		synctest.Wait()
		threads := []string{"java:1", "java:2", "java:3"}
		for _, thread := range threads {
			java.acquire(thread, 5*time.Minute, true)
		}
		stand()
		last := w.line()[12]
		gone()
		wantErr(t, "Lock", <-left, lock.ErrNotAcquired)
		synctest.Wait()

		java.unlock("java:0")
		for range 8 {
			mustUnlock(t, <-granted)
		}
		for i, thread := range threads {
			if got, _ := java.acquire(thread, 5*time.Minute, true); !got {
				t.Errorf("it is not the turn of %s", thread)
			}
			w.wantLine(append(threads[i+1:], last)...)
			if left := w.deadline(last); left < 30*time.Second {
				t.Errorf("with the lock given to %s, the last one counts as alive for another %v", thread, left)
			}
			java.unlock(thread)
		}
		mustUnlock(t, <-granted)
		w.free()
	})
}

// A19: the deadlines of those behind suffer neither from who is served nor from who leaves, and who leaves is gone.
func TestA19(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		holder, err := c.Fair("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(t.Context())
		gone := make(chan bool, 1)
		go func() { gone <- java.lock(ctx, "java:1") }()
		w.sleep(time.Second)
		die()
		<-gone
		if !slices.Equal(w.line(), []string{"java:1"}) {
			t.Fatal("by Redisson's rule a waiter that failed is out of the queue, so this shows nothing")
		}
		w.srv.Do("DEL", jobQueue, jobTimeouts)

		// The first has waited for long when the second comes, who has little time.
		java.acquire("java:1", 5*time.Minute, true)
		w.sleep(5 * time.Minute)
		java.acquire("java:2", 10*time.Second, true)
		mustUnlock(t, holder)
		if got, _ := java.acquire("java:1", 5*time.Minute, true); !got || w.deadline("java:2") > 0 {
			t.Fatal("by Redisson's rule the second still counts as alive, so this shows nothing")
		}
		java.unlock("java:1")
		w.srv.Do("DEL", jobQueue, jobTimeouts)

		if holder, err = c.Fair("job").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := w.waiter(c)
		w.sleep(5 * time.Minute)
		java.acquire("java:2", 10*time.Second, true)
		mustUnlock(t, holder)
		lease := <-first
		if left := w.deadline("java:2"); left < 30*time.Second {
			t.Errorf("a waiter that came just now counts as alive for another %v", left)
		}
		mustUnlock(t, lease)
		w.srv.Do("DEL", jobQueue, jobTimeouts)
		w.free()
	})
}
