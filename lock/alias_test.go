package lock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// One lock under two addresses of its server is refused, instead of waiting for itself. A fake has no Target by which that would
// show before.
func TestMultiOfOneLockUnderTwoAddresses(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		a, b, other := f.process(lock.Config{}), f.process(lock.Config{}), f.process(lock.Config{})
		for name, m := range map[string]*lock.Multi{
			"two":          newMulti(t, a[0].Reentrant("x"), b[0].Reentrant("x")),
			"among others": newMulti(t, a[0].Reentrant("x"), a[1].Reentrant("x"), a[0].Reentrant("w"), b[1].Reentrant("x")),
			"of two kinds": newMulti(t, a[0].Reentrant("x"), b[0].Fair("x")),
		} {
			start := time.Now()
			_, err := m.Lock(t.Context())
			wantErr(t, name+": Lock()", err, lock.ErrInvalid)
			_, err = m.TryLock(t.Context())
			wantErr(t, name+": TryLock()", err, lock.ErrInvalid)
			if d := time.Since(start); d > 100*time.Millisecond {
				t.Errorf("%s: found after %v", name, d)
			}
		}
		synctest.Wait()
		if n := f.taken("x"); n > 0 {
			t.Errorf("%d locks are left", n)
		}
		// Others have a right to be: of two servers, and of two names.
		for range 2 {
			m := newMulti(t, a[0].Reentrant("x"), a[1].Reentrant("x"), b[0].Reentrant("y"))
			lease := lockMulti(t, m)
			_, err := newMulti(t, other[0].Reentrant("x"), other[1].Reentrant("x")).TryLock(t.Context())
			wantErr(t, "TryLock() of another process", err, lock.ErrNotAcquired)
			mustUnlock(t, lease)
		}
		asked := f[0].srv.Count("INFO")
		m := newMulti(t, a[0].Reentrant("x"), a[1].Reentrant("x"))
		for range 10 {
			mustUnlock(t, lockMulti(t, m))
		}
		if n := f[0].srv.Count("INFO") - asked; n != 1 {
			t.Errorf("the server was asked who it is %d times, want once", n)
		}
	})
}

// Databases of one server have locks of their own.
func TestMultiOfTwoDatabases(t *testing.T) {
	inFleet(t, 1, func(t *testing.T, f fleet) {
		first := f[0].clientOn(conn.Config{}, lock.Config{})
		second := f[0].clientOn(conn.Config{DB: 1}, lock.Config{})
		third := f[0].clientOn(conn.Config{DB: 1}, lock.Config{})
		mustUnlock(t, lockMulti(t, newMulti(t, first.Reentrant("x"), second.Reentrant("x"))))
		_, err := newMulti(t, first.Reentrant("x"), second.Reentrant("x"), third.Reentrant("x")).Lock(t.Context())
		wantErr(t, "Lock() of one in database 1 twice", err, lock.ErrInvalid)
	})
}

// An address may lead to another server later: a Multi that is refused looks again. A server that does not say who it is, or not
// in time, is no other's double.
func TestMultiOfServersThatDoNotSayWhoTheyAre(t *testing.T) {
	inFleet(t, 1, func(t *testing.T, f fleet) {
		a, b := f.process(lock.Config{}), f.process(lock.Config{})
		m := newMulti(t, a[0].Reentrant("x"), b[0].Reentrant("x"))
		var known atomic.Bool
		f[0].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INFO" && !known.Load() {
				return fakeredis.Reply("-NOPERM no\r\n")
			}
			return fakeredis.Run()
		})
		_, err := m.TryLock(t.Context())
		wantErr(t, "TryLock() where nothing is known", err, lock.ErrNotAcquired)
		time.AfterFunc(time.Second, func() { known.Store(true) })
		_, err = m.Lock(t.Context())
		wantErr(t, "Lock() once that is known", err, lock.ErrInvalid)
	})
}
