package simulation

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// shardTimes are the times of a cluster.
var shardTimes = times{calm: 60 * time.Second, brief: 4 * time.Second, settle: 40 * time.Second, undo: 40 * time.Second, renew: 40 * time.Second}

const (
	shardCount = 3
	// shardWarmUp is how long replicas take to have the data.
	shardWarmUp = 4 * time.Second
)

// shards is a cluster: three masters and a replica of each, in the beginning. A shard is a master with its successors. A former
// master that has lost its last slot to a different shard becomes a replica there.
type shards struct {
	world   *world // constant, like the following
	network *fakeredis.Network
	dice    *dice
	servers []*fakeredis.Server
	addrs   []string
	timeout time.Duration
	partial bool

	mu        sync.Mutex                 // guards the following; no server's mutex is taken under mu
	owner     [fakeredis.SlotCount]int   // the node with a slot by the largest epoch
	epoch     [fakeredis.SlotCount]int64 // of that
	masters   [shardCount]int            // the last node of each shard to become its master
	reigns    [shardCount]int64          // their epochs
	uneven    time.Time                  // the last time a master did not have exactly a single replica with the data
	serving   []int                      // the masters, and further nodes with slots
	shard     []int                      // by node: the last shard as its master
	follows   []string                   // by node: the node's master
	moves     map[int]*move              // by slot, the last of each
	sound     []bool                     // the nodes with all the data since their start
	away      []time.Time                // by node: earlier grants may be unknown to the node
	lagged    map[string]time.Duration   // the extra delay to these addresses
	blocked   map[[2]string]int          // how many faults block a way
	jitter    time.Duration
	failovers int
	moved     int
	fixed     int // slots in need of an operator
}

// move is the migration of a slot between shards.
type move struct {
	slot, from, to int
	active         bool
	broken         bool  // a node that took part has been replaced, and nobody has seen to the slot yet
	offset         int64 // of the target's replication, behind the moved keys
	acked          bool  // the target's replica has the moved keys
	ended          time.Time
}

func newShards(w *world) *shards {
	d := newDice(w.seed, "shards")
	g := &shards{
		world: w, dice: d, lagged: map[string]time.Duration{}, moves: map[int]*move{}, blocked: map[[2]string]int{},
		shard: []int{0, 1, 2, 0, 1, 2}, follows: make([]string, 2*shardCount),
		sound: make([]bool, 2*shardCount), away: make([]time.Time, 2*shardCount), masters: [shardCount]int{0, 1, 2},
		jitter:  pick(d, []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}),
		timeout: pick(d, []time.Duration{time.Second, 2 * time.Second}), partial: d.oneIn(2),
	}
	o := fakeredis.ClusterOptions{Timeout: g.timeout, Partial: g.partial, Chance: d.upTo}
	for i := range 2 * shardCount {
		node := fakeredis.ClusterNode{Addr: fmt.Sprintf("10.0.0.%d:6379", i+1), Master: i - shardCount}
		if i < shardCount {
			node.Master, node.First, node.Last = -1, i*fakeredis.SlotCount/shardCount, (i+1)*fakeredis.SlotCount/shardCount-1
		}
		o.Nodes = append(o.Nodes, node)
		g.addrs = append(g.addrs, node.Addr)
	}
	o.Claimed = g.claimed
	g.network = fakeredis.NewNetwork(g.delay)
	for i := range o.Nodes {
		s := fakeredis.NewClusterNode(o, i)
		g.network.Join(g.addrs[i], s)
		g.servers = append(g.servers, s)
	}
	return g
}

// delay is the time of a message between two nodes.
func (g *shards) delay(_, to string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.world.latency + g.dice.upTo(g.jitter) + g.lagged[to]
}

// dial reaches a node without any network.
func (g *shards) dial(ctx context.Context, addr string) (net.Conn, error) {
	return g.servers[slices.Index(g.addrs, addr)].Dial(ctx, "tcp", addr)
}

// open opens the client of a process, and retries until a node answers.
func (g *shards) open(d *dice, node conn.Config) *cluster.Cluster {
	cfg := cluster.Config{Addrs: g.addrs[d.n(len(g.addrs)):], Node: node, RefreshInterval: pick(d, []time.Duration{0, 5 * time.Second, -1})}
	for {
		c, err := cluster.Open(context.Background(), cfg)
		if err == nil {
			return c
		}
		g.world.history.add("", "", "a new process finds no cluster: %v", err)
	}
}

// begin waits until the replicas have the data.
func (g *shards) begin() {
	if g == nil {
		return
	}
	g.world.history.add("", "", "a cluster: timeout %v, jitter %v, full coverage %v", g.timeout, g.jitter, !g.partial)
	time.Sleep(shardWarmUp)
	g.look()
}

// end judges the state of the nodes, and ends their work.
func (g *shards) end() {
	if g == nil {
		return
	}
	time.Sleep(time.Second)
	g.world.setClocks()
	for i, s := range g.servers {
		master := slices.Index(g.addrs, s.Replication().Master)
		if master < 0 {
			continue
		}
		got, want := strings.Join(s.Dump(), "\n"), strings.Join(g.servers[master].Dump(), "\n")
		if got != want {
			g.world.violate(nil, "s%d has\n%s\nand its master\n%s\n%s", i, got, want, g.views())
		}
	}
	g.network.Rest()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.world.report.Events["failovers"] += g.failovers
	g.world.report.Events["slots moved"] += g.moved
	g.world.report.Events["slots repaired"] += g.fixed
}

// claimed notes a master's claims. It is called inside a server.
func (g *shards) claimed(node, replaced int, epoch int64, has func(slot int) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if replaced >= 0 && epoch > g.reigns[g.shard[replaced]] {
		k := g.shard[replaced]
		g.shard[node], g.masters[k], g.reigns[k] = k, node, epoch
		g.promotedLocked(k, node, replaced, has)
		for _, o := range g.world.objects {
			if slot := cluster.Slot(o.name); has(slot) && g.owner[slot] != replaced { // a moved slot, and the node has not heard of the move
				o.lost(slotOpen)
			}
		}
	}
	for _, slot := range sortedSlots(g.moves) {
		if m := g.moves[slot]; !m.active && g.owner[slot] == node && !has(slot) { // a node that has not heard of the move has said so
			g.openLocked(m)
		}
	}
	for slot := range g.owner {
		if epoch >= g.epoch[slot] && has(slot) {
			g.owner[slot], g.epoch[slot] = node, epoch
		}
	}
	g.serving = slices.Concat(g.masters[:], g.owner[:])
	slices.Sort(g.serving)
	g.serving = slices.Clone(slices.Compact(g.serving))
}

// promotedLocked notes a new master of a shard. The master may miss grants of the time of its absence.
func (g *shards) promotedLocked(k, node, replaced int, has func(slot int) bool) {
	w := g.world
	w.history.add(fmt.Sprint("s", node), "", "is the master of shard %d; it was away until %v", k, w.since(g.away[node]))
	g.failovers++
	for _, o := range w.objects {
		if by := g.servers[node].Ahead() - g.servers[replaced].Ahead(); by != 0 && has(cluster.Slot(o.name)) {
			o.jumped(by)
		}
		switch {
		case o.family == countdown:
			o.lost(unacknowledged)
		case !has(cluster.Slot(o.name)):
		case o.family == semaphore:
			o.lost(unacknowledged)
		case !g.away[node].IsZero():
			o.lostBefore(away, g.away[node])
		}
		o.changesLost()
	}
	for _, slot := range sortedSlots(g.moves) {
		m := g.moves[slot]
		if !(m.active && (k == m.to || k == m.from)) && !(k == m.to && !m.acked) {
			continue
		}
		m.broken = m.active
		g.openLocked(m)
	}
}

func sortedSlots(m map[int]*move) (list []int) {
	for slot := range m {
		list = append(list, slot)
	}
	slices.Sort(list)
	return list
}

// openLocked notes that keys of a slot may be in the wrong place.
func (g *shards) openLocked(m *move) {
	for _, o := range g.world.objects {
		if o.family == countdown || cluster.Slot(o.name) == m.slot {
			o.lostAgain(slotOpen)
		}
	}
}

// moving reports whether a slot has been moving at any time since: the slot of an object, or any slot for a latch, whose keys
// are in several slots.
func (g *shards) moving(since time.Time, objects ...*object) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for slot, m := range g.moves {
		ofSlot := func(o *object) bool { return o.family == countdown || slot == cluster.Slot(o.name) }
		if (m.active || !m.ended.Before(since)) && slices.ContainsFunc(objects, ofSlot) {
			return true
		}
	}
	return false
}

// at is the node with the truth about a key: the node with its slot, or the target of the moving slot.
func (g *shards) at(key string) *fakeredis.Server {
	slot := cluster.Slot(key)
	g.mu.Lock()
	owner, to := g.servers[g.owner[slot]], (*fakeredis.Server)(nil)
	if m := g.moves[slot]; m != nil && m.active {
		to = g.servers[g.masters[m.to]]
	}
	g.mu.Unlock()
	if to != nil && to != owner && owner.Do("EXISTS", key) == any(int64(0)) && to.Do("EXISTS", key) == any(int64(1)) {
		return to
	}
	return owner
}

// all are the masters of the shards, and further nodes with slots.
func (g *shards) all() (masters []*fakeredis.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.serving {
		masters = append(masters, g.servers[i])
	}
	return masters
}

// serves reports whether a node may have the truth about a key. It may be called inside the node.
func (g *shards) serves(s *fakeredis.Server, key string) bool {
	slot := cluster.Slot(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.moves[slot]
	return g.servers[g.owner[slot]] == s || m != nil && m.active && g.servers[g.masters[m.to]] == s
}

// misled reports whether a running master believes in a slot that belongs to a different node.
func (g *shards) misled() bool {
	for i, s := range g.servers {
		r := s.Replication()
		if r.Master != "" || !r.Running {
			continue
		}
		v := s.Cluster()
		g.mu.Lock()
		for slot, owner := range g.owner {
			if owner != i && v.Owner(slot) == i {
				g.mu.Unlock()
				return true
			}
		}
		g.mu.Unlock()
	}
	return false
}

// look notes the replicas that need not acknowledge, and open slots.
func (g *shards) look() {
	if g == nil {
		return
	}
	masters, excluded := g.all(), map[int]bool{}
	for i, s := range g.servers {
		if !s.Replication().Running {
			continue
		}
		for _, j := range s.Failing() {
			if excluded[j] = true; i != j && slices.Contains(masters, g.servers[j]) {
				g.disowned(j)
			}
		}
	}
	for _, s := range masters {
		for _, addr := range s.Replication().Syncing {
			excluded[slices.Index(g.addrs, addr)] = true
		}
	}
	for i, s := range g.servers {
		g.lookAt(i, s.Replication(), slices.Contains(masters, s), excluded[i])
	}
	g.lookAtMoves()
	linked := map[string]int{}
	for _, s := range g.servers {
		if r := s.Replication(); r.Linked {
			linked[r.Master]++
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.serving {
		if linked[g.addrs[i]] != 1 {
			g.uneven = time.Now()
		}
	}
}

// changedSince reports whether a master has had no replica since, or several: a slot moving between such masters, and a new
// replica, make acknowledgements late.
func (g *shards) changedSince(since time.Time) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.uneven.Before(since.Add(-time.Second)) // not looked at all the time
}

// hesitates reports whether the object's lock may stay free, or be acquired in vain: its slot has come to a master with
// unexpected replicas, and clients wait for acknowledgements.
func (g *shards) hesitates(o *object) bool {
	const hesitation = 8 * time.Second // three missing acknowledgements, the first under way, and a wait for each
	since := time.Now().Add(-hesitation)
	return g.changedSince(since) && g.moving(since, o)
}

func (g *shards) lookAt(i int, r fakeredis.Replication, master, excluded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case r.Down, r.Master != g.follows[i] && !master:
		g.sound[i] = false
	case master || r.Linked && slices.Contains(g.masters[:], slices.Index(g.addrs, r.Master)):
		g.sound[i] = true
	}
	g.follows[i] = r.Master
	if !master && (excluded || !g.sound[i]) {
		g.away[i] = time.Now().Add(witnessAge)
	}
}

// disowned notes that a node takes a master for down: the node may miss later grants of the former master after the return.
func (g *shards) disowned(node int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.world.objects {
		if g.owner[cluster.Slot(o.name)] == node {
			o.lostBefore(away, time.Now().Add(witnessAge))
		}
	}
}

// lookAtMoves finds out whether all replicas have the moved keys.
func (g *shards) lookAtMoves() {
	has := make([]int64, len(g.servers)) // by master: the smallest offset of its replicas; 0: none has the data
	for _, s := range g.servers {
		r := s.Replication()
		if m := slices.Index(g.addrs, r.Master); m >= 0 && r.Linked && (has[m] == 0 || r.Offset < has[m]) {
			has[m] = r.Offset
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, slot := range sortedSlots(g.moves) {
		m := g.moves[slot]
		m.acked = m.acked || has[g.masters[m.to]] >= m.offset
		if m.broken {
			g.openLocked(m)
		}
	}
}

// views is the belief of each node, for a violation.
func (g *shards) views() string {
	text := ""
	for i, s := range g.servers {
		v, r := s.Cluster(), s.Replication()
		text += fmt.Sprintf("s%d: ok %v, master %d, epoch %d, failing %v, follows %q, linked %v; ", i, v.OK, v.Master, v.Epoch, s.Failing(), r.Master, r.Linked)
		for _, slot := range sortedSlots(g.moves) {
			text += fmt.Sprintf("%d of s%d; ", slot, v.Owner(slot))
		}
	}
	return text
}
