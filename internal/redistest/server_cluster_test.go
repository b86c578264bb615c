package redistest_test

import (
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestCluster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		if n := len(c.Masters()); n != 3 {
			t.Fatalf("%d masters, want 3", n)
		}
		if got := c.Config().Protocol; got != proto {
			t.Errorf("Protocol = %d, want %d", got, proto)
		}
		if proto == 2 {
			return // what follows does not depend on it
		}
		owner := c.Owner(0)
		var other *redistest.Server
		for _, s := range c.Masters() {
			if s != owner {
				other = s
			}
		}
		owner.Do("SET", "{06S}x", "1") // slot 0
		c.Move(0, other)
		c.Await()
		if got := c.Owner(0); got != other {
			t.Fatalf("slot 0 is served by %v, want %v", got.Addr(), other.Addr())
		}
		if v := other.Do("GET", "{06S}x"); v.IsNull() {
			t.Error("the key has not moved with its slot")
		}
		c.Move(0, owner)
		c.Await()

		replica := c.Replica(owner)
		c.Promote(replica)
		if got := c.Owner(0); got != replica {
			t.Errorf("slot 0 is served by %v after a failover, want %v", got.Addr(), replica.Addr())
		}
		c.Remove(c.Add())
		replica.Kill()
		c.AwaitTakeover(replica)
		replica.Restart()
		c.Await()
		owner.Do("DEL", "{06S}x")
	})
}

func TestClusterWithPasswordAndTLS(t *testing.T) {
	c := redistest.StartCluster(t, redistest.Options{TLS: true, Password: "cluster secret"})
	owner := c.Owner(0)
	owner.Do("SET", "{06S}x", "1")
	for _, s := range c.Masters() {
		if s != owner {
			c.Move(0, s)
			break
		}
	}
	c.Await()
}
