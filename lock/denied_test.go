package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

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
