package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// again is a client that has waited for the lock "job" a moment ago, and is woken by messages only, and another client that has it.
func again(t *testing.T, w *world) (c *lock.Client, taken *lock.Lease) {
	c, other := w.client(lock.Config{}), w.client(lock.Config{})
	c.OnlyWoken()
	taken = mustLock(t, other, "job")
	got := waitForJob(t, c)
	w.sleep(100 * time.Millisecond)
	mustUnlock(t, taken)
	mustUnlock(t, <-got)
	w.sleep(100 * time.Millisecond)
	taken = mustLock(t, other, "job")
	w.srv.ClearLog()
	return c, taken
}

// waitForJob has c wait for the lock "job".
func waitForJob(t *testing.T, c *lock.Client) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go func() {
		defer close(got)
		if lease, err := c.Reentrant("job").Lock(t.Context()); err != nil {
			t.Errorf("Lock() = %v", err)
		} else {
			got <- lease
		}
	}()
	return got
}

// wantWoken fails the test unless the lock comes soon after its release.
func wantWoken(t *testing.T, what string, got <-chan *lock.Lease) {
	t.Helper()
	select {
	case lease := <-got:
		mustUnlock(t, lease)
	case <-time.After(time.Minute):
		t.Fatalf("%s: not woken", what)
	}
}

// Who waits again soon after the last wait for the lock does not subscribe again, and asks once before it is woken.
func TestWaitingAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, taken := again(t, w)
		got := waitForJob(t, c)
		w.sleep(200 * time.Millisecond)
		mustUnlock(t, taken)
		wantWoken(t, "the second wait", got)
		if subscribed, ran := w.srv.Count("SUBSCRIBE"), w.srv.Count("EVALSHA"); subscribed != 0 || ran != 4 {
			t.Errorf("%d times SUBSCRIBE and %d scripts, want none, and two acquires and two releases", subscribed, ran)
		}
		w.free()
	})
}

// The lock is released after it has been asked for and before the answer has come.
func TestWaitingAgainHearsWhatCameMeanwhile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, taken := again(t, w)
		w.onScript("acquire", func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.Run().Late(50 * time.Millisecond)
			}
			return fakeredis.Run()
		})
		got := waitForJob(t, c)
		w.sleep(10 * time.Millisecond)
		mustUnlock(t, taken)
		wantWoken(t, "released before the answer", got)
		w.free()
	})
}

// The subscription was lost, and came back, since the last wait.
func TestWaitingAgainAfterAGap(t *testing.T) {
	for name, since := range map[string]time.Duration{"before the wait": 200 * time.Millisecond, "as it begins": 0} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, taken := again(t, w)
				w.srv.KillConns(nil)
				w.sleep(since)
				got := waitForJob(t, c)
				w.sleep(time.Second)
				mustUnlock(t, taken)
				wantWoken(t, "after the gap", got)
				w.free()
			})
		})
	}
}
