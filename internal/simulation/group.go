package simulation

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// The deployments.
const (
	Replicas = "replicas" // a master, two or three replicas, and three sentinels
	Cluster  = "cluster"  // three masters and a replica of each
	Others   = "others"   // a single server, or five
)

// Deployment is the servers of a seed.
func Deployment(seed uint64) string {
	switch seed % 6 {
	case 2, 5:
		return Replicas
	case 0, 3:
		return Cluster
	}
	return Others
}

// groupTimes are the times of a group: a returned former master goes on as a master for 8 s, and sentinels without a recent run
// believe nothing for 30 s, and read INFO every 10 s. As long as they believe a replica to be away, a renewal has to ask them, which a
// short lease in a slow network has no time for: the next renewal, 2 s later at most, and its requests have to follow.
var groupTimes = times{calm: 75 * time.Second, brief: 4 * time.Second, settle: 50 * time.Second, undo: 50 * time.Second, renew: 54 * time.Second}

// warmUp is how long sentinels take to know all replicas.
const warmUp = 12 * time.Second

// masterName is the sentinels' name of the master.
const masterName = "prime"

// group is a master, two replicas, and three sentinels to replace the master. Half of the groups may get a third replica.
type group struct {
	world     *world // constant, like the following
	network   *fakeredis.Network
	dice      *dice
	servers   []*fakeredis.Server
	sentinels []*fakeredis.Server
	addrs     []string // of the servers, then of the sentinels
	nodes     map[string]*fakeredis.Server
	downAfter time.Duration
	spare     *fakeredis.Server // the third replica before it comes, or nil; only for Run's goroutine

	mu        sync.Mutex // guards the following; no server's mutex is taken under mu
	now       int        // the master by the latest configuration
	epoch     int64      // of that
	sound     []bool     // the servers with all the data since their start
	away      []time.Time
	lagged    map[string]time.Duration // the extra delay to these addresses
	jitter    time.Duration
	failovers int
}

const nodesOfAKind = 3

func newGroup(w *world) *group {
	d := newDice(w.seed, "group")
	servers := nodesOfAKind + d.n(2)
	g := &group{
		world: w, dice: d, nodes: map[string]*fakeredis.Server{}, lagged: map[string]time.Duration{},
		sound: make([]bool, servers), away: make([]time.Time, servers),
		jitter:    pick(d, []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}),
		downAfter: pick(d, []time.Duration{500 * time.Millisecond, time.Second, 3 * time.Second}),
	}
	for i := range servers {
		g.addrs = append(g.addrs, fmt.Sprintf("10.0.0.%d:6379", i+1))
	}
	for i := range nodesOfAKind {
		g.addrs = append(g.addrs, fmt.Sprintf("10.1.0.%d:26379", i+1))
	}
	g.network = fakeredis.NewNetwork(g.delay)
	watch := fakeredis.Watch{
		Name: masterName, Master: g.addrs[0], Servers: g.addrs[:nodesOfAKind], Sentinels: g.addrs[servers:],
		Quorum: 2, DownAfter: g.downAfter, Failover: pick(d, []time.Duration{2 * time.Second, 5 * time.Second}), Chance: d.upTo,
	}
	for i, addr := range g.addrs {
		s := fakeredis.New()
		if i < servers {
			g.servers = append(g.servers, s)
		} else {
			s = fakeredis.NewSentinel(watch)
			g.sentinels = append(g.sentinels, s)
		}
		g.network.Join(addr, s)
		g.nodes[addr] = s
	}
	for _, s := range g.servers[1:nodesOfAKind] {
		s.ReplicaOf(g.addrs[0])
	}
	for _, s := range g.servers[nodesOfAKind:] {
		s.Kill()
		g.spare = s
	}
	return g
}

// record makes the history tell the knowledge of replicas at each question.
func (g *group) record() {
	for _, s := range g.servers {
		s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "WAIT" {
				r := s.Replication()
				g.world.history.add(g.name(s), "", "%v at connection %d; replicas: %v, syncing %v, following %q", cmd, cmd.Conn, r.Online, r.Syncing, r.Master)
			}
			return fakeredis.Run()
		})
	}
	for i, s := range g.sentinels {
		s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 1 && cmd.Args[1] == "replicas" {
				addr, epoch := s.Configured()
				g.world.history.add(fmt.Sprint("q", i), "", "asked for replicas: master %s in epoch %d, away %v, %v", addr, epoch, s.Unfit(), s.Do("SENTINEL", "CKQUORUM", masterName))
			}
			return fakeredis.Run()
		})
	}
}

// delay is the time of a message between two nodes.
func (g *group) delay(_, to string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.world.latency + g.dice.upTo(g.jitter) + g.lagged[to]
}

// dial reaches a node without any network.
func (g *group) dial(ctx context.Context, addr string) (net.Conn, error) {
	return g.nodes[addr].Dial(ctx, "tcp", addr)
}

// config is how a client finds the master.
func (g *group) config(d *dice) conn.Sentinel {
	return conn.Sentinel{
		Master: masterName, Addrs: g.addrs[len(g.servers)+d.n(nodesOfAKind):], PollInterval: pick(d, []time.Duration{0, time.Second, -1}),
	}
}

// begin waits until the sentinels know the replicas.
func (g *group) begin() {
	if g == nil {
		return
	}
	g.world.history.add("", "", "a group: down after %v, jitter %v", g.downAfter, g.jitter)
	g.record()
	time.Sleep(warmUp)
	g.look()
}

// end ends the sentinels, whose work is over.
func (g *group) end() {
	if g == nil {
		return
	}
	g.look()
	time.Sleep(time.Second)
	g.world.setClocks()
	g.judgeReplicas()
	g.network.Rest()
	g.world.report.Events["failovers"] = g.failovers
}

// judgeReplicas fails unless all have the same, when nothing is wrong any more.
func (g *group) judgeReplicas() {
	want := strings.Join(g.master().Dump(), "\n")
	for i, s := range g.servers {
		if got := strings.Join(s.Dump(), "\n"); got != want && s != g.spare {
			g.world.violate(nil, "s%d has\n%s\nand the master\n%s", i, got, want)
		}
	}
}

// name is a server's name in the history.
func (g *group) name(s *fakeredis.Server) string {
	if g == nil {
		return "server"
	}
	for i, node := range g.servers {
		if s == node {
			return fmt.Sprint("s", i)
		}
	}
	return "sentinel"
}

// master is the server with the truth: the master in the latest configuration of a sentinel.
func (g *group) master() *fakeredis.Server { return g.servers[g.index()] }

// misledLocked reports whether a former master, without the grants since its replacement, may have answered.
func (w *world) misledLocked() bool {
	switch {
	case w.shards != nil && w.shards.misled():
		w.report.Excused[formerMaster.name]++
		return true
	case w.group == nil:
		return false
	}
	now := w.group.index()
	for i, s := range w.group.servers {
		if r := s.Replication(); i != now && r.Master == "" && r.Running {
			w.report.Excused[formerMaster.name]++
			return true
		}
	}
	return false
}

// notice notes a new master.
func (g *group) notice() {
	if g != nil {
		g.index()
	}
}

func (g *group) index() int {
	named, epoch := "", int64(-1)
	for _, s := range g.sentinels {
		if addr, at := s.Configured(); at > epoch {
			named, epoch = addr, at
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if epoch > g.epoch {
		for i, addr := range g.addrs[:len(g.servers)] {
			if addr == named {
				g.promotedLocked(i, epoch)
			}
		}
	}
	return g.now
}

// serves reports whether the server is the master. It may be called inside the server.
func (g *group) serves(s *fakeredis.Server) bool { return g == nil || g.master() == s }

// promotedLocked notes a new master. The master may miss grants of the time of its absence.
func (g *group) promotedLocked(i int, epoch int64) {
	w := g.world
	w.history.add("s"+fmt.Sprint(i), "", "is the master, in epoch %d, instead of s%d; it was away until %v", epoch, g.now, w.since(g.away[i]))
	if g.now != i {
		g.failovers++
	}
	by := g.servers[i].Ahead() - g.servers[g.now].Ahead()
	g.now, g.epoch = i, epoch
	for _, o := range w.objects {
		if by != 0 {
			o.jumped(by)
		}
		if !g.away[i].IsZero() {
			o.lostBefore(away, g.away[i])
		}
		if o.family == semaphore || o.family == countdown {
			o.lost(unacknowledged)
		}
		o.changesLost()
	}
}

// witnessAge is how old another server's word about replicas may be when a lock is granted.
const witnessAge = 500 * time.Millisecond

// look notes the replicas that need not acknowledge: replicas that sentinels would not choose, replicas receiving all the data,
// and replicas restarted since.
func (g *group) look() {
	if g == nil {
		return
	}
	now := g.index()
	m := g.servers[now].Replication()
	if m.Master != "" {
		g.disowned(outdatedSentinel)
	}
	excluded := map[string]bool{}
	for _, addr := range m.Syncing {
		excluded[addr] = true
	}
	for _, s := range g.sentinels {
		unfit := s.Unfit()
		if addr, _ := s.Configured(); addr != g.addrs[now] && slices.Contains(unfit, g.addrs[now]) {
			g.disowned(away)
		}
		for _, addr := range unfit {
			excluded[addr] = true
		}
	}
	for i, s := range g.servers {
		r := s.Replication()
		g.mu.Lock()
		switch {
		case r.Down:
			g.sound[i] = false
		case i == now || r.Linked && r.Master == g.addrs[now]:
			g.sound[i] = true
		}
		if i != now && (excluded[g.addrs[i]] || !g.sound[i]) {
			g.away[i] = time.Now().Add(witnessAge)
		}
		g.mu.Unlock()
	}
}

// disowned notes that the master is a replica to a sentinel that has not heard of the failover. If the replica is down to the sentinel, it
// may miss grants made meanwhile by the servers left; if the sentinel has made it a replica, it loses its data.
func (g *group) disowned(why *exclusion) {
	for _, o := range g.world.objects {
		o.lostBefore(why, time.Now().Add(witnessAge))
	}
}
