package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

func serverLocks(t *testing.T, s *redistest.Server, cfg lock.Config) *lock.Client {
	t.Helper()
	c, err := lock.New(redistest.Open(t, s.Config()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return c
}

// A writer that turns into a reader lets in all readers of other clients, and a waiting writer that they prefer goes before those
// that come later.
func TestServerDowngradeAndPreference(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c, other := serverLocks(t, s, preferring), serverLocks(t, s, preferring)
		write := mustWrite(t, c, lock.For(time.Hour))
		const readers = 8
		got := make(chan *lock.Lease, readers)
		for range readers {
			go func() { got <- mustRead(t, other) }()
		}
		waitFor(t, func() bool { return other.Stats().Waiting == readers })
		read := mustDowngrade(t, write)
		var in []*lock.Lease
		for range readers {
			in = append(in, <-got)
		}
		writer := make(chan *lock.Lease, 1)
		go func() { writer <- mustWrite(t, c) }()
		waitFor(t, func() bool { n, _ := s.Do("ZCARD", writersKey).Int(); return n == 1 })
		// A reader that comes within the turn of its client's readers is let in.
		waitFor(t, func() bool { return !readersInLine(s) })
		isTaken(t, other.ReadWrite("job").Read())
		for _, l := range append(in, read) {
			mustUnlock(t, l)
		}
		mustUnlock(t, <-writer)
		mustUnlock(t, mustRead(t, other))
		waitFor(t, func() bool { n, _ := s.Do("DBSIZE").Int(); return n == 0 })
	})
}

// readersInLine reports whether readers have a place or a turn in the line.
func readersInLine(s *redistest.Server) bool {
	for member := range s.Do("ZRANGE", jobLine, 0, -1).All() {
		if place, _ := member.Text(); strings.Contains(place, ":r:") {
			return true
		}
	}
	return false
}

// waitFor waits until done reports true.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !done() {
		select {
		case <-timeout:
			t.Fatal("that has not come true")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Readers and writers of several clients, some of which change from one to the other, all at once: never a writer beside
// anybody, and nothing is left behind.
func TestServerReadWriteStress(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		x := &readWriteStress{t: t}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 4 {
			c := serverLocks(t, s, lock.Config{PreferWriters: i%2 == 0})
			for g := range 8 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), uint64(g)))
					for ctx.Err() == nil {
						x.turn(t.Context(), c, random)
					}
				})
			}
		}
		locktorture.Pause(ctx, 1500*time.Millisecond)
		waitFor(t, func() bool { return x.turns.Load() >= 20 })
		cancel()
		wg.Wait()
		waitFor(t, func() bool {
			left, _ := s.Do("EXISTS", "job", writersKey).Int()
			return left == 0 && len(timeouts(s)) == 0
		})
	})
}

// timeouts are the keys of readers' leases that are left.
func timeouts(s *redistest.Server) (names []string) {
	for key := range s.Do("KEYS", "{job}:*").All() {
		name, _ := key.Text()
		names = append(names, name)
	}
	return names
}

// readWriteStress counts who is inside.
type readWriteStress struct {
	t                *testing.T
	readers, writers atomic.Int32
	turns            atomic.Int64
}

func (x *readWriteStress) turn(ctx context.Context, c *lock.Client, random *rand.Rand) {
	both, opts := c.ReadWrite("job"), []lock.Option{lock.As(c.NewOwner())}
	if random.IntN(2) == 0 {
		opts = nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(200))*time.Millisecond)
	defer cancel()
	if random.IntN(4) != 0 {
		if lease := x.got(both.Read().Lock(ctx, opts...)); lease != nil {
			x.reads(lease)
		}
		return
	}
	lease := x.got(both.Write().Lock(ctx, opts...))
	if lease == nil {
		return
	}
	if n, r := x.writers.Add(1), x.readers.Load(); n != 1 || r != 0 {
		x.t.Errorf("%d writers and %d readers", n, r)
	}
	x.turns.Add(1)
	x.writers.Add(-1)
	switch random.IntN(3) {
	case 0:
		if read := x.got(lease.Downgrade(context.WithoutCancel(ctx))); read != nil {
			x.reads(read)
		}
	case 1:
		if opts != nil {
			if read := x.got(both.Read().Lock(context.WithoutCancel(ctx), opts...)); read != nil {
				mustUnlock(x.t, lease)
				x.reads(read)
				return
			}
		}
		mustUnlock(x.t, lease)
	default:
		mustUnlock(x.t, lease)
	}
}

func (x *readWriteStress) reads(lease *lock.Lease) {
	x.readers.Add(1)
	if n := x.writers.Load(); n != 0 {
		x.t.Errorf("%d writers beside a reader", n)
	}
	x.turns.Add(1)
	x.readers.Add(-1)
	mustUnlock(x.t, lease)
}

func (x *readWriteStress) got(lease *lock.Lease, err error) *lock.Lease {
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) {
		x.t.Errorf("error %v", err)
	}
	return lease
}

// A server that has run out of memory takes releases, downgrades and force, which make room.
func TestServerReadWriteWithoutMemory(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	c := serverLocks(t, s, lock.Config{})
	full := func(on bool) {
		limit := "0"
		if on {
			limit = "1"
		}
		s.Do("CONFIG", "SET", "maxmemory", limit)
	}
	owner := c.NewOwner()
	first, second := mustRead(t, c, lock.As(owner)), mustRead(t, c, lock.As(owner))
	full(true)
	if _, err := c.ReadWrite("job").Read().TryLock(t.Context()); err == nil || errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("TryLock() = %v on a server without memory", err)
	}
	mustUnlock(t, first)
	mustUnlock(t, second)
	full(false)
	write := mustWrite(t, c)
	full(true)
	read := mustDowngrade(t, write)
	mustUnlock(t, read)
	full(false)
	outer, inner := mustWrite(t, c, lock.As(owner)), mustWrite(t, c, lock.As(owner))
	full(true)
	mustUnlock(t, inner)
	mustUnlock(t, outer)
	full(false)
}

// What Redisson's scripts do at the points where ours do something else, so that a test can show what comes of it.
const (
	plainAcquire = `if tonumber(redis.call('get', KEYS[1])) >= tonumber(ARGV[1]) then
	redis.call('decrby', KEYS[1], ARGV[1]) return 1 end return 0`
	plainAdd = `local sum = tonumber(redis.call('get', KEYS[1]) or 0) + tonumber(ARGV[1])
	redis.call('set', KEYS[1], sum) redis.call('rpush', KEYS[2], sum)`
	plainTrySet   = `return redis.call('setnx', KEYS[1], ARGV[1])`
	plainDrain    = `local all = redis.call('get', KEYS[1]) redis.call('set', KEYS[1], 0) return tonumber(all)`
	plainDown     = `if redis.call('decr', KEYS[1]) <= 0 then redis.call('del', KEYS[1]) end`
	unpackReclaim = `local ids = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, -1)
	return redis.call('incrby', KEYS[1], redis.call('zrem', KEYS[2], unpack(ids)))`
)

// numberOrNull is the reply of a script that returns a number or nothing.
func numberOrNull(v resp.Value) string {
	if n, err := v.Int(); err == nil {
		return text(n)
	}
	return v.Kind().String()
}

// A1, A2: Redisson's scripts, sent twice as Redisson sends them, do what they do twice, or say that they did nothing. Ours,
// sent twice, do it once and say the same.
func TestA02ServerRepeats(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		twice := func(source string, keys []any, args ...any) string {
			command := append(append([]any{"EVAL", source, len(keys)}, keys...), args...)
			return numberOrNull(s.Do(command...)) + "," + numberOrNull(s.Do(command...))
		}
		want := func(what, got, want, left string) {
			t.Helper()
			if v, _ := s.Do("GET", "k").Text(); got != want || v != left {
				t.Errorf("%s, sent twice, returns %s and leaves %q, want %s and %q", what, got, v, want, left)
			}
			s.Do("FLUSHALL")
		}
		s.Do("SET", "k", 10)
		want("Redisson's acquire", twice(plainAcquire, []any{"k"}, 3), "1,1", "4")
		want("Redisson's addPermits", twice(plainAdd, []any{"k", "said"}, 3), "null,null", "6")
		want("Redisson's trySetPermits", twice(plainTrySet, []any{"k"}, 3), "1,0", "3")
		s.Do("SET", "k", 10)
		want("Redisson's drainPermits", twice(plainDrain, []any{"k"}), "10,0", "0")
		s.Do("SET", "k", 3)
		want("Redisson's countDown", twice(plainDown, []any{"k"}), "null,null", "1")

		keys := []any{"k", "channel", "latch"}
		ours := func(kind, operation string) string { return kinds.All()[kind][operation].Source() }
		s.Do("SET", "k", 10)
		want("acquire", twice(ours("semaphore", "acquire"), keys, 9000, "", 3, 0, soon()), "null,null", "7")
		want("add", twice(ours("semaphore", "add"), keys, 9000, "PUBLISH", 3, 0, soon()), "1,1", "3")
		want("set", twice(ours("semaphore", "set"), keys, 9000, "PUBLISH", 3, 0, soon()), "1,1", "3")
		s.Do("SET", "k", 10)
		want("drain", twice(ours("semaphore", "drain"), keys, 9000, "PUBLISH", soon()), "10,10", "0")
		s.Do("SET", "k", 3)
		want("down", twice(ours("latch", "down"), keys, 9000, "PUBLISH", soon()), "2,2", "2")
	})
}

// A repeat of an acquire takes nothing, and yet it writes: WAIT counts the replicas that have the last write of its connection, and
// the first request came by another one.
func TestSemaphoreRepeatIsAWrite(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		acquire := func() {
			t.Helper()
			if got := numberOrNull(s.Do("EVAL", kinds.All()["semaphore"]["acquire"].Source(), 3, "k", "channel", "latch", 9000, "", 3, 0, soon())); got != "null" {
				t.Errorf("acquire returns %s", got)
			}
		}
		s.Do("SET", "k", 10)
		acquire()
		before := s.Changes()
		acquire()
		if after := s.Changes(); after == before {
			t.Error("a repeat writes nothing")
		}
		if free, _ := s.Do("GET", "k").Text(); free != "7" {
			t.Errorf("%s permits are free, want 7", free)
		}
	})
}

// A21, A24: Redisson tells of a number below 0, and forgets that the key has a lifetime.
func TestA24ServerAddPermits(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		sem := serverClient(t, s).Semaphore("sem")
		for _, name := range []string{"sem", "redisson"} {
			s.Do("SET", name, 1, "PX", 100_000)
		}
		s.Do("EVAL", plainAdd, 2, "redisson", "said", -5)
		if said, _ := s.Do("LPOP", "said").Text(); said != "-4" {
			t.Errorf("Redisson tells %q, want -4, or this shows nothing", said)
		}
		wantOK(t, "AddPermits", sem.AddPermits(t.Context(), -5))
		if n, err := sem.DrainPermits(t.Context()); n != -4 || err != nil {
			t.Errorf("DrainPermits() = %d, %v", n, err)
		}
		ours, _ := s.Do("PTTL", "sem").Int()
		theirs, _ := s.Do("PTTL", "redisson").Int()
		if ours <= 0 || theirs != -1 {
			t.Errorf("the key lasts %d ms after our changes, and %d after Redisson's", ours, theirs)
		}
	})
}

// A22: more permits have expired than Lua can unpack. Redisson's semaphore is stuck for ever.
func TestA22ServerManyExpired(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		const expired = 20_000
		s.Do("SET", "pex", 1)
		for i := 0; i < expired; i += 1000 {
			command := []any{"ZADD", taken}
			for n := range 1000 {
				command = append(command, 1000+n, fmt.Sprintf("%016d", i+n))
			}
			s.Do(command...)
		}
		_, err := redistest.Open(t, s.Config()).Do(t.Context(), "EVAL", unpackReclaim, 2, "pex", taken, time.Now().UnixMilli())
		if err == nil || !strings.Contains(err.Error(), "too many results") {
			t.Errorf("Redisson's way works too, or fails otherwise: %v", err)
		}
		p := serverClient(t, s).PermitSemaphore("pex")
		wantPermits(t, p, expired+1, expired+1, 0)
		lease := take(t, p, 1000)
		wantPermits(t, p, expired+1, expired+1-1000, 1000)
		if n, _ := s.Do("ZCARD", taken).Int(); n != 1000 {
			t.Errorf("%d ids are left", n)
		}
		wantOK(t, "Check", lease.Check(t.Context()))
		mustUnlock(t, lease)
		wantPermits(t, p, expired+1, expired+1, 0)
	})
}

// A server without memory gives no permit, but takes every one back, counts down, and renews.
func TestServerOutOfMemoryForPermits(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c, ctx := serverClient(t, s), t.Context()
		sem, latch := setUp(t, c, 3), countFrom(t, c, 2)
		wantOK(t, "Acquire", sem.Acquire(ctx, 2))
		p := permitsOf(t, c, 3)
		lease, kept := take(t, p, 2), take(t, p, 1)
		eager, err := lock.New(redistest.Open(t, s.Config()), lock.Config{Lease: 3 * time.Second, RenewEvery: 50 * time.Millisecond})
		wantOK(t, "New", err)
		defer eager.Close()
		wantOK(t, "AddPermits", p.AddPermits(ctx, 1))
		renewed := take(t, eager.PermitSemaphore("pex"), 1)
		s.Do("CONFIG", "SET", "maxmemory", "1")
		if err := sem.TryAcquire(ctx, 1); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("TryAcquire() = %v, want the server's OOM", err)
		}
		before := eager.Stats().Renewals
		if !locktorture.Eventually(patience, func() bool { return eager.Stats().Renewals >= before+3 }) || renewed.Err() != nil {
			t.Errorf("not renewed: %+v, %v", eager.Stats(), renewed.Err())
		}
		mustUnlock(t, renewed)
		wantOK(t, "Release", sem.Release(ctx, 1))
		wantOK(t, "Unlock", lease.Unlock(ctx))
		wantOK(t, "Release by id", p.Release(ctx, kept.PermitIDs()...))
		for range 2 {
			wantOK(t, "CountDown", latch.CountDown(ctx))
		}
		wantOK(t, "Wait", latch.Wait(ctx))
		wantAvailable(t, sem, 2)
		wantAvailable(t, p, 4)
	})
}

// The reply to what changes something is lost on the way from a server: it is done once.
func TestSemaphoreUnansweredByAServer(t *testing.T) {
	eachLoss(t, func(t *testing.T, s *redistest.Server, how string) {
		x := newSite(t, s, 0, lock.Config{})
		sem, ctx := setUp(t, x.locks, 5), t.Context()
		while(x.loseReplyOf("semaphore", how, "acquire"), func() { wantOK(t, "Acquire", sem.Acquire(ctx, 3)) })
		if !locktorture.Eventually(patience, func() bool { n, err := sem.Available(ctx); return n == 2 && err == nil }) {
			t.Error("the permits that were not answered for are not given back")
		}
		while(x.loseReplyOf("semaphore", how, "add"), func() { wantOK(t, "Release", sem.Release(ctx, 3)) })
		wantAvailable(t, sem, 5)

		p := permitsOf(t, x.locks, 5)
		var lease *lock.Lease
		while(x.loseReplyOf("permits", how, "acquire"), func() { lease = take(t, p, 3, lock.Forever()) })
		if !locktorture.Eventually(patience, func() bool { n, err := p.Available(ctx); return n == 2 && err == nil }) {
			t.Error("the permits that were not answered for are not given back")
		}
		while(x.loseReplyOf("permits", how, "release"), func() { mustUnlock(t, lease) })
		wantPermits(t, p, 5, 5, 0)

		latch := countFrom(t, x.locks, 3)
		while(x.loseReplyOf("latch", how, "down"), func() { wantOK(t, "CountDown", latch.CountDown(ctx)) })
		wantCount(t, latch, 2)
		x.close()
	})
}

// Names with a hash tag of their own keep it in the second key, also where the script makes its name.
func TestServerPermitsOfATag(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		p := serverClient(t, s).PermitSemaphore("{tag}:pex")
		wantOK(t, "SetPermits", p.SetPermits(t.Context(), 1))
		lease := take(t, p, 1)
		if n, _ := s.Do("ZCARD", "{tag}:pex:timeout").Int(); n != 1 {
			t.Errorf("%d ids in the key of a name with a tag", n)
		}
		wantOK(t, "Check", lease.Check(t.Context()))
		mustUnlock(t, lease)
	})
}

// What Lua takes for a number, but the server does not count with, is something else, and is left alone with what belongs to it.
func TestServerNoInteger(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		semaphore, permits, latch := c.Semaphore("k"), c.PermitSemaphore("k"), c.CountDownLatch("k")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := permits.TrySetPermits(ctx, 3); err != nil {
			t.Fatal(err)
		}
		lease, err := permits.TryAcquireMany(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"1.5", "nan", "inf", "0x10", " 5", "1e3", "-", ""} {
			s.Do("SET", "k", value)
			for what, call := range map[string]func() error{
				"Acquire":              func() error { return semaphore.Acquire(ctx, 1) },
				"Release":              func() error { return semaphore.Release(ctx, 1) },
				"Semaphore.AddPermits": func() error { return semaphore.AddPermits(ctx, 1) },
				"DrainPermits":         func() error { _, err := semaphore.DrainPermits(ctx); return err },
				"TrySetPermits":        func() error { _, err := semaphore.TrySetPermits(ctx, 1); return err },
				"Semaphore.Info":       func() error { _, err := semaphore.Info(ctx); return err },
				"PermitSemaphore.Info": func() error { _, err := permits.Info(ctx); return err },
				"Acquire of a permit":  func() error { _, err := permits.Acquire(ctx); return err },
				"AddPermits":           func() error { return permits.AddPermits(ctx, 1) },
				"SetPermits":           func() error { return permits.SetPermits(ctx, 5) },
				"Release of a permit":  func() error { return permits.Release(ctx, lease.PermitIDs()[0]) },
				"ReleaseAll":           func() error { _, err := permits.ReleaseAll(ctx); return err },
				"CountDown":            func() error { return latch.CountDown(ctx) },
				"TrySetCount":          func() error { _, err := latch.TrySetCount(ctx, 1); return err },
				"Delete":               func() error { _, err := latch.Delete(ctx); return err },
				"Wait":                 func() error { return latch.Wait(ctx) },
				"Count":                func() error { _, err := latch.Count(ctx); return err },
			} {
				if err := call(); !errors.Is(err, lock.ErrWrongType) {
					t.Errorf("%s where there is %q = %v", what, value, err)
				}
			}
			if v, _ := s.Do("GET", "k").Text(); v != value {
				t.Errorf("%q has become %q", value, v)
			}
		}
		if err := lease.Unlock(ctx); !errors.Is(err, lock.ErrWrongType) {
			t.Errorf("Unlock() = %v", err)
		}
		if n, _ := s.Do("ZCARD", "{k}:timeout").Int(); n != 2 {
			t.Errorf("%d permits are taken, want both to be", n)
		}
		s.Do("FLUSHALL")
	})
}

// A release tells the head of the queue; if nobody listens for that one, the first for whom somebody does, who then sees to
// it that the others are passed over; and nobody behind.
func TestServerFairReleaseIsHeard(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := redistest.Open(t, s.Config())
		c, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease := mustLockFair(t, c)
		for _, waiter := range []string{"dead:1", "dead:2", "alive:1", "alive:2"} {
			s.Do("RPUSH", jobQueue, waiter)
			s.Do("ZADD", "redisson_lock_timeout:{job}", 9e13, waiter)
		}
		channel := func(i int) string { return fmt.Sprint(jobChannel, ":alive:", i) }
		var streams []*conn.Stream
		for i := range 2 {
			stream, err := pool.Stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if err := stream.Write(t.Context(), resp.Cmd("SUBSCRIBE", channel(i+1))); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Read(); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		mustUnlock(t, lease)
		for i, want := range []string{"0", "the end"} {
			s.Do("PUBLISH", channel(i+1), "the end")
			v, err := streams[i].Read()
			if got, _ := v.At(2).Text(); err != nil || got != want {
				t.Errorf("waiter %d hears %q, %v, want %q", i+1, got, err, want)
			}
		}
		s.Do("FLUSHALL")
	})
}

// On a real server, whose time cannot be turned, a pause is as long as it takes until the server has what Redisson left
// behind. Files whose pauses are for renewals are replayed in virtual time alone.
func TestServerGolden(t *testing.T) {
	for name, file := range goldenFiles {
		if !file.virtual {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				replayOnServers(t, name, file)
			})
		}
	}
}

func replayOnServers(t *testing.T, name string, file goldenFile) {
	_, _, steps := readGolden(t, name)
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		r := newReplay(t, file.cfg, func() *conn.Pool {
			pool, err := conn.Open(t.Context(), s.Config())
			if err != nil {
				t.Fatal(err)
			}
			return pool
		})
		r.inLine, r.anyOrder, r.stands, r.slow = file.inLine, file.anyOrder, file.stands, true
		r.settle = func(done func() bool) {
			timeout := time.After(patience)
			for !done() {
				select {
				case <-time.After(2 * time.Millisecond):
				case <-timeout:
					return
				}
			}
		}
		r.run(steps)
	})
}
