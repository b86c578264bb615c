package lock_test

import (
	"errors"
	"testing"
	"time"

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

// A lease as long as a Duration can say is one that the server accepts: a hash without a lease would stay for ever.
func TestServerLongestLease(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c := serverClient(t, s)
		lease := mustLock(t, c, "job", lock.For(1<<63-1))
		info, err := c.Reentrant("job").Info(t.Context())
		if err != nil || info.Remaining < 291*365*24*time.Hour {
			t.Errorf("Info() = %+v, %v, want a lease of 292 years", info, err)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("Err() = %v", err)
		}
		mustUnlock(t, lease)
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
