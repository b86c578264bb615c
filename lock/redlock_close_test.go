package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

func TestRedlockClosedClients(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{}, false)
		lease := lockRed(t, r)
		synctest.Wait()
		p[2].Close()
		if err := lease.Err(); err != nil {
			t.Errorf("Err() with one client of three closed = %v", err)
		}
		p[1].Close()
		lostBecause(t, lease.Err(), lock.ClientClosed)
		mustUnlock(t, lease)
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
		wantErr(t, "TryLock()", err, lock.ErrClosed)
		synctest.Wait() // for the vote of the client that is left
		p[0].Close()
		_, err = r.Lock(t.Context())
		wantErr(t, "Lock()", err, lock.ErrClosed)
		f.free()
	})
}

// A vote that is under way when its client is closed is taken back. The latch that keeps it from counting later stays for as long as
// it may be on its way.
func TestRedlockClosedDuringTheVote(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		synctest.Wait()
		p[2].Close()
		p[1].Close()
		f[0].onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(100*time.Millisecond, fakeredis.Run()) })
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
		synctest.Wait()
		if err := p[0].Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if n := f.taken("job"); n != 0 {
			t.Errorf("taken on %d servers after Close", n)
		}
		time.Sleep(5 * time.Second)
		f.free()
	})
}
