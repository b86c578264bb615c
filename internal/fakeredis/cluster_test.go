package fakeredis_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// inCluster runs fn in virtual time, with a cluster whose node timeout is a second.
func inCluster(t *testing.T, partial bool, fn func(t *testing.T, nodes []*fakeredis.Server, n *fakeredis.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes, n := newCluster(t, fakeredis.ClusterOptions{Timeout: time.Second, Partial: partial})
		time.Sleep(3 * time.Second)
		fn(t, nodes, n)
	})
}

// owners is who has a slot, according to each node.
func owners(nodes []*fakeredis.Server, slot int) string {
	text := ""
	for _, s := range nodes {
		text += fmt.Sprint(s.Cluster().Owner(slot))
	}
	return text
}

func wantOwners(t *testing.T, nodes []*fakeredis.Server, slot int, want string) {
	t.Helper()
	if got := owners(nodes, slot); got != want {
		t.Errorf("slot %d belongs to %s, want %s", slot, got, want)
	}
}

// A replica takes over from a master that dies, with its data. The former master comes back as its replica.
func TestClusterTakeover(t *testing.T) {
	for name, away := range map[string]func(s *fakeredis.Server) (back func()){
		"dies":  func(s *fakeredis.Server) func() { s.Kill(); return func() { s.Revive(true) } },
		"hangs": func(s *fakeredis.Server) func() { s.Stall(true); return func() { s.Stall(false) } },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, true, func(t *testing.T, nodes []*fakeredis.Server, _ *fakeredis.Network) {
				nodes[0].Do("SET", "mylock", "v")
				time.Sleep(time.Second)
				back := away(nodes[0])
				time.Sleep(6 * time.Second)
				wantOwners(t, nodes[1:], 1711, "33333")
				if got := nodes[3].Do("GET", "mylock"); got != "v" {
					t.Errorf("GET at the new master = %v", got)
				}
				back()
				time.Sleep(10 * time.Second)
				wantOwners(t, nodes, 1711, "333333")
				if r := nodes[0].Replication(); !r.Linked || r.Master != "10.0.0.4:6379" {
					t.Errorf("the former master is %+v", r)
				}
			})
		})
	}
}

// A master that reaches no majority stops serving, and so do all if the coverage has to be full.
func TestClusterDown(t *testing.T) {
	for _, partial := range []bool{false, true} {
		inCluster(t, partial, func(t *testing.T, nodes []*fakeredis.Server, n *fakeredis.Network) {
			cut := func(on bool) {
				for _, i := range []int{2, 3, 4, 5, 6} {
					n.Block("10.0.0.1:6379", fmt.Sprintf("10.0.0.%d:6379", i), on)
					n.Block(fmt.Sprintf("10.0.0.%d:6379", i), "10.0.0.1:6379", on)
				}
			}
			nodes[3].Kill() // which would take over
			cut(true)
			time.Sleep(5 * time.Second)
			a, b := dial(t, nodes[0]), dial(t, nodes[1])
			if got := a.do("GET", "mylock"); !strings.HasPrefix(got, "-CLUSTERDOWN") {
				t.Errorf("in the minority GET = %q", got)
			}
			if got := b.do("GET", "c"); strings.HasPrefix(got, "-CLUSTERDOWN") == partial {
				t.Errorf("partial coverage %v: GET = %q", partial, got)
			}
			cut(false)
			time.Sleep(10 * time.Second)
			if got := a.do("GET", "mylock"); got != "$-1\r\n" {
				t.Errorf("after the cut GET = %q", got)
			}
		})
	}
}

// Messages to plain channels reach all nodes, those to shard channels one.
func TestClusterBus(t *testing.T) {
	inCluster(t, true, func(t *testing.T, nodes []*fakeredis.Server, _ *fakeredis.Network) {
		c := dial(t, nodes[4])
		c.do("SUBSCRIBE", "foo")
		nodes[0].Do("PUBLISH", "foo", "hi")
		if got := c.read(); !strings.Contains(got, "hi") {
			t.Errorf("read %q", got)
		}
		nodes[2].Do("SPUBLISH", "foo", "shard")
		time.Sleep(time.Second)
		for _, m := range nodes[4].Messages() {
			if m.Shard {
				t.Errorf("a message to a shard channel has come to another shard: %v", m)
			}
		}
	})
}

// A replica without data does not stand for election.
func TestClusterReplicaWithoutData(t *testing.T) {
	inCluster(t, true, func(t *testing.T, nodes []*fakeredis.Server, n *fakeredis.Network) {
		n.Block("10.0.0.1:6379", "10.0.0.4:6379", true)
		nodes[3].Kill()
		time.Sleep(time.Second)
		nodes[3].Revive(false)
		nodes[0].Kill()
		time.Sleep(20 * time.Second)
		wantOwners(t, nodes[1:], 1711, "00000")
	})
}
