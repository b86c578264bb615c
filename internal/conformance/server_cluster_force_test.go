package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// A holder of any kind is told that another client has forced its lock while the slot of the lock is half migrated, with the
// lock on either node.
func TestForcedWhileHalfMigrated(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		const lease = time.Hour // no renewal by itself
		locks, _ := locksOf(t, c, lock.Config{Lease: lease})
		other, _ := locksOf(t, c, lock.Config{Lease: lease})
		masters := c.Masters()
		h := &halfMigrated{t, c, masters[0], masters[1], locks, make(map[string]*lock.Lease)}
		moves := h.hold(fmt.Sprintf("moves-%d-", proto), false)
		stays := h.hold(fmt.Sprintf("stays-%d-", proto), false)
		for slot := range h.slots() {
			if err := c.BeginMove(slot, h.from, h.to); err != nil {
				t.Fatal(err)
			}
		}
		h.move(moves, false)
		for _, names := range [][]string{moves, stays} {
			for _, name := range names {
				h.force(other, name)
			}
		}
		for name, l := range h.held {
			eventually(t, name+" is known to be lost", func() bool { return l.Err() != nil })
		}
	})
}

// force frees a lock of any kind by force.
func (h *halfMigrated) force(c *lock.Client, name string) {
	both, forced := c.ReadWrite(name), 0
	for _, force := range []func(context.Context) (bool, error){
		both.Write().ForceUnlock, both.Read().ForceUnlock, c.Reentrant(name).ForceUnlock, c.Fair(name).ForceUnlock,
		c.Plain(name).ForceUnlock, c.PermitSemaphore(name).ReleaseAll,
	} {
		if done, err := force(h.t.Context()); err == nil && done {
			forced++
		}
	}
	if forced != 1 {
		h.t.Errorf("%s was forced %d times", name, forced)
	}
}
