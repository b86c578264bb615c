package fakeredis_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
)

// newCluster returns the nodes of a cluster: three masters, and a replica of each.
func newCluster(t testing.TB, o fakeredis.ClusterOptions) (nodes []*fakeredis.Server, n *fakeredis.Network) {
	t.Helper()
	n = fakeredis.NewNetwork(func(_, _ string) time.Duration { return time.Millisecond })
	bounds := []int{0, 5461, 10923, fakeredis.SlotCount}
	for i := range 6 {
		node := fakeredis.ClusterNode{Addr: "10.0.0." + strconv.Itoa(i+1) + ":6379", Master: i - 3}
		if i < 3 {
			node.Master, node.First, node.Last = -1, bounds[i], bounds[i+1]-1
		}
		o.Nodes = append(o.Nodes, node)
	}
	if o.Chance == nil {
		o.Chance = func(most time.Duration) time.Duration { return most / 2 }
	}
	for i, node := range o.Nodes {
		s := fakeredis.NewClusterNode(o, i)
		n.Join(node.Addr, s)
		nodes = append(nodes, s)
		t.Cleanup(s.Close)
	}
	return nodes, n
}

// The conversation with three masters, A, B and C, the replica of A, D, and what happens between.
// E and F are further connections to B and A. The slot of mylock, 1711, is A's.
const clusterConversation = `
A CLUSTER KEYSLOT {mylock}b
A CLUSTER KEYSLOT a{}b
A CLUSTER KEYSLOT 3560
A GET foo
B GET mylock
D GET mylock
D SET mylock v
A MGET mylock foo
A MGET foo foo
A EVALSHA 0000000000000000000000000000000000000000 2 mylock foo
A EVALSHA 0000000000000000000000000000000000000000 1 foo
A MSET mylock v {mylock}b w
A SPUBLISH foo hi
A SPUBLISH mylock hi
A SSUBSCRIBE mylock foo
A SSUBSCRIBE foo
A PUBLISH foo hi
A PUBSUB SHARDNUMSUB foo
A WAIT 1 60000
A MULTI
A SET mylock x
A GET foo
A EXEC
A GET mylock
A CLUSTER SETSLOT 1711 FOO
A CLUSTER SETSLOT 99999 STABLE
B CLUSTER SETSLOT 1711 MIGRATING nobody
A CLUSTER SETSLOT 1711 IMPORTING nobody
B CLUSTER SETSLOT 1711 IMPORTING nobody
B CLUSTER SETSLOT 1711 NODE nobody
D CLUSTER SETSLOT 1711 STABLE
A script 1 mylock mylock
A script 1 mylock foo
A script 1 mylock {mylock}none
A script 0 mylock
A script 0 foo
begin
A GET mylock
A GET {mylock}none
A MGET mylock {mylock}none
A MGET {mylock}none {mylock}nowhere
A SET {mylock}none v
A SPUBLISH mylock hi
A script 1 mylock {mylock}none
A script 1 mylock {mylock}b
A script 2 mylock {mylock}none mylock
A MULTI
A GET mylock
A GET {mylock}none
A EXEC
A MULTI
A GET mylock
A EXEC
B GET mylock
B ASKING
B GET {mylock}none
B GET {mylock}none
B ASKING
B MGET mylock {mylock}none
B ASKING
B script 1 mylock {mylock}none
B ASKING
B script 2 mylock {mylock}none x
B script 1 mylock {mylock}none
B ASKING
B SET {mylock}new v
B ASKING
B MULTI
B GET {mylock}new
B EXEC
B GET {mylock}new
E ASKING
E SSUBSCRIBE mylock
F SSUBSCRIBE mylock
A CLUSTER SETSLOT 1711 NODE nobody
move
A GET mylock
A MGET mylock {mylock}b
A script 1 mylock mylock
B ASKING
B MGET mylock {mylock}b
B ASKING
B MGET mylock {mylock}none
end
F read
F SSUBSCRIBE mylock
E SSUBSCRIBE {mylock}b
A GET mylock
B GET mylock
B MGET mylock {mylock}none
B ASKING
B GET mylock
C GET mylock
A SSUBSCRIBE mylock
A CLUSTER COUNTKEYSINSLOT 1711
B CLUSTER COUNTKEYSINSLOT 1711
A GET 3560
A CLUSTER DELSLOTS 0
A CLUSTER DELSLOTS 0
A GET 3560
A GET foo
A MGET foo mylock
A SSUBSCRIBE foo
A script 0 mylock
A SPUBLISH foo x
A PUBLISH foo x
`

const clusterScript = "return redis.call('exists', ARGV[1])"

// What nodes say to requests that are not for them is what Redis says.
func TestClusterConversation(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		if s := c.Nodes()[0]; s.Binary().Product != "redis" || !s.AtLeast(7, 0) || s.AtLeast(7, 1) || proto == 2 {
			t.Log("compared with Redis 7.0, once")
			return
		}
		fakes, _ := newCluster(t, fakeredis.ClusterOptions{Timeout: time.Minute})
		names, places := []string{}, map[string]*both{}
		for i, s := range c.Nodes() {
			fakes[i].Script(clusterScript, func(c *fakeredis.Call) any { return c.Do("exists", c.Args[0]) })
			names = append(names, s.Addr(), "10.0.0."+strconv.Itoa(i+1)+":6379")
			for _, place := range []string{"AF", "BE", "C", "D", "", ""}[i] {
				places[string(place)] = &both{t: t, srv: fakes[i], redis: s, fake: dial(t, fakes[i]), real: dialReal(t, s)}
			}
			if _, err := s.Try("CONFIG", "SET", "cluster-require-full-coverage", "yes"); err != nil {
				t.Fatal(err)
			}
		}
		same := strings.NewReplacer(names...)
		for line := range strings.Lines(clusterConversation) {
			if args := words(line); len(args) == 1 {
				changeBoth(t, c, fakes, args[0])
			} else if len(args) > 1 {
				converse(t, places[args[0]], same, args)
			}
		}
	})
}

// converse sends a command to both, and compares the replies.
func converse(t *testing.T, b *both, same *strings.Replacer, words []string) {
	t.Helper()
	args := words[1:]
	switch args[0] {
	case "read":
		if fake, real := b.fake.read(), b.real.read(); fake != real {
			t.Errorf("%q:\nfake %q\nreal %q", words, fake, real)
		}
		return
	case "script":
		args = append([]string{"EVAL", clusterScript}, args[1:]...)
	}
	fake, real := b.fake.do(args...), same.Replace(b.real.do(args...))
	if fake != real {
		t.Errorf("%q:\nfake %q\nreal %q", words, fake, real)
	}
}

// changeBoth begins, does or ends the migration of slot 1711 from A to B.
func changeBoth(t *testing.T, c *redistest.Cluster, fakes []*fakeredis.Server, what string) {
	t.Helper()
	from, to := c.Nodes()[0], c.Nodes()[1]
	var err error
	switch what {
	case "begin":
		err = c.BeginMove(1711, from, to)
		fakes[1].Do("CLUSTER", "SETSLOT", "1711", "IMPORTING", fakes[0].Cluster().ID)
		fakes[0].Do("CLUSTER", "SETSLOT", "1711", "MIGRATING", fakes[1].Cluster().ID)
	case "move":
		_, err = c.MoveKeys(1711, from, to, 100)
		fakes[0].MoveKeys(1711, fakes[1], 100)
	case "end":
		err = c.EndMove(1711, to)
		for _, i := range []int{1, 0, 2} {
			if got := fakes[i].Do("CLUSTER", "SETSLOT", "1711", "NODE", fakes[1].Cluster().ID); got != fakeredis.Status("OK") {
				t.Errorf("SETSLOT NODE at %d = %v", i, got)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
