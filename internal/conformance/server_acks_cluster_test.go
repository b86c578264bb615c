package conformance_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// addReplica gives a master one replica more, and returns when nodes list both.
func addReplica(t *testing.T, c *redistest.Cluster, nodes *cluster.Cluster, master *redistest.Server, key string) *redistest.Server {
	t.Helper()
	s := c.Add()
	id, err := master.Try("CLUSTER", "MYID")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := id.Text()
	s.Do("CLUSTER", "REPLICATE", text)
	c.Await()
	eventually(t, "that both replicas are listed", func() bool {
		s, err := nodes.Succession(t.Context(), key, time.Now())
		return err == nil && s.Replicas == 2
	})
	return s
}

// Of two replicas both have to acknowledge: either may become the master. While one of them hangs TryLock says so, and Lock goes on
// until the nodes have found it to have failed.
func TestBothReplicasAcknowledge(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, nodes := locksOf(t, c, lock.Config{AckTimeout: 300 * time.Millisecond})
		one, _ := locksOf(t, c, lock.Config{Acks: 1, AckTimeout: patience})
		two, _ := locksOf(t, c, lock.Config{Acks: 2, AckTimeout: patience})
		master := c.Owner(cluster.Slot("job"))
		second := addReplica(t, c, nodes, master, "job")
		// The new replica is up a moment before the master counts it, and until then one acknowledgement is enough.
		unlock(t, lockIn(t, two.Reentrant("job")))
		c.Patiently(second, func() {
			second.Pause()
			_, err := locks.Reentrant("job").TryLock(t.Context())
			notReplicated(t, "TryLock() while one of two replicas hangs", err, "job", master.Addr(), 2)
		})
		unlock(t, lockIn(t, one.Reentrant("job")))
		unlock(t, lockIn(t, locks.Reentrant("job")))
		if n := locks.Stats().Unacknowledged; n > 0 {
			t.Errorf("%d locks were granted without acknowledgement", n)
		}
		second.Continue()
		c.Await()
		c.Remove(second)
	})
}

// While a slot migrates to a master without replicas, locks are had there as they will be afterwards.
func TestSlotMovesToAMasterWithoutReplicas(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		to := c.Add()
		locks, _ := locksOf(t, c, lock.Config{AckTimeout: 200 * time.Millisecond})
		slot := cluster.Slot("job")
		from := c.Owner(slot)
		if err := c.BeginMove(slot, from, to); err != nil {
			t.Fatal(err)
		}
		lease := lockIn(t, locks.Reentrant("job"))
		if n := locks.Stats().Unacknowledged; n == 0 {
			t.Error("the grant of a master without replicas is not counted")
		}
		unlock(t, lease)
		if err := c.EndMove(slot, to); err != nil {
			t.Fatal(err)
		}
		c.Await()
		c.Move(slot, from)
		c.Await()
		c.Remove(to)
	})
}
