package lock_test

import (
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
