package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/locktest"
)

// recorder is a test that a Server reports to.
type recorder struct {
	mu       sync.Mutex
	lines    []string
	cleanups []func()
}

type fatal struct{}

func (r *recorder) Helper()           {}
func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

// run runs fn as a test would, and returns what was reported.
func (r *recorder) run(fn func()) []string {
	func() {
		defer func() {
			if got := recover(); got != nil && got != (fatal{}) {
				panic(got)
			}
		}()
		fn()
	}()
	for _, cleanup := range slices.Backward(r.cleanups) {
		cleanup()
	}
	return r.lines
}

func mustLock(t *testing.T, c *lock.Client, name string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := c.Reentrant(name).Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock(%q) = %v", name, err)
	}
	return lease
}

// both runs fn in a bubble and outside.
func both(t *testing.T, fn func(t *testing.T)) {
	t.Run("synctest", func(t *testing.T) { synctest.Test(t, fn) })
	t.Run("real time", func(t *testing.T) {
		t.Parallel()
		fn(t)
	})
}

// Each kind works, and leaves nothing.
func TestKinds(t *testing.T) {
	both(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		nothing := func(context.Context) error { return nil }
		for name, do := range map[string]func() error{
			"reentrant":        func() error { return locks.Reentrant("a").Do(t.Context(), nothing) },
			"fair":             func() error { return locks.Fair("b").Do(t.Context(), nothing) },
			"fenced":           func() error { return locks.Fenced("c").Do(t.Context(), nothing) },
			"spin":             func() error { return locks.Spin("d", lock.Backoff{}).Do(t.Context(), nothing) },
			"nonreentrant":     func() error { return locks.NonReentrant("e").Do(t.Context(), nothing) },
			"nonreentrantfair": func() error { return locks.NonReentrantFair("f").Do(t.Context(), nothing) },
			"plain":            func() error { return locks.Plain("g").Do(t.Context(), nothing) },
			"read":             func() error { return locks.ReadWrite("h").Read().Do(t.Context(), nothing) },
			"write":            func() error { return locks.ReadWrite("h").Write().Do(t.Context(), nothing) },
		} {
			if err := do(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := locks.CountDownLatch("latch").Wait(t.Context()); err != nil {
			t.Errorf("Wait() = %v", err)
		}
	})
}

// A waiter gets the lock of a stranger when that releases it, or when its lease ends.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		start := time.Now()
		holder := srv.Hold("job", 0)
		if _, err := locks.Reentrant("job").TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() = %v, want ErrNotAcquired", err)
		}
		info, err := locks.Reentrant("job").Info(t.Context())
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != holder.Owner {
			t.Errorf("Info() = %+v, %v, want %q", info, err, holder.Owner)
		}
		time.AfterFunc(3*time.Second, holder.Release)
		_ = mustLock(t, locks, "job").Unlock(t.Context())
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the lock was free after %v, want 3s", took)
		}
		start = time.Now()
		srv.Hold("job", 20*time.Second)
		_ = mustLock(t, locks, "job").Unlock(t.Context())
		if took := time.Since(start); took < 20*time.Second || took > 20*time.Second+50*time.Millisecond {
			t.Errorf("the lock was free after %v, want 20s", took)
		}
	})
}

// Outside a bubble Advance ends leases, and wakes who waits for that.
func TestAdvance(t *testing.T) {
	srv := locktest.NewServer(t)
	locks, other := srv.Client(lock.Config{}), srv.Client(lock.Config{})
	srv.Hold("job", time.Hour)
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		lease, err := locks.Reentrant("job").Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	fixed := mustLock(t, other, "fixed", lock.For(time.Minute))
	kept := mustLock(t, other, "kept", lock.For(3*time.Hour))
	for locks.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	srv.Advance(time.Hour + time.Second)
	if err := <-got; err != nil {
		t.Errorf("Lock() = %v, want the lock whose lease has ended", err)
	}
	if err := fixed.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Err() = %v of a lease that has ended", err)
	}
	if err := kept.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock() = %v of a lease that has not ended", err)
	}
}

// A lease of any kind is lost with its Client.
func TestLoseWithTheClient(t *testing.T) {
	for _, reason := range []lock.Reason{lock.ClockJump, lock.ClientClosed} {
		for kind, take := range map[string]func(ctx context.Context, locks *lock.Client) (*lock.Lease, error){
			"Plain": func(ctx context.Context, locks *lock.Client) (*lock.Lease, error) {
				return locks.Plain("job").Lock(ctx)
			},
			"FasterMulti": func(ctx context.Context, locks *lock.Client) (*lock.Lease, error) {
				return locks.FasterMulti("job", "a", "b").Lock(ctx)
			},
			"PermitSemaphore": func(ctx context.Context, locks *lock.Client) (*lock.Lease, error) {
				s := locks.PermitSemaphore("job")
				if _, err := s.TrySetPermits(ctx, 2); err != nil {
					return nil, err
				}
				return s.Acquire(ctx)
			},
		} {
			t.Run(fmt.Sprint(kind, reason), func(t *testing.T) {
				both(t, func(t *testing.T) {
					srv := locktest.NewServer(t)
					lease, err := take(t.Context(), srv.Client(lock.Config{}))
					if err != nil {
						t.Fatal(err)
					}
					srv.Lose(lease, reason)
					_ = lease.Unlock(t.Context())
				})
			})
		}
	}
}

// All members are lost at once, and any of them may be told first.
func TestLoseMembersWithTheClient(t *testing.T) {
	for _, reason := range []lock.Reason{lock.ClockJump, lock.ClientClosed} {
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				srv := locktest.NewServer(t)
				locks := srv.Client(lock.Config{})
				multi, err := lock.NewMulti(locks.Reentrant("a"), locks.Reentrant("b"), locks.Fenced("c"))
				if err != nil {
					t.Fatal(err)
				}
				lease, err := multi.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				srv.Lose(lease, reason)
				_ = lease.Unlock(t.Context())
			})
		}
	}
}

func TestLose(t *testing.T) {
	for _, reason := range []lock.Reason{
		lock.Forced, lock.Taken, lock.Unreachable, lock.Expired, lock.ClockJump, lock.ClientClosed, lock.PartLost,
		lock.HeldTooLong,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			run := both
			if slices.Contains([]lock.Reason{lock.Unreachable, lock.Expired, lock.HeldTooLong}, reason) { // last as long as the lease
				run = synctest.Test
			}
			run(t, func(t *testing.T) {
				srv := locktest.NewServer(t)
				locks := srv.Client(lock.Config{})
				var lease *lock.Lease
				switch reason {
				case lock.Expired:
					lease = mustLock(t, locks, "job", lock.For(100*time.Millisecond))
				case lock.HeldTooLong:
					lease = mustLock(t, locks, "job", lock.AtMost(100*time.Millisecond))
				case lock.PartLost:
					multi, err := lock.NewMulti(locks.Reentrant("a"), locks.Fenced("b"))
					if err != nil {
						t.Fatal(err)
					}
					if lease, err = multi.Lock(t.Context()); err != nil {
						t.Fatal(err)
					}
				default:
					lease = mustLock(t, locks, "job")
				}
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				srv.Lose(lease, reason)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), lock.ErrLost) {
					t.Errorf("the context ended because of %v", context.Cause(ctx))
				}
				_ = lease.Unlock(t.Context())
			})
		})
	}
}

// An acquire whose reply is lost or late does not leave the lock taken.
func TestReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		srv.DropReply(2)
		srv.DelayReply(4, time.Second)
		for i, want := range []error{nil, conn.ErrUncertain, nil, context.DeadlineExceeded, nil} {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			lease, err := locks.Reentrant("job").TryLock(ctx)
			cancel()
			if !errors.Is(err, want) {
				t.Errorf("TryLock %d = %v, want %v", i+1, err, want)
			}
			if err == nil {
				_ = lease.Unlock(t.Context())
			}
			time.Sleep(2 * time.Second)
		}
	})
}

func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		locks := srv.Client(lock.Config{})
		lease := mustLock(t, locks, "job")
		srv.Cut()
		time.Sleep(25 * time.Second)
		srv.Heal()
		time.Sleep(time.Minute)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock() = %v, want a lease renewed after 25s without a server", err)
		}
	})
}

// What is left over fails the test, by name.
func TestLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		var waiting sync.WaitGroup
		lines := r.run(func() {
			srv := locktest.NewServer(r)
			locks, other := srv.Client(lock.Config{}), srv.Client(lock.Config{})
			mustLock(t, locks, "forgotten")
			waiting.Go(func() { _, _ = other.Reentrant("forgotten").Lock(context.Background()) })
			for other.Stats().Waiting == 0 {
				time.Sleep(time.Millisecond)
			}
			srv.Hold("strange", 0) // is no leak
			if n := len(srv.Leaks()); n != 4 {
				t.Errorf("%d leaks: %q", n, srv.Leaks())
			}
		})
		waiting.Wait()
		for i, want := range []string{`key "forgotten", of `, `holds 1 leases, of "forgotten"`, `1 calls that wait, for "forgotten"`} {
			if i >= len(lines) || !strings.Contains(lines[i], want) {
				t.Fatalf("reported: %q, want %q in line %d", lines, want, i)
			}
		}
		if len(lines) != 3 {
			t.Errorf("reported: %q", lines)
		}
	})
}

// Locks of all kinds are reported, also those of a program with a connection of its own. A lease that has ended is no leak, nor is the
// rest of a lock that AtLeast keeps taken.
func TestLeaksOfEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(&recorder{})
		pool, err := conn.Open(t.Context(), srv.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		locks, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		s := locks.PermitSemaphore("permits")
		if err := s.SetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for name, try := range map[string]func(context.Context, ...lock.Option) (*lock.Lease, error){
			"reentrant": locks.Reentrant("reentrant").TryLock, "fair": locks.Fair("fair").TryLock, "fenced": locks.Fenced("fenced").TryLock,
			"read": locks.ReadWrite("read").Read().TryLock, "write": locks.ReadWrite("write").Write().TryLock,
			"plain": locks.Plain("plain").TryLock, "group": locks.FasterMulti("group", "1", "2").TryLock, "permits": s.TryAcquire,
		} {
			lease, err := try(t.Context(), lock.For(time.Second))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := srv.Leaks(); len(got) != 0 {
				t.Errorf("%s: Leaks() after the end of the lease = %q", name, got)
			}
			_ = lease.Unlock(t.Context())
			if lease, err = try(t.Context()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := srv.Leaks(); len(got) != 1 || !strings.Contains(got[0], name) || !strings.HasSuffix(got[0], fmt.Sprintf(", of %q", lease.Owner())) {
				t.Errorf("%s: Leaks() = %q, want the owner %q", name, got, lease.Owner())
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, try := range map[string]func(context.Context, ...lock.Option) (*lock.Lease, error){
			"reentrant": locks.Reentrant("reentrant").TryLock, "plain": locks.Plain("plain").TryLock,
		} {
			lease, err := try(t.Context(), lock.AtLeast(time.Hour))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := srv.Leaks(); len(got) != 0 {
				t.Errorf("%s: Leaks() of what AtLeast keeps = %q", name, got)
			}
		}
	})
}

// The program's own keys are no locks, even with values like those of locks: a checksum, or an item for a client.
func TestLeaksOfOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.NewServer(t)
		pool, err := conn.Open(t.Context(), srv.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		for _, command := range [][]any{
			{"SET", "report:etag", "d41d8cd98f00b204e9800998ecf8427e"},
			{"RPUSH", "queue", "550e8400-e29b-41d4-a716-446655440000:7"},
			{"ZADD", "job:timeout", time.Now().Add(time.Hour).UnixMilli(), "7"},
		} {
			if _, err := pool.Do(t.Context(), command...); err != nil {
				t.Fatal(err)
			}
		}
		if got := srv.Leaks(); len(got) != 0 {
			t.Errorf("Leaks() = %q", got)
		}
	})
}

// A call that cannot do what it is asked for fails the test.
func TestMisuse(t *testing.T) {
	for want, fn := range map[string]func(*locktest.Server){
		`Hold("job"): the lock is taken`: func(s *locktest.Server) { s.Hold("job", 0); s.Hold("job", 0) },
		"cannot be lost like this": func(s *locktest.Server) {
			lease, _ := s.Client(lock.Config{}).Reentrant("job").Lock(context.Background())
			defer func() { _ = lease.Unlock(context.Background()) }()
			s.Lose(lease, lock.PartLost)
		},
		"its Err() is <nil>; take the lease with lock.For": func(s *locktest.Server) {
			lease, _ := s.Client(lock.Config{}).Reentrant("job").Lock(context.Background())
			defer func() { _ = lease.Unlock(context.Background()) }()
			s.Lose(lease, lock.Expired) // though it is renewed
		},
		"the lease is over: lock: released": func(s *locktest.Server) {
			lease, _ := s.Client(lock.Config{}).Reentrant("job").Lock(context.Background())
			_ = lease.Unlock(context.Background())
			s.Lose(lease, lock.Forced)
		},
		"lock: invalid": func(s *locktest.Server) { s.Client(lock.Config{Lease: -1}) },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{}
				lines := r.run(func() { fn(locktest.NewServer(r)) })
				if len(lines) != 1 || !strings.Contains(lines[0], want) {
					t.Errorf("reported: %q, want %q", lines, want)
				}
			})
		})
	}
}

// Clients of one Server have the same server, as clients with one address do: a lock of two clients counts once in a Multi.
func TestServerIsOneForItsClients(t *testing.T) {
	srv, elsewhere := locktest.NewServer(t), locktest.NewServer(t)
	member := func(srv *locktest.Server) lock.Member { return srv.Client(lock.Config{}).Reentrant("job") }
	m, err := lock.NewMulti(member(srv), member(elsewhere), member(srv))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := m.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lease.Members()); n != 2 {
		t.Errorf("%d members, want one for each server", n)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := lock.NewRedlock(lock.RedlockConfig{}, member(srv), member(elsewhere), member(srv)); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("NewRedlock() with a server twice = %v, want ErrInvalid", err)
	}
}
