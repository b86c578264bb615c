package lock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/conn"
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
		if !eventually(patience, func() bool {
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
