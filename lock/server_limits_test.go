package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func serverClient(t *testing.T, s *redistest.Server) *lock.Client {
	t.Helper()
	c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A server without memory gives no lock, but takes every one back.
func TestServerOutOfMemory(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		lease := mustLock(t, c, "job")
		s.Do("CONFIG", "SET", "maxmemory", "1")
		if _, err := c.Reentrant("other").TryLock(t.Context()); !errors.Is(err, resp.ErrOOM) {
			t.Errorf("TryLock() = %v, want the server's OOM", err)
		}
		mustUnlock(t, lease)
		if n, _ := s.Do("EXISTS", "job", "other").Int(); n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

// The server accepts the longest lease: a hash without a lease would stay for ever.
func TestServerLongestLease(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		lease := mustLock(t, c, "job", lock.For(50*365*24*time.Hour))
		info, err := c.Reentrant("job").Info(t.Context())
		if err != nil || info.Remaining < 49*365*24*time.Hour {
			t.Errorf("Info() = %+v, %v, want a lease of 50 years", info, err)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("Err() = %v", err)
		}
		mustUnlock(t, lease)
	})
}

// Tokens also grow by one where the numbers of Lua are not exact, up to the largest number of the server.
func TestServerLargeTokens(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		for _, cfg := range []lock.Config{{}, {PlainTokens: true}, {TokenLife: time.Hour}} {
			c := serverLocks(t, s, cfg)
			owner := c.NewOwner()
			for _, last := range []int64{1<<53 - 2, 1<<53 + 1, 1_700_000_000_000_000_127, math.MaxInt64 - 4} {
				s.Do("SET", jobToken, last)
				for want := last + 1; want < last+4; want++ {
					lease := lockFenced(t, c, lock.As(owner))
					again := lockFenced(t, c, lock.As(owner))
					if lease.Token() != want || again.Token() != want || lastToken(t, c) != want {
						t.Errorf("%+v: tokens %d and %d, the last %d, want %d", cfg, lease.Token(), again.Token(), lastToken(t, c), want)
					}
					mustUnlock(t, again)
					mustUnlock(t, lease)
				}
			}
			s.Do("SET", jobToken, int64(math.MaxInt64))
			_, err := c.Fenced("job").Lock(t.Context())
			if taken, _ := s.Do("EXISTS", "job").Int(); err == nil || taken != 0 {
				t.Errorf("%+v: Lock() behind the largest token = %v, and %d keys of a lock", cfg, err, taken)
			}
		}
	})
}

// A further hold has the Owner's token, also after the end of the counter, unless another has drawn one.
func TestServerTokenOfFurtherHolds(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		owner := lock.As(c.NewOwner())
		outer := lockFenced(t, c, owner)
		s.Do("DEL", jobToken)
		inner := lockFenced(t, c, owner)
		if inner.Token() != outer.Token() || outer.Err() != nil {
			t.Errorf("tokens %d and %d, Err() = %v", outer.Token(), inner.Token(), outer.Err())
		}
		s.Do("SET", jobToken, outer.Token()+1)
		next := lockFenced(t, c, owner)
		if next.Token() <= outer.Token()+1 || outer.Err() == nil || inner.Err() == nil {
			t.Errorf("token %d behind %d, Err() = %v and %v", next.Token(), outer.Token()+1, outer.Err(), inner.Err())
		}
		mustUnlock(t, next)
	})
}

// Keys that are there already: of another type, and a lock without a lease, which only a release frees.
func TestServerOddKeys(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		s.Do("SADD", "job", "x")
		_, err := c.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock of a set", err, lock.ErrWrongType)
		s.Do("DEL", "job")
		s.Do("HSET", "job", "somebody:1", 2)
		_, err = c.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock of a lock without a lease", err, lock.ErrNotAcquired)
		info, err := c.Reentrant("job").Info(t.Context())
		if err != nil || !info.Locked || info.Remaining >= 0 || info.Holders[0] != (lock.Holder{Owner: "somebody:1", Holds: 2, Remaining: info.Remaining}) {
			t.Errorf("Info() = %+v, %v", info, err)
		}
	})
}

// lines is a Logger that keeps what it is told.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Warn(text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, fmt.Sprintln(append([]any{text}, args...)...))
}

// with returns the lines that hold all of the words.
func (l *lines) with(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range l.list {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// rightsServer starts a server with users, and returns a way to get a client and the lines it logs.
func rightsServer(t *testing.T, srv *redistest.Server, rules string) (as func(user string) (*lock.Client, *lines)) {
	t.Helper()
	users := []redistest.User{
		{Name: "app", Password: "secret", Rules: rules},
		{Name: "full", Password: "secret", Rules: "~* &* +@all"},
	}
	srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: users})
	return func(user string) (*lock.Client, *lines) {
		cfg := srv.Config()
		cfg.Username, cfg.Password = user, "secret"
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.Close() })
		log := new(lines)
		c, err := lock.New(pool, lock.Config{Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, log
	}
}

// handOver has holder take a lock, waiter wait for it, and holder release it.
func handOver(t *testing.T, holder, waiter *lock.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	defer cancel()
	held, err := holder.Reentrant(name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := waiter.Reentrant(name).Lock(ctx, lock.For(time.Second))
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	for waiter.Stats().Waiting == 0 && len(got) == 0 {
		if ctx.Err() != nil {
			t.Fatal("nobody waits")
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// A user as Redis makes one by default has no channels. Who holds locks is told once that releases wake nobody, and who waits for them that
// nothing wakes it, with the rule that is missing.
func TestServerWithoutChannels(t *testing.T) {
	t.Parallel()
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return // a user has all channels by default
		}
		const rule = "&redisson_lock__channel:*"
		as := rightsServer(t, srv, "~* +@all")
		for _, test := range []struct{ holder, waiter string }{{"app", "app"}, {"app", "full"}, {"full", "app"}} {
			holder, told := as(test.holder)
			waiter, heard := as(test.waiter)
			for i := range 3 {
				handOver(t, holder, waiter, fmt.Sprint(test.holder, test.waiter, i))
			}
			holder.Close()
			waiter.Close()
			wantLines := func(who string, l *lines, user, what string) {
				t.Helper()
				want := 0
				if user == "app" {
					want = 1
				}
				if got := l.with(what, rule); len(got) != want || len(l.with(what)) != want {
					t.Errorf("%v: the %s was told %d times that it may not %s, want %d: %q", test, who, len(got), what, want, l.list)
				}
			}
			wantLines("holder", told, test.holder, "publish on")
			wantLines("waiter", heard, test.waiter, "publish on")
			wantLines("waiter", heard, test.waiter, "subscribe to")
			if got := told.with("subscribe to"); len(got) != 0 {
				t.Errorf("%v: the holder was told %q", test, got)
			}
		}
	})
}

// hidden hides what a Server declares, and is of a type that cannot be compared.
type hidden struct {
	lock.Server
	sent func()
}

func (h hidden) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	h.sent()
	return h.Server.Send(ctx, cmd)
}

// telling is hidden, and tells what it hides.
type telling struct{ hidden }

func (w telling) Unwrap() lock.Server { return w.Server }

// embedding is a Pool, and more.
type embedding struct{ *conn.Pool }

// A Server that cannot be classified is refused, unless it is said to be a single one; one that wraps another is what that is.
func TestServerNature(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		w.pools = append(w.pools, pool)
		n := 0
		dark := hidden{pool, func() { n++ }}
		for name, c := range map[string]struct {
			server     lock.Server
			standalone bool
			ok         bool
		}{
			"a pool":                   {pool, false, true},
			"a pool that stands alone": {pool, true, true},
			"an embedded pool":         {embedding{pool}, false, true},
			"a hidden pool":            {dark, false, false},
			"one that stands alone":    {dark, true, true},
			"one that tells":           {telling{dark}, false, true},
			"one that tells of one":    {telling{hidden{telling{dark}, func() {}}}, false, true},
			"one that tells of nobody": {telling{dark.nobody()}, false, false},
			"slots that stand alone":   {slotted{pool}, true, false},
			"no server":                {nil, false, false},
		} {
			locks, err := lock.New(c.server, lock.Config{Standalone: c.standalone})
			if c.ok != (err == nil) || err != nil && !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("New of %s = %v", name, err)
			}
			if err != nil {
				continue
			}
			w.clients = append(w.clients, locks)
			before := n
			mustUnlock(t, mustLock(t, locks, name))
			if through := n > before; through != (c.server != lock.Server(pool) && name != "an embedded pool") {
				t.Errorf("%s: the commands went through it: %v", name, through)
			}
		}
	})
}

func (h hidden) nobody() hidden { return hidden{nil, h.sent} }

// Two clients whose Servers wrap one pool are on one server.
func TestWrappedServersAreOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		w.pools = append(w.pools, pool)
		var handles []lock.Member
		for _, s := range []lock.Server{pool, telling{hidden{pool, func() {}}}, telling{hidden{pool, func() {}}}} {
			c, err := lock.New(s, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			w.clients = append(w.clients, c)
			handles = append(handles, c.Reentrant("job"))
		}
		if _, err := lock.NewRedlock(lock.RedlockConfig{}, handles...); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("NewRedlock of three wrappers of one pool = %v", err)
		}
		lease, err := newMulti(t, handles...).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(lease.Members()); n != 1 {
			t.Errorf("a Multi of one lock by three wrappers of its server has %d members", n)
		}
		mustUnlock(t, lease)
	})
}

// A wrapper that does not tell what it wraps may be a value that cannot be compared. Then nothing says that two clients are on one server.
func TestWrappersThatCannotBeCompared(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		w.pools = append(w.pools, pool)
		var members []lock.Member
		for range 2 {
			c, err := lock.New(wrapped{hidden{pool, func() {}}}, lock.Config{Standalone: true})
			if err != nil {
				t.Fatal(err)
			}
			w.clients = append(w.clients, c)
			members = append(members, c.Reentrant("job"))
		}
		newMulti(t, members...)
	})
}

// wrapped is a value with any Server inside.
type wrapped struct{ lock.Server }

// Close in the middle of everything: it ends the waits, tells the holders, and leaves nothing running or open. What is
// held stays so until its holder gives it back.
func TestCloseOnAServer(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		before := locktorture.CountResources()
		x := newSite(t, s, 0, lock.Config{})
		lease := mustLock(t, x.locks, "job")
		work, cancel := lease.Context(t.Context())
		defer cancel()
		const waiting = 20
		waits := make(chan error, waiting)
		for range waiting {
			go func() {
				_, err := x.locks.Reentrant("job").Lock(t.Context())
				waits <- err
			}()
		}
		// The lock's three channels, and that of locks freed by force.
		if !locktorture.Eventually(patience, func() bool { return x.locks.Stats().Waiting == waiting && locktorture.Channels(s) == 4 }) {
			t.Fatalf("%+v and %d channels", x.locks.Stats(), locktorture.Channels(s))
		}
		if err := x.locks.Close(); err != nil {
			t.Error(err)
		}
		for range waiting {
			wantErr(t, "a wait", <-waits, lock.ErrClosed)
		}
		lostBecause(t, context.Cause(work), lock.ClientClosed)
		if !locktorture.Eventually(patience, func() bool { return locktorture.Channels(s) == 0 }) {
			t.Errorf("%d channels after Close", locktorture.Channels(s))
		}
		wantHolds(t, s, "job", lease.Owner(), "1")
		mustUnlock(t, lease)
		x.close()
		x.proxy.Close()
		locktorture.NothingLeft(t, s)
		if after, ok := locktorture.ResourcesBack(before); !ok {
			t.Errorf("after Close %+v, before %+v", after, before)
		}
	})
}

// A hold that is given back after Close takes no other hold of its owner with it.
func TestCloseKeepsTheOuterHold(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{})
		owner := lock.As(x.locks.NewOwner())
		outer := mustLock(t, x.locks, "job", owner)
		inner := mustLock(t, x.locks, "job", owner)
		if err := x.locks.Close(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, inner)
		wantHolds(t, s, "job", outer.Owner(), "1")
		mustUnlock(t, outer)
		wantHolds(t, s, "job", outer.Owner(), "")
	})
}

// Holds of one owner that are given back at the same time are all given back.
func TestUnlockOfHoldsAtOnce(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{})
		for range 200 {
			owner := lock.As(x.locks.NewOwner())
			outcomes := make(chan error, 3)
			var leases []*lock.Lease
			for range cap(outcomes) {
				leases = append(leases, mustLock(t, x.locks, "job", owner))
			}
			for _, l := range leases {
				go func() { outcomes <- l.Unlock(t.Context()) }()
			}
			for range leases {
				if err := <-outcomes; err != nil {
					t.Fatalf("Unlock = %v", err)
				}
			}
		}
		x.close()
		locktorture.NothingLeft(t, s)
	})
}

// The release of a hold that has been lost does not touch the lock that its owner has taken again since.
func TestUnlockOfAnOldHold(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{})
		owner := lock.As(x.locks.NewOwner())
		old := mustLock(t, x.locks, "job", owner, lock.For(50*time.Millisecond))
		if !locktorture.Eventually(patience, func() bool { return s.Do("EXISTS", "job").Equal(s.Do("EXISTS", "nothing")) }) {
			t.Fatal("the lease does not end")
		}
		lease := mustLock(t, x.locks, "job", owner)
		if err := old.Unlock(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("Unlock of a hold whose lease ended = %v, want ErrNotHeld", err)
		}
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("the new hold: %v", err)
		}
		wantHolds(t, s, "job", lease.Owner(), "1")
		mustUnlock(t, lease)
		x.close()
		locktorture.NothingLeft(t, s)
	})
}

// keysTaken is how many keys the server has, but for notes that go by themselves.
func keysTaken(s *redistest.Server) int {
	n := 0
	for _, k := range s.Keys() {
		if !strings.HasPrefix(k.Name, "redisson_unlock_latch:") {
			n++
		}
	}
	return n
}

// Thousands of calls end while the server is stopped. What they leave is taken back in a few round trips.
func TestBacklogOnServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		const calls = 5000
		x := newSite(t, s, 0, lock.Config{Lease: 10 * time.Minute})
		lockAndUnlock(t, x.locks.Reentrant("first"))
		x.proxy.Latency(time.Millisecond, 0)
		s.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() { _, _ = x.locks.Reentrant(fmt.Sprint("job", i)).TryLock(ctx) })
		}
		wg.Wait()
		locktorture.Pause(t.Context(), 200*time.Millisecond)
		s.Continue()
		back := time.Now()
		if !locktorture.Eventually(patience, func() bool { return keysTaken(s) == 0 }) {
			t.Errorf("%d locks are taken by nobody %v after the server is back", keysTaken(s), time.Since(back))
		}
		t.Logf("all free after %v", time.Since(back))
	})
}

// Callers with deadlines of ten round trips leave no permit behind.
func TestShortDeadlinesOnServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newSite(t, s, 0, lock.Config{Lease: 10 * time.Minute})
		permits := x.locks.PermitSemaphore("permits")
		if _, err := permits.TrySetPermits(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		x.proxy.Latency(time.Millisecond, 0)
		var done, failed atomic.Int64
		var wg sync.WaitGroup
		end := time.Now().Add(2 * time.Second)
		for range 200 {
			wg.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					lease, err := permits.Acquire(ctx)
					cancel()
					if err != nil {
						failed.Add(1)
						continue
					}
					done.Add(1)
					if err := lease.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		last := time.Now()
		free := func() bool {
			n, err := permits.Available(t.Context())
			return err == nil && n == 3
		}
		if !locktorture.Eventually(patience, free) {
			t.Error("permits are taken by nobody")
		}
		t.Logf("%d of %d got one, all back after %v", done.Load(), done.Load()+failed.Load(), time.Since(last))
		closing, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := x.locks.CloseContext(closing); err != nil {
			t.Error(err)
		}
	})
}
