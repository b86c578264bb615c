package fakeredis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// group is a master, two replicas and three sentinels.
type group struct {
	network            *fakeredis.Network
	servers, sentinels []*fakeredis.Server
	addrs, watchers    []string
}

func newGroup() *group {
	g := &group{network: fakeredis.NewNetwork(func(_, _ string) time.Duration { return time.Millisecond })}
	for i := range 3 {
		g.addrs = append(g.addrs, fmt.Sprintf("10.0.0.%d:6379", i+1))
		g.watchers = append(g.watchers, fmt.Sprintf("10.1.0.%d:26379", i+1))
	}
	for _, addr := range g.addrs {
		s := fakeredis.New()
		g.network.Join(addr, s)
		g.servers = append(g.servers, s)
	}
	for i, addr := range g.watchers {
		chance := rand.New(rand.NewPCG(uint64(i), 0))
		s := fakeredis.NewSentinel(fakeredis.Watch{
			Name: "prime", Master: g.addrs[0], Servers: g.addrs, Sentinels: g.watchers, Quorum: 2, DownAfter: time.Second,
			Failover: 5 * time.Second, Chance: func(most time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(most))) },
		})
		g.network.Join(addr, s)
		g.sentinels = append(g.sentinels, s)
	}
	for _, s := range g.servers[1:] {
		s.ReplicaOf(g.addrs[0])
	}
	return g
}

func (g *group) close() {
	for _, s := range append(g.servers, g.sentinels...) {
		s.Close()
	}
}

// master is the index of the server that all sentinels take for the master.
func (g *group) master(t *testing.T) int {
	t.Helper()
	named := ""
	for _, s := range g.sentinels {
		text := fmt.Sprint(s.Do("SENTINEL", "get-master-addr-by-name", "prime"))
		if named != "" && named != text {
			t.Fatalf("sentinels name %s and %s", named, text)
		}
		named = text
	}
	for i, addr := range g.addrs {
		if strings.Contains(named, strings.TrimSuffix(addr, ":6379")) {
			return i
		}
	}
	t.Fatalf("sentinels name %s", named)
	return 0
}

func (g *group) has(t *testing.T, key, value string, servers ...int) {
	t.Helper()
	for i, s := range g.servers {
		want := any(nil)
		for _, j := range servers {
			if i == j {
				want = value
			}
		}
		if got := s.Do("GET", key); got != want {
			t.Errorf("server %d: %s = %v, want %v", i, key, got, want)
		}
	}
}

func inGroup(t *testing.T, fn func(t *testing.T, g *group)) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		defer g.close()
		time.Sleep(15 * time.Second)
		fn(t, g)
	})
}

// Replicas get what the master has, a while later, and refuse to be written to.
func TestReplication(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		g.servers[0].Do("SET", "a", "1")
		g.has(t, "a", "1", 0)
		time.Sleep(2 * time.Millisecond)
		g.has(t, "a", "1", 0, 1, 2)
		if got := g.servers[1].Do("SET", "a", "2"); !strings.HasPrefix(fmt.Sprint(got), "READONLY") {
			t.Errorf("SET at a replica = %v", got)
		}
		g.network.Block(g.addrs[0], g.addrs[1], true)
		g.servers[0].Do("SET", "a", "3")
		time.Sleep(time.Second)
		if got := g.servers[1].Do("GET", "a"); got != any("1") {
			t.Errorf("behind a block: %v", got)
		}
		g.network.Block(g.addrs[0], g.addrs[1], false)
		g.has(t, "a", "3", 0, 1, 2)
	})
}

// A master that hangs is replaced. What it alone has is dropped when it follows the new one, until when it goes on as a master.
func TestFailover(t *testing.T) {
	for name, x := range map[string]struct{ lose, back func(g *group) }{
		"hangs": {
			func(g *group) { g.servers[0].Stall(true) },
			func(g *group) { g.servers[0].Stall(false) },
		},
		"dies": {
			func(g *group) { g.servers[0].Kill() },
			func(g *group) { g.servers[0].Revive(true) },
		},
		"is cut off": {
			func(g *group) { g.block(0, true) },
			func(g *group) { g.block(0, false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inGroup(t, func(t *testing.T, g *group) {
				g.servers[0].Do("SET", "both", "1")
				time.Sleep(time.Second)
				x.lose(g)
				time.Sleep(10 * time.Second)
				next := g.master(t)
				if next == 0 {
					t.Fatal("no failover")
				}
				g.has(t, "both", "1", 0, 1, 2)
				g.servers[next].Do("SET", "new", "1")
				x.back(g)
				g.servers[0].Do("SET", "lost", "1")
				if got := g.servers[0].Do("GET", "lost"); got != any("1") {
					t.Errorf("a former master that nobody has told: %v", got)
				}
				time.Sleep(time.Minute)
				g.has(t, "both", "1", 0, 1, 2)
				g.has(t, "new", "1", 0, 1, 2)
				g.has(t, "lost", "1")
				for i, s := range g.servers {
					r := s.Replication()
					if i == next && (r.Master != "" || len(r.Online) != 2) || i != next && (r.Master != g.addrs[next] || !r.Linked) {
						t.Errorf("server %d: %+v", i, r)
					}
				}
			})
		})
	}
}

// A failover ends the connections of the sentinels to the promoted replica. They connect again.
func TestFailoverEndsConnections(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		flags := func() (cut int) {
			for _, s := range g.sentinels {
				for _, replica := range s.Do("SENTINEL", "replicas", "prime").([]any) {
					if strings.Contains(fmt.Sprint(replica), "disconnected") {
						cut++
					}
				}
			}
			return cut
		}
		if n := flags(); n != 0 {
			t.Fatalf("%d connections are cut", n)
		}
		g.sentinels[0].Do("SENTINEL", "failover", "prime")
		most := 0
		for range 200 {
			time.Sleep(10 * time.Millisecond)
			most = max(most, flags())
		}
		time.Sleep(time.Minute)
		if n := flags(); most < len(g.sentinels) || n != 0 || g.master(t) == 0 {
			t.Errorf("%d connections were cut, and %d are; the master is server %d", most, n, g.master(t))
		}
	})
}

// block cuts a server off from all others.
func (g *group) block(i int, on bool) {
	for _, addr := range append(append([]string{}, g.addrs...), g.watchers...) {
		g.network.Block(g.addrs[i], addr, on)
		g.network.Block(addr, g.addrs[i], on)
	}
}

// A lease ends by the clock of the server that has it: from Redis 7.0 on a replica gets the end as a point in time.
func TestReplicaWithItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		defer g.close()
		g.servers[1].Jump(3 * time.Second)
		time.Sleep(5 * time.Second)
		g.servers[0].Do("SET", "key", "1", "PX", "10000")
		time.Sleep(100 * time.Millisecond)
		for i, want := range []int64{9900, 6900, 9900} {
			if left := g.servers[i].Do("PTTL", "key"); left != any(want) {
				t.Errorf("server %d has the key for %v ms, want %d", i, left, want)
			}
		}
		g.servers[1].Jump(-3 * time.Second)
		if left := g.servers[1].Do("PTTL", "key"); left != any(int64(9900)) {
			t.Errorf("with the master's clock server 1 has the key for %v ms, want 9900", left)
		}
		g.servers[2].Jump(-time.Minute)
		time.Sleep(10 * time.Second)
		before := g.servers[2].Do("EXISTS", "key")
		g.servers[0].Do("EXISTS", "key")
		time.Sleep(100 * time.Millisecond)
		if after := g.servers[2].Do("EXISTS", "key"); before != any(int64(1)) || after != any(int64(0)) {
			t.Errorf("a replica whose clock is behind has %v key before its master ends it, and %v after, want 1 and 0", before, after)
		}
	})
}
