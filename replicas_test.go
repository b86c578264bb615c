package lockwire_test

import (
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/lock"
)

// A replica may not know who has a lock, so a client that reads from replicas cannot be the server of locks.
func TestReplicasAreNoServerOfLocks(t *testing.T) {
	if _, ok := any(cluster.Replicas{}).(lock.Server); ok {
		t.Error("package lock accepts a cluster.Replicas")
	}
	if _, ok := any(new(cluster.Cluster)).(lock.Server); !ok {
		t.Error("package lock does not accept a cluster.Cluster")
	}
}
