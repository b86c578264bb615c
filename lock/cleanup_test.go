package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// left are the keys on the server, but for the notes that go by themselves.
func (w *world) left() (keys []string) {
	for _, k := range w.srv.Do("KEYS", "*").([]any) {
		if !strings.HasPrefix(k.(string), "redisson_unlock_latch:") {
			keys = append(keys, k.(string))
		}
	}
	return keys
}

// tries are attempts of all kinds, each at a name or a value of its own, if the kind has any.
var tries = map[string]func(c *lock.Client, ctx context.Context, name string) error{
	"reentrant": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.Reentrant(name).TryLock(ctx)
		return err
	},
	"owner": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.Reentrant(name).TryLock(ctx, lock.As(c.NewOwner()))
		return err
	},
	"fenced": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.Fenced(name).TryLock(ctx)
		return err
	},
	"fair": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.Fair(name).TryLock(ctx)
		return err
	},
	"plain": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.Plain(name).TryLock(ctx)
		return err
	},
	"read": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.ReadWrite(name).Read().TryLock(ctx)
		return err
	},
	"write": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.ReadWrite(name).Write().TryLock(ctx)
		return err
	},
	"one group": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.FasterMulti("job", name).TryLock(ctx)
		return err
	},
	"groups": func(c *lock.Client, ctx context.Context, name string) error {
		_, err := c.FasterMulti(name, "a", "b").TryLock(ctx)
		return err
	},
	"permits": func(c *lock.Client, ctx context.Context, _ string) error {
		_, err := c.PermitSemaphore("permits").TryAcquire(ctx)
		return err
	},
	"semaphore": func(c *lock.Client, ctx context.Context, _ string) error {
		return c.Semaphore("permits").TryAcquire(ctx, 1)
	},
}

// What thousands have asked a server for that did not answer is taken back within half a second of its return, whatever
// connections they share.
func TestBacklogOfUndos(t *testing.T) {
	for kind, try := range tries {
		for _, conns := range []int{1, 4} {
			if conns > 1 && kind != "reentrant" {
				continue
			}
			t.Run(fmt.Sprint(kind, conns), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					calls := 1000
					if kind == "reentrant" {
						calls = 5000
					}
					w.srv.Buffer(0)
					w.srv.Latency(time.Millisecond)
					c := w.clientOn(conn.Config{Conns: conns}, lock.Config{})
					lockAndUnlock(t, c.Reentrant("first"))
					w.srv.Do("SET", "permits", fmt.Sprint(calls))
					w.srv.Stall(true)
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					var wg sync.WaitGroup
					for i := range calls {
						wg.Go(func() {
							if err := try(c, ctx, fmt.Sprint("job", i)); err == nil {
								t.Error("success without an answer")
							}
						})
					}
					wg.Wait()
					w.sleep(350 * time.Millisecond)
					w.srv.Stall(false)
					w.sleep(500 * time.Millisecond)
					left := slices.DeleteFunc(w.left(), func(key string) bool {
						return key == "permits" || strings.HasPrefix(key, "redisson_lock_token:")
					})
					if free := w.srv.Do("GET", "permits"); len(left) > 0 || free != fmt.Sprint(calls) {
						t.Errorf("half a second after the server is back %d of %d locks are taken by nobody, and %v permits are free", len(left), calls, free)
					}
				})
			})
		}
	}
}

// Waiters whose deadlines end before an answer cost the server an undo and the end of a place. The server compiles no script for it.
func TestExpiredWaitersSendNoSources(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Buffer(0)
		c, holder := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, holder, "job")
		expire := func() {
			w.srv.Latency(10 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
			defer cancel()
			if lease, err := c.Reentrant("job").Lock(ctx); err == nil {
				t.Errorf("Lock() = %v, and the lock is held", lease)
			}
			w.srv.Latency(0)
			w.sleep(time.Second)
		}
		for range 3 {
			expire() // the server learns the scripts
		}
		sources, digests := w.srv.Count("EVAL"), w.srv.Count("EVALSHA")
		for range 10 {
			expire()
		}
		if sources, digests = w.srv.Count("EVAL")-sources, w.srv.Count("EVALSHA")-digests; sources > 0 || digests < 30 {
			t.Errorf("%d scripts by source, %d by digest", sources, digests)
		}
		mustUnlock(t, lease)
		w.sleep(latchLife)
		w.free()
	})
}

// A release that has to be repeated does not wait for all the undos that there are.
func TestReleasesGoFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Buffer(0)
		w.srv.Latency(time.Millisecond)
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "held")
		undos, releases, before := 0, 0, 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScript(cmd, "undo"):
				undos++
			case isScript(cmd, "release"):
				if releases++; releases < 3 {
					before = undos
					return fakeredis.Close()
				}
				if releases == 3 {
					before = undos - before
				}
			}
			return fakeredis.Run()
		})
		w.srv.Stall(true)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() { _, _ = c.Reentrant(fmt.Sprint("job", i)).TryLock(ctx) })
		}
		wg.Wait()
		w.srv.Stall(false)
		if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, lock.ErrUncertain) {
			t.Errorf("Unlock() = %v", err)
		}
		mustUnlock(t, lease)
		w.sleep(10 * time.Second)
		if releases < 3 || before > 600 {
			t.Errorf("%d releases, and %d undos between the second and the third", releases, before)
		}
		w.srv.Intercept(nil)
		w.free()
	})
}

// busy are kinds whose callers have deadlines of a few round trips.
var busy = []struct {
	name  string
	setUp func(c *lock.Client, ctx context.Context) error
	use   func(c *lock.Client, ctx context.Context, i int) error
}{
	{"permits", func(c *lock.Client, ctx context.Context) error {
		_, err := c.PermitSemaphore("job").TrySetPermits(ctx, 3)
		return err
	}, func(c *lock.Client, ctx context.Context, i int) error {
		lease, err := c.PermitSemaphore("job").Acquire(ctx)
		if err != nil {
			return err
		}
		return lease.Unlock(context.Background())
	}},
	{"semaphore", func(c *lock.Client, ctx context.Context) error {
		_, err := c.Semaphore("job").TrySetPermits(ctx, 3)
		return err
	}, func(c *lock.Client, ctx context.Context, i int) error {
		if err := c.Semaphore("job").Acquire(ctx, 1); err != nil {
			return err
		}
		return c.Semaphore("job").Release(context.Background(), 1)
	}},
	{"readwrite", func(*lock.Client, context.Context) error { return nil }, func(c *lock.Client, ctx context.Context, i int) error {
		l := c.ReadWrite("job")
		half := l.Read().Lock
		if i%4 == 0 {
			half = l.Write().Lock
		}
		lease, err := half(ctx)
		if err != nil {
			return err
		}
		return lease.Unlock(context.Background())
	}},
}

// Callers whose deadlines are ten round trips get their work done, however many of them there are, in one process or in many, and beside a
// server that is busy with their requests after a pause. They leave nothing.
func TestShortDeadlines(t *testing.T) {
	t.Parallel()
	for _, b := range busy {
		for name, x := range map[string]struct {
			clients, callers int
			length, work     time.Duration // work is the time that the server takes for a script
			least            int64
		}{
			"one process":                    {1, 200, 500 * time.Millisecond, 0, 200},
			"processes":                      {50, 50, 300 * time.Millisecond, 0, 180},
			"processes of many callers":      {20, 200, 300 * time.Millisecond, 0, 220},
			"one process, and a busy server": {1, 200, 500 * time.Millisecond, 150 * time.Microsecond, 100},
		} {
			if b.name == "readwrite" { // of whom many have it at once, which takes the test long
				x.clients, x.callers, x.least = min(x.clients, 10), 50, x.least/4
			}
			t.Run(b.name+", "+name, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					var clients []*lock.Client
					for range x.clients {
						clients = append(clients, w.client(lock.Config{}))
					}
					if err := b.setUp(clients[0], t.Context()); err != nil {
						t.Fatal(err)
					}
					w.srv.Latency(time.Millisecond)
					if x.work > 0 {
						w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
							if !strings.HasPrefix(cmd.Name, "EVAL") {
								return fakeredis.Run()
							}
							return fakeredis.Delay(x.work, fakeredis.Run())
						})
						w.srv.Stall(true) // all callers of the first moments leave without an answer
						time.AfterFunc(100*time.Millisecond, func() { w.srv.Stall(false) })
					}
					var done, failed atomic.Int64
					var wg sync.WaitGroup
					end := time.Now().Add(x.length)
					for i := range x.callers {
						wg.Go(func() {
							for time.Now().Before(end) {
								ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
								if b.use(clients[i%x.clients], ctx, i) == nil {
									done.Add(1)
								} else {
									failed.Add(1)
								}
								cancel()
							}
						})
					}
					wg.Wait()
					w.sleep(500 * time.Millisecond)
					t.Logf("%d of %d got it", done.Load(), done.Load()+failed.Load())
					if done.Load() < x.least {
						t.Errorf("%d of %d calls got it, want at least %d", done.Load(), done.Load()+failed.Load(), x.least)
					}
					if b.name == "readwrite" {
						if left := w.left(); len(left) > 0 {
							t.Errorf("%q are left half a second after the last call", left)
						}
					} else if free := w.srv.Do("GET", "job"); free != "3" {
						t.Errorf("%v permits are free half a second after the last call, want 3", free)
					}
				})
			})
		}
	}
}

type locker interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
}

// handles are the kinds that a process can hold twice, and those whose release leaves a latch.
func handles(c *lock.Client) map[string]locker {
	return map[string]locker{
		"reentrant": c.Reentrant("job"), "fair": c.Fair("job"), "read": c.ReadWrite("job").Read(), "write": c.ReadWrite("job").Write(),
		"plain": c.Plain("job"),
	}
}

// A server without memory takes back an inner hold, as it does the last one.
func TestServerFullReleasesInnerHolds(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		for kind, h := range handles(c) {
			if kind == "plain" {
				continue
			}
			owner := c.NewOwner()
			outer, err := h.Lock(t.Context(), lock.As(owner))
			wantErr(t, "Lock", err, nil)
			inner, err := h.Lock(t.Context(), lock.As(owner))
			wantErr(t, "second Lock", err, nil)
			s.Do("CONFIG", "SET", "maxmemory", "1")
			wantErr(t, kind+": Unlock of the inner hold", inner.Unlock(t.Context()), nil)
			wantErr(t, kind+": Unlock", outer.Unlock(t.Context()), nil)
			s.Do("CONFIG", "SET", "maxmemory", "0")
		}
	})
}

// It also says of a hold that is gone what the first request would have said.
func TestFullServerAnswersLateReleases(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for kind, h := range handles(c) {
			lease, err := h.Lock(t.Context(), lock.As(c.NewOwner()))
			wantErr(t, "Lock", err, nil)
			w.srv.Do("DEL", "job")
			w.srv.Full(true)
			release := func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			}
			w.onScriptOf(kind, "release", release)
			wantErr(t, kind+": Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
			w.srv.Intercept(nil)
			w.srv.Full(false)
		}
	})
}

// So it does of a lock that was to be kept.
func TestFullServerAnswersLateKeeps(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, kind := range []string{"reentrant", "plain"} {
			lease, err := handles(c)[kind].Lock(t.Context(), lock.AtLeast(time.Minute))
			wantErr(t, "Lock", err, nil)
			w.srv.Do("DEL", "job")
			w.srv.Full(true)
			w.onScriptOf(kind, "keep", func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			})
			wantErr(t, kind+": Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
			w.srv.Intercept(nil)
			w.srv.Full(false)
		}
	})
}

// A lock that is kept for as long as a Duration can say has a lease: without one it would stay for ever.
func TestServerLongestRest(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		for _, kind := range []string{"reentrant", "plain"} {
			lease, err := handles(c)[kind].Lock(t.Context(), lock.AtLeast(1<<63-1))
			wantErr(t, "Lock", err, nil)
			mustUnlock(t, lease)
			if left, _ := s.Do("PTTL", "job").Int(); left < (291 * 365 * 24 * time.Hour).Milliseconds() {
				t.Errorf("%s: %d ms are left, want 292 years", kind, left)
			}
			s.Do("DEL", "job")
		}
	})
}

// The undo of an acquire that may still arrive is repeated although the right to run scripts is missing: it may come back before the
// acquire arrives.
func TestUndoOutlastsMissingRights(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		arrive := w.late("acquire")
		w.srv.Deny("evalsha", "eval")
		_, err := c.Reentrant("job").Lock(t.Context())
		wantErr(t, "Lock", err, resp.ErrNoPerm)
		w.sleep(time.Second)
		w.srv.Deny()
		w.sleep(time.Second)
		arrive()
		w.sleep(latchLife)
		w.free()
	})
}

// A release whose first requests had no answer is repeated although the right to run scripts is missing for a while: permits of a
// semaphore would otherwise be lost.
func TestReleaseOutlastsMissingRights(t *testing.T) {
	for name, test := range map[string]struct {
		take  func(t *testing.T, c *lock.Client) (release func(context.Context) error)
		after []string // a question about the lock
		want  any
	}{
		"lease": {func(t *testing.T, c *lock.Client) func(context.Context) error {
			return mustLock(t, c, "job", lock.For(time.Hour)).Unlock
		}, []string{"EXISTS", "job"}, int64(0)},
		"permits": {func(t *testing.T, c *lock.Client) func(context.Context) error {
			sem := c.Semaphore("job")
			if err := errors.Join(sem.AddPermits(t.Context(), 3), sem.Acquire(t.Context(), 2)); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error { return sem.Release(ctx, 2) }
		}, []string{"GET", "job"}, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				release := test.take(t, w.client(lock.Config{}))
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if strings.HasPrefix(cmd.Name, "EVAL") {
						return fakeredis.Close()
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantErr(t, "release", release(ctx), lock.ErrUncertain)
				w.srv.Deny("evalsha", "eval")
				w.srv.Intercept(nil)
				w.sleep(2 * time.Second)
				w.srv.Deny()
				w.sleep(3 * time.Second)
				if got := w.srv.Do(test.after...); got != test.want {
					t.Errorf("%v after the release = %v, want %v", test.after, got, test.want)
				}
			})
		})
	}
}

// Where the right stays missing, the release of an Owner's hold is repeated until the lease has ended: then calls of the Owner go on.
func TestOwnerOutlastsMissingRights(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		lease := mustLock(t, c, "job", lock.As(owner))
		w.onScript("release", func(int) fakeredis.Action { return fakeredis.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, "Unlock", lease.Unlock(ctx), lock.ErrUncertain)
		w.srv.Deny("evalsha", "eval")
		w.srv.Intercept(nil)
		w.sleep(time.Minute)
		wantErr(t, "second Unlock", lease.Unlock(t.Context()), resp.ErrNoPerm)
		wait, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		_, err := c.Reentrant("job").Lock(wait, lock.As(owner))
		wantErr(t, "Lock", err, resp.ErrNoPerm)
		w.srv.Deny()
		mustUnlock(t, mustLock(t, c, "job", lock.As(owner)))
		w.sleep(latchLife)
		w.free()
	})
}
