package lock_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// takeOneOfEach takes a lock of each kind and sets up each synchronizer, and returns what List is to say about them.
func takeOneOfEach(t *testing.T, c *lock.Client) (want map[string]lock.Shape, release func()) {
	t.Helper()
	var leases []*lock.Lease
	want = map[string]lock.Shape{}
	take := func(name string, shape lock.Shape, acquire func(context.Context, ...lock.Option) (*lock.Lease, error)) {
		lease, err := acquire(t.Context())
		if err != nil {
			t.Fatalf("Lock(%s) = %v", name, err)
		}
		leases, want[name] = append(leases, lease), shape
	}
	permits := c.PermitSemaphore("x:{permits}")
	_, err := permits.TrySetPermits(t.Context(), 3)
	_, err2 := c.Semaphore("x:semaphore").TrySetPermits(t.Context(), 7)
	_, err3 := c.CountDownLatch("x:latch").TrySetCount(t.Context(), 2)
	if err != nil || err2 != nil || err3 != nil {
		t.Fatal(err, err2, err3)
	}
	take("x:reentrant", lock.ShapeLock, c.Reentrant("x:reentrant").Lock)
	take("x:spin", lock.ShapeLock, c.Spin("x:spin", lock.Backoff{}).Lock)
	take("x:once", lock.ShapeLock, c.NonReentrant("x:once").Lock)
	take("x:{fenced}", lock.ShapeFenced, c.Fenced("x:{fenced}").Lock)
	take("x:fair", lock.ShapeFair, c.Fair("x:fair").Lock)
	take("x:read", lock.ShapeReadWrite, c.ReadWrite("x:read").Read().Lock)
	take("x:write", lock.ShapeReadWrite, c.ReadWrite("x:write").Write().Lock)
	take("x:group", lock.ShapeFasterMulti, c.FasterMulti("x:group", "a", "b").Lock)
	take("x:plain", lock.ShapePlain, c.Plain("x:plain").Lock)
	take("x:{permits}", lock.ShapePermits, permits.Acquire)
	return want, func() {
		for _, l := range leases {
			mustUnlock(t, l)
		}
	}
}

// listed returns what List finds, each name once.
func listed(t *testing.T, c *lock.Client, pattern string) map[string]lock.Listed {
	t.Helper()
	found := map[string]lock.Listed{}
	for l, err := range c.List(t.Context(), pattern) {
		if err != nil {
			t.Fatalf("List(%q) = %v", pattern, err)
		}
		found[l.Name] = l
	}
	return found
}

// List finds the locks among other keys, in however many steps, and tells what they are.
func TestServerList(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		pool := redistest.Open(t, s.Config())
		c, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want, release := takeOneOfEach(t, c)
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			c.Fair("x:fair").Lock(ctx)
		}()
		defer func() { cancel(); <-waited }()
		if !locktorture.Eventually(patience, func() bool {
			queued, _ := s.Do("EXISTS", "redisson_lock_queue:{x:fair}").Int()
			return queued == 1
		}) {
			t.Fatal("nobody stands in the queue")
		}
		noise(t, pool)
		for _, args := range [][]any{{"SET", "redisson_lock_token:{x:once}", "text"}, {"SET", "redisson_lock_queue:{x:once}", "text"}} {
			if _, err := pool.Do(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}

		found := listed(t, c, "x:*")
		shapes := map[string]lock.Shape{}
		for name, l := range found {
			shapes[name] = l.Shape
		}
		if !maps.Equal(shapes, want) {
			t.Errorf("List() = %v, want %v", shapes, want)
		}
		if l := found["x:{fenced}"]; l.Info.Token == 0 || len(l.Info.Holders) != 1 {
			t.Errorf("the fenced lock is %+v", l)
		}
		if l := found["x:fair"]; len(l.Info.Queue) != 1 {
			t.Errorf("the fair lock is %+v", l)
		}
		if l := found["x:{permits}"]; l.Info.Permits.Free != 2 || l.Info.Permits.Taken != 1 {
			t.Errorf("the semaphore with leases is %+v", l)
		}
		if l := found["x:write"]; l.Info.Mode != lock.ModeWrite || len(l.Info.Holders) != 1 || l.Info.Remaining <= 0 {
			t.Errorf("the write lock is %+v", l)
		}
		names := slices.Sorted(maps.Keys(listed(t, c, "x:re*")))
		if !slices.Equal(names, []string{"x:read", "x:reentrant"}) {
			t.Errorf("List(x:re*) finds %v", names)
		}
		if all := listed(t, c, ""); len(all) < len(want) {
			t.Errorf("List() finds %d locks, want %d at least", len(all), len(want))
		}
	})
}

// noise sets keys that are no locks, though some look alike.
func noise(t *testing.T, pool *conn.Pool) {
	t.Helper()
	for i := range 500 {
		for _, args := range [][]any{
			{"SET", fmt.Sprint("x:text:", i), "text"},
			{"HSET", fmt.Sprint("x:hash:", i), "mode", "fast"},
			{"HSET", fmt.Sprint("x:settings:", i), "mode", "read", "user", "somebody"},
			{"HSET", fmt.Sprint("x:mode:", i), "mode", "write"},
			{"SET", fmt.Sprint("x:large:", i), "12345678901234567890"},
			{"HSET", fmt.Sprint("x:one:", i), "count", i},
			{"HSET", fmt.Sprint("x:two:", i), "0ab49a3f-8a0c-4b56-8be4-7f4cd2b66a0c:1", 1, "0ab49a3f-8a0c-4b56-8be4-7f4cd2b66a0c:2", 1},
			{"RPUSH", fmt.Sprint("x:list:", i), i},
			{"SET", fmt.Sprintf("{x:r%d}:0ab49a3f-8a0c-4b56-8be4-7f4cd2b66a0c:1:rwlock_timeout:1", i), 1},
		} {
			if _, err := pool.Do(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Whoever has enough stops; a context that is over is an error.
func TestServerListEnds(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, release := takeOneOfEach(t, c)
		defer release()
		n := 0
		for range c.List(t.Context(), "x:*") {
			n++
			break
		}
		if n != 1 {
			t.Errorf("%d locks after the first", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for l, err := range c.List(ctx, "") {
			if err == nil {
				t.Errorf("found %v under a cancelled context", l)
			}
		}
	})
}

// The fake server, which has no Lua, finds the same as a real one.
func TestListOnTheFake(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		want, release := takeOneOfEach(t, c)
		noise(t, w.pools[0])
		want["x:fair"] = lock.ShapeLock // nobody waits
		shapes := map[string]lock.Shape{}
		for name, l := range listed(t, c, "x:*") {
			shapes[name] = l.Shape
		}
		if !maps.Equal(shapes, want) {
			t.Errorf("List() = %v, want %v", shapes, want)
		}
		release()
	})
}

// A number in a hash that is no lock is not taken for a hold count, with a lease of its own to ask for.
func TestServerInfoOfLargeNumbers(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c := serverClient(t, s)
		s.Do("HSET", "settings", "mode", "dark", "visits", "50000")
		s.Do("HSET", "numbers", "visits", "50000", "a", "1")
		s.Do("CONFIG", "RESETSTAT")
		for _, name := range []string{"settings", "numbers"} {
			_, err := c.ReadWrite(name).Read().Info(t.Context())
			wantErr(t, "Info of "+name, err, lock.ErrWrongType)
		}
		if n := commandCalls(t, s)("pttl"); n != 2 {
			t.Errorf("%d leases were asked for, want one for each key", n)
		}
	})
}

// On a real server: a name leads to the holder and its process, and the owner alone can be forced out.
func TestServerInspect(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		var clients [2]*lock.Client
		for i, name := range []string{"web-7", "on-call"} {
			c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		mine, c := clients[0], clients[1]
		for kind, take := range leasedKinds(t, mine) {
			if kind == "fastermulti" {
				continue // Inspect does not know the kind
			}
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context(), lock.For(time.Minute))
			if err != nil {
				t.Fatal(kind, err)
			}
			if err := lease.Extend(t.Context(), time.Hour); err != nil {
				t.Errorf("%s: Extend() = %v", kind, err)
			}
			seen, err := c.Inspect(t.Context(), name)
			if err != nil || len(seen.Info.Holders) != 1 || seen.Info.Holders[0].Owner != lease.Owner() || seen.Info.Holders[0].Remaining < 50*time.Minute {
				t.Fatalf("%s: Inspect() = %+v, %v", kind, seen, err)
			}
			if kind != "plain" && kind != "permits" && (len(seen.Clients) != 1 || seen.Clients[0].Name != "web-7" || seen.Clients[0].Addr == "") {
				t.Errorf("%s: clients %+v, %v", kind, seen.Clients, seen.ClientsErr)
			}
			if forced, err := c.ForceUnlockOwner(t.Context(), name, c.NewOwner().String()); forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() of another owner = %v, %v", kind, forced, err)
			}
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("%s: Check() = %v", kind, err)
			}
			if forced, err := c.ForceUnlockOwner(t.Context(), name, lease.Owner()); !forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			wantErr(t, kind+": Check()", lease.Check(t.Context()), lock.ErrLost)
			s.Do("DEL", "redisson_lock_token:{job}")
		}
	})
}

// watchInTurn begins a Watch. expect fails the test unless the next events are those wanted.
func watchInTurn(t *testing.T, c *lock.Client, pattern string) (expect func(want ...string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	next, stop := iter.Pull2(c.Watch(ctx, pattern))
	t.Cleanup(func() { stop(); cancel() })
	return func(want ...string) {
		t.Helper()
		for _, wanted := range want {
			ev, err, _ := next()
			if got := strings.TrimSpace(fmt.Sprintf("%s %s %s", ev.What, ev.Name, ev.Owner)); err != nil || got != wanted || ev.Err != nil {
				t.Fatalf("event %+v, %v, want %q", ev, err, wanted)
			}
		}
	}
}

// On a real server, in both protocols.
func TestServerWatch(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		s.Do("CONFIG", "SET", "notify-keyspace-events", "KA")
		var clients [2]*lock.Client
		for i := range clients {
			c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		mine, c := clients[0], clients[1]
		held := mustLock(t, mine, "orders:1")
		expect := watchInTurn(t, c, "orders:*")
		expect("held orders:1 "+held.Owner(), "watching")
		mustUnlock(t, held)
		expect("released orders:1 " + held.Owner())
		lease := mustLock(t, mine, "orders:2")
		expect("acquired orders:2 " + lease.Owner())
		if _, err := c.Reentrant("orders:2").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("forced orders:2 " + lease.Owner())
		short := mustLock(t, mine, "orders:3", lock.For(400*time.Millisecond))
		expect("acquired orders:3 "+short.Owner(), "expired orders:3 "+short.Owner())
	})
}

// An evicted lock is taken from its owner.
func TestServerWatchOfAnEviction(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		s.Do("CONFIG", "SET", "notify-keyspace-events", "Kg$hxe")
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease := mustLock(t, c, "job", lock.For(time.Minute))
		expect := watchInTurn(t, c, "")
		expect("held job "+lease.Owner(), "watching")
		s.Do("CONFIG", "SET", "maxmemory-policy", "volatile-random")
		s.Do("CONFIG", "SET", "maxmemory", "1")
		_, _ = s.Try("SET", "key", "value") // has the server look for memory
		s.Do("CONFIG", "SET", "maxmemory", "0")
		expect("forced job " + lease.Owner())
	})
}

// An acquire and a release that nobody waits for run so many commands inside their scripts.
func TestServerPair(t *testing.T) {
	t.Parallel()
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c := serverLocks(t, s, lock.Config{})
		owner := lock.As(c.NewOwner())
		for _, pair := range []struct {
			kind     string
			lock     ruledLock
			commands int
			options  []lock.Option
		}{
			{"Plain", c.Plain("pair:plain"), 6, nil},
			{"Reentrant", c.Reentrant("pair:reentrant"), 8, nil},
			{"NonReentrant", c.NonReentrant("pair:nonreentrant"), 8, nil},
			{"Spin", c.Spin("pair:spin", lock.Backoff{}), 7, nil},
			{"Fair", c.Fair("pair:fair"), 8, nil},
			{"NonReentrantFair", c.NonReentrantFair("pair:nonreentrantfair"), 8, nil},
			{"Write", c.ReadWrite("pair:write").Write(), 9, nil},
			{"Fenced", c.Fenced("pair:fenced"), 10, nil},
			{"Reentrant of an Owner", c.Reentrant("pair:owner"), 9, []lock.Option{owner}},
			{"FasterMulti", c.FasterMulti("pair:group", "1"), 10, nil},
			{"Read", c.ReadWrite("pair:read").Read(), 11, nil},
		} {
			t.Run(pair.kind, func(t *testing.T) {
				m := s.Monitor()
				l, err := pair.lock.Lock(t.Context(), pair.options...)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				inside := slices.DeleteFunc(m.Lines(), func(line string) bool { return !strings.HasPrefix(line, "[0 lua]") })
				if len(inside) != pair.commands {
					t.Errorf("the scripts run %d commands, want %d:\n%s", len(inside), pair.commands, strings.Join(inside, "\n"))
				}
			})
		}
	})
}

// commandCalls is how often a server has run each command, by its name.
func commandCalls(t *testing.T, s *redistest.Server) func(command string) int64 {
	t.Helper()
	text, _ := s.Do("INFO", "commandstats").Text()
	return func(command string) int64 {
		_, rest, _ := strings.Cut(text, "cmdstat_"+command+":calls=")
		count, _, _ := strings.Cut(rest, ",")
		return number(count)
	}
}

// pings asks s without a pause until it is called, which returns the longest time that an answer took.
func pings(t *testing.T, s *redistest.Server) (stop func() time.Duration) {
	t.Helper()
	pool := redistest.Open(t, s.Config())
	ctx, cancel := context.WithCancel(t.Context())
	var worst time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			start := time.Now()
			if _, err := pool.Do(ctx, "PING"); err == nil {
				worst = max(worst, time.Since(start))
			}
		}
	})
	return func() time.Duration { cancel(); wg.Wait(); return worst }
}

// Many join the queue of a fair lock, over several processes, and are served in turn: what that takes of the server for each
// does not grow with their number.
func TestServerFairCrowd(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		const waiters, processes = 4000, 4
		var clients []*lock.Client
		for range processes {
			c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		holder := mustLockFair(t, clients[0])
		worst := pings(t, s)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				if lease, err := clients[i%processes].Fair("job").Lock(t.Context()); err != nil {
					t.Error(err)
				} else if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		line := func() int64 { n, _ := s.Do("LLEN", jobQueue).Int(); return n }
		channels := func() int { return s.Do("PUBSUB", "CHANNELS", jobChannel+":*").Len() }
		if !locktorture.Eventually(patience, func() bool { return line() == waiters && channels() == waiters }) {
			t.Fatalf("%d wait and %d listen, want %d", line(), channels(), waiters)
		}
		joined := time.Since(start)
		count := commandCalls(t, s)
		if n := count("lrange") + count("zrange"); n > 2*waiters {
			t.Errorf("to join %d waiters have the queue or the times read %d times", waiters, n)
		}
		s.Do("CONFIG", "RESETSTAT")
		start = time.Now()
		mustUnlock(t, holder)
		wg.Wait()
		count = commandCalls(t, s)
		if n := count("zadd"); n > 40*waiters {
			t.Errorf("to serve %d waiters sets %d times", waiters, n)
		}
		t.Logf("%d joined in %v and were served in %v, %v; a PING took %v at most", waiters, joined, time.Since(start),
			fmt.Sprint(count("zadd"), " ZADD"), worst())
	})
}

// Many readers of a lock leave, in the order in which they came and in the opposite one: the server asks after the leases of
// others now and then.
func TestServerReaderCrowd(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		const readers = 3000
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, backwards := range []bool{false, true} {
			var leases []*lock.Lease
			for range readers {
				leases = append(leases, mustRead(t, c))
			}
			if backwards {
				slices.Reverse(leases)
			}
			s.Do("CONFIG", "RESETSTAT")
			for _, l := range leases {
				mustUnlock(t, l)
			}
			if n := commandCalls(t, s)("pttl"); n > 60*readers {
				t.Errorf("for %d readers to leave the server has asked %d times how long a lease lasts", readers, n)
			}
			if n, _ := s.Do("EXISTS", "job").Int(); n != 0 {
				t.Error("nobody reads, and the lock is taken")
			}
		}
	})
}

func benchClient(b *testing.B) *lock.Client {
	s := redistest.Start(b, redistest.Options{})
	pool, err := conn.Open(b.Context(), s.Config())
	if err != nil {
		b.Fatal(err)
	}
	c, err := lock.New(pool, lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		pool.Close()
	})
	return c
}

// BenchmarkServerOwnNames is Lock and Unlock by callers that do not contend.
func BenchmarkServerOwnNames(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			c := benchClient(b)
			var names atomic.Int64
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				job := c.Reentrant(fmt.Sprint("job", names.Add(1)))
				for pb.Next() {
					lockAndUnlock(b, job)
				}
			})
		})
	}
}

// BenchmarkServerContended is Lock and Unlock by callers of one process that all want the same lock.
func BenchmarkServerContended(b *testing.B) {
	for _, callers := range []int{10, 100} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			c := benchClient(b)
			job := c.Reentrant("job")
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					lockAndUnlock(b, job)
				}
			})
		})
	}
}

// BenchmarkServerReadersTogether is a Lock and Unlock by each of the readers of one process that have waited for a writer.
func BenchmarkServerReadersTogether(b *testing.B) {
	for _, readers := range []int{1000, 10000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			c := benchClient(b)
			rw := c.ReadWrite("job")
			for b.Loop() {
				writer, err := rw.Write().Lock(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				var wg sync.WaitGroup
				for range readers {
					wg.Go(func() { lockAndUnlock(b, rw.Read()) })
				}
				for c.Stats().Waiting < readers {
					runtime.Gosched()
				}
				if err := writer.Unlock(b.Context()); err != nil {
					b.Fatal(err)
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*readers), "ns/reader")
		})
	}
}
