package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A call of an Owner does not stand behind others that wait for the same Owner, when the Owner gets the lock by another call: as another
// kind, or its write half.
func TestOwnerGetsTheLockAsSomethingElse(t *testing.T) {
	fair := func(c *lock.Client) goldenLock { return c.Fair("job") }
	for name, x := range map[string]struct {
		held, gets, waits lockOf // by another client, and by two calls of the Owner
	}{
		"write, then read":         {toWrite, toWrite, toRead},
		"fair, then reentrant":     {fair, fair, toLock},
		"reentrant, then fair":     {toLock, toLock, fair},
		"reentrant, then the same": {toLock, toLock, toLock},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				held := mustHave(t, x.held(w.client(lock.Config{})))
				leases, second := make(chan *lock.Lease, 2), make(chan error, 1)
				go func() { leases <- mustHave(t, x.gets(c), owner) }()
				w.sleep(10 * time.Millisecond)
				between := x.waits.waits(t, t.Context(), c)
				w.sleep(10 * time.Millisecond)
				go func() {
					l, err := x.waits(c).Lock(t.Context(), owner)
					if err == nil {
						leases <- l
					}
					second <- err
				}()
				w.sleep(10 * time.Millisecond)
				mustUnlock(t, held)
				w.sleep(time.Second)
				if len(second) == 0 || len(between) != 0 {
					t.Fatalf("after the release %d of the Owner's second call and %d of another have ended, want 1 and 0", len(second), len(between))
				}
				wantOK(t, "Lock", <-second)
				for len(leases) > 0 {
					mustUnlock(t, <-leases)
				}
				mustUnlock(t, <-between)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// A write call that stands behind others outlasts a read hold of its Owner that ends before its turn comes.
func TestWriteCallBehindAShortReadOfItsOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		held := mustWrite(t, w.client(lock.Config{}))
		reads, wrote := make(chan *lock.Lease, 1), make(chan error, 1)
		go func() { reads <- mustRead(t, c, owner) }()
		w.sleep(10 * time.Millisecond)
		between := lockOf(toWrite).waits(t, t.Context(), c)
		w.sleep(10 * time.Millisecond)
		go func() {
			l, err := toWrite(c).Lock(t.Context(), owner)
			if err == nil {
				err = l.Unlock(t.Context())
			}
			wrote <- err
		}()
		w.sleep(10 * time.Millisecond)
		mustUnlock(t, held)
		read := <-reads
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, read)
		mustUnlock(t, <-between)
		wantOK(t, "Lock", <-wrote)
		w.sleep(latchLife)
		w.free()
	})
}
