package lock_test

import (
	"context"
	"errors"
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

// refusedVote has a Redlock on three servers ask in vain: another process has the lock on two of them. The vote of the third is on its
// way back then.
func (f fleet) refusedVote(t *testing.T, p process) {
	t.Helper()
	other := f.process(lock.Config{})
	for _, c := range other[:2] {
		mustLock(t, c, "job")
	}
	_, err := p.redlock(t, lock.RedlockConfig{}, false).TryLock(t.Context())
	wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
	synctest.Wait()
}

// Close has the vote of a ballot that was lost taken back within its time, or counts it, whatever becomes of the release.
func TestRedlockCloseDuringTheRelease(t *testing.T) {
	second := (*lock.Client).Close
	unlimited := func(c *lock.Client) error { return c.CloseContext(context.Background()) }
	for name, test := range map[string]struct {
		release func(w *world, n int) fakeredis.Action
		close   func(c *lock.Client) error
		want    lock.CloseError
		most    time.Duration
	}{
		"answered": {
			func(*world, int) fakeredis.Action { return fakeredis.Delay(400*time.Millisecond, fakeredis.Run()) },
			second, lock.CloseError{}, 400 * time.Millisecond,
		},
		"answered late": {
			func(_ *world, n int) fakeredis.Action {
				return first(fakeredis.Delay(700*time.Millisecond, fakeredis.Run()))(n)
			},
			second, lock.CloseError{}, 700 * time.Millisecond,
		},
		"the connection is lost": {
			func(w *world, n int) fakeredis.Action {
				if n == 1 {
					w.srv.Refuse(true)
					time.AfterFunc(2*time.Second, func() { w.srv.Refuse(false) })
					return fakeredis.Delay(100*time.Millisecond, fakeredis.Close())
				}
				return fakeredis.Run()
			},
			unlimited, lock.CloseError{}, 3 * time.Second,
		},
		"the connection is lost for good": {
			func(w *world, _ int) fakeredis.Action {
				w.srv.Refuse(true)
				return fakeredis.Delay(100*time.Millisecond, fakeredis.Close())
			},
			second, lock.CloseError{Releases: 1}, time.Second,
		},
		"never answered": {
			func(*world, int) fakeredis.Action { return fakeredis.Swallow() },
			second, lock.CloseError{Releases: 1}, time.Second,
		},
		"no time": {
			func(*world, int) fakeredis.Action { return fakeredis.Swallow() },
			func(c *lock.Client) error {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				return c.CloseContext(ctx)
			},
			lock.CloseError{Releases: 1}, 0,
		},
		"much time": {
			func(_ *world, n int) fakeredis.Action { return first(fakeredis.Swallow())(n) },
			unlimited,
			lock.CloseError{}, 3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				p := f.process(lock.Config{})
				third := f[2]
				third.onScript("single", func(n int) fakeredis.Action { return test.release(third, n) })
				f.refusedVote(t, p)
				start := time.Now()
				err := test.close(p[2])
				took := time.Since(start)
				given, ok := errors.AsType[*lock.CloseError](err)
				if want := test.want != (lock.CloseError{}); ok != want || ok && *given != test.want || !ok && err != nil {
					t.Errorf("Close() = %v, want %+v", err, test.want)
				}
				if took > test.most {
					t.Errorf("Close() took %v, want no more than %v", took, test.most)
				}
				if taken := f.holders("job")[2] != nil; taken != (test.want.Releases > 0) {
					t.Errorf("the third server has the lock: %v, after Close() = %v", taken, err)
				}
				third.clients = nil // whose Close has failed
			})
		})
	}
}

// The client of a vote that was granted is closed while the ballot waits for others. The vote is taken back and does not count.
func TestRedlockCloseBeforeTheDecision(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{NodeTimeout: 10 * time.Second}, false)
		mustUnlock(t, lockRed(t, r))
		synctest.Wait()
		for _, w := range f[1:] {
			w.onScript("acquire", first(fakeredis.Delay(500*time.Millisecond, fakeredis.Run())))
		}
		asked := make(chan *lock.Lease)
		go func() {
			lease, err := r.TryLock(t.Context())
			if err != nil {
				t.Errorf("TryLock() = %v", err)
			}
			asked <- lease
		}()
		time.Sleep(100 * time.Millisecond)
		if f.holders("job")[0] == nil {
			t.Fatal("the first server has not granted")
		}
		if err := p[0].Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if f.holders("job")[0] != nil {
			t.Error("the first server has the lock after Close")
		}
		if lease := <-asked; lease != nil {
			if n := len(lease.Members()); n != 2 {
				t.Errorf("%d servers have granted, want 2", n)
			}
			mustUnlock(t, lease)
		}
		f.free()
	})
}

// An Unlock that is under way when Close is called has its answer, which Close waits for.
func TestRedlockCloseDuringUnlock(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		lease := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait()
		for _, w := range f {
			w.onScript("single", first(fakeredis.Delay(300*time.Millisecond, fakeredis.Run())))
		}
		released := make(chan error)
		go func() { released <- lease.Unlock(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		for _, c := range p {
			if err := c.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
		if n := f.taken("job"); n != 0 {
			t.Errorf("taken on %d servers after Close", n)
		}
		if err := <-released; err != nil {
			t.Errorf("Unlock() = %v", err)
		}
		f.free()
	})
}
