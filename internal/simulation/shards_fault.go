package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// shardFaults are the faults of a cluster.
func shardFaults() []fault {
	of := func(which func(g *shards, d *dice) int, what func(g *shards, d *dice, i int)) func(w *world, d *dice) {
		return func(w *world, d *dice) { what(w.shards, d, which(w.shards, d)) }
	}
	master := func(g *shards, d *dice) int { return g.masterOf(d.n(shardCount)) }
	replica := func(g *shards, d *dice) int { return g.replicaOf(d, d.n(shardCount)) }
	node := func(g *shards, d *dice) int { return d.n(len(g.servers)) }
	return []fault{
		{"failover", 4, false, of(replica, (*shards).failover)},
		{"master hangs", 5, false, of(master, (*shards).hang)},
		{"master dies", 3, false, of(master, func(g *shards, d *dice, i int) { g.die(d, i, true) })},
		{"master dies without data", 1, true, of(master, func(g *shards, d *dice, i int) { g.die(d, i, false) })},
		{"master cut off", 4, false, of(master, (*shards).cut)},
		{"replica hangs", 3, false, of(replica, (*shards).hang)},
		{"replica dies", 2, false, of(replica, func(g *shards, d *dice, i int) { g.die(d, i, true) })},
		{"replica dies without data", 2, false, of(replica, func(g *shards, d *dice, i int) { g.die(d, i, false) })},
		{"replica cut off", 3, false, of(replica, (*shards).cut)},
		{"replica moves", 4, false, of(replica, (*shards).moveReplica)},
		{"lag", 4, false, of(node, (*shards).lag)},
		{"slot moves", 12, false, (*world).moveFault},
		{"master stops until it is replaced", 5, false, of(master, func(g *shards, d *dice, i int) {
			g.world.stopUntilReplaced(d, g.servers[i], g.servers)
		})},
		{"clients cut off", 4, false, (*world).apartFault},
	}
}

func (g *shards) masterOf(k int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.masters[k]
}

// replicaOf is a replica of a shard, or any node without a replica.
func (g *shards) replicaOf(d *dice, k int) int {
	var all []int
	for i, s := range g.servers {
		if s.Replication().Master == g.addrs[g.masterOf(k)] {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return d.n(len(g.servers))
	}
	return pick(d, all)
}

// failover makes a replica with the data replace its serving master.
func (g *shards) failover(d *dice, i int) {
	if !g.servers[i].Replication().Linked {
		return
	}
	how := "FORCE"
	if d.oneIn(3) && g.agrees(i) {
		how = "TAKEOVER"
	}
	g.world.history.add("fault", "", "s%d: CLUSTER FAILOVER %s", i, how)
	g.servers[i].Do("CLUSTER", "FAILOVER", how)
}

// moveReplica makes a replica follow the master of any shard.
func (g *shards) moveReplica(d *dice, i int) {
	master := g.servers[g.masterOf(d.n(shardCount))]
	id, _ := master.Do("CLUSTER", "MYID").(string)
	g.world.history.add("fault", "", "s%d: CLUSTER REPLICATE %s: %v", i, g.world.nameOf(master), g.servers[i].Do("CLUSTER", "REPLICATE", id))
}

// agrees reports whether a node knows the owner of every slot: a node without the knowledge must not take over without a vote.
func (g *shards) agrees(i int) bool {
	v := g.servers[i].Cluster()
	g.mu.Lock()
	defer g.mu.Unlock()
	for slot, owner := range g.owner {
		if v.Owner(slot) != owner {
			return false
		}
	}
	return true
}

// outage is for how long a node does nothing: often for longer than it takes to be replaced.
func (g *shards) outage(d *dice) time.Duration {
	return d.upTo(pick(d, []time.Duration{g.timeout, 2*g.timeout + 2*time.Second, 20 * time.Second}))
}

func (g *shards) hang(d *dice, i int) {
	w, s := g.world, g.servers[i]
	w.history.add("fault", "", "s%d hangs", i)
	w.during(g.outage(d), func() { s.Stall(true) }, func() { s.Stall(false) })
}

// die makes a node die and come back with its data or without.
func (g *shards) die(d *dice, i int, keep bool) {
	w, s := g.world, g.servers[i]
	if s.Replication().Down {
		return
	}
	w.history.add("fault", "", "s%d dies (what it has is kept: %v)", i, keep)
	w.during(g.outage(d), s.Kill, func() {
		if !keep && slices.Contains(g.all(), s) {
			w.lost(dataLost, w.objects...)
		} else if !keep {
			g.lookAt(i, fakeredis.Replication{Down: true}, false, true) // it may be promoted at once
		}
		s.Revive(keep)
		w.history.add("fault", "", "s%d is back", i)
	})
}

// cut cuts a node off from some or all peers, in either direction or both. Clients still reach the node.
func (g *shards) cut(d *dice, i int) {
	some, way := d.n(3), d.n(4)
	var others []string
	for j, addr := range g.addrs {
		if j != i && (some == 0 || d.oneIn(2)) {
			others = append(others, addr)
		}
	}
	w := g.world
	w.history.add("fault", "", "s%d is cut off from %v (directions %d)", i, others, way)
	set := func(on bool) {
		for _, addr := range others {
			if way != 1 {
				g.block(g.addrs[i], addr, on)
			}
			if way != 2 {
				g.block(addr, g.addrs[i], on)
			}
		}
	}
	w.during(g.outage(d), func() { set(true) }, func() { set(false) })
}

// block begins or ends a block of a path: the path is free after the end of all blocks.
func (g *shards) block(from, to string, on bool) {
	g.mu.Lock()
	if on {
		g.blocked[[2]string{from, to}]++
	} else {
		g.blocked[[2]string{from, to}]--
	}
	n := g.blocked[[2]string{from, to}]
	g.mu.Unlock()
	g.network.Block(from, to, n > 0)
}

// lag has everything arrive late at a node.
func (g *shards) lag(d *dice, i int) {
	by := d.upTo(pick(d, []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}))
	set := func(by time.Duration) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lagged[g.addrs[i]] = by
	}
	g.world.during(g.outage(d), func() { set(by) }, func() { set(0) })
}

// moveFault moves the slot of an object to a different shard: at once, key by key, or with keys on both sides for longer than a
// lease.
func (w *world) moveFault(d *dice) {
	g, o := w.shards, pick(d, w.objects)
	slot := cluster.Slot(o.name)
	if o.family == countdown {
		w.mu.Lock()
		if n := len(o.rounds); n > 0 {
			slot = cluster.Slot(o.rounds[n-1].name)
		}
		w.mu.Unlock()
	}
	if !g.agreed(slot) {
		return // as redis-cli: otherwise two nodes could name each other as the owner for ever
	}
	g.mu.Lock()
	m := &move{slot: slot, from: g.shard[g.owner[slot]], active: true}
	m.to = (m.from + 1 + d.n(shardCount-1)) % shardCount
	if before := g.moves[slot]; before != nil && before.active {
		g.mu.Unlock()
		return
	}
	g.moves[slot] = m
	g.mu.Unlock()
	most := pick(d, []time.Duration{0, time.Second, 2 * longestLease})
	w.history.add("fault", o.name, "slot %d moves from shard %d to shard %d, within %v", slot, m.from, m.to, most)
	g.clear(slot, m.to)
	w.wg.Go(func() { g.migrate(d, m, d.upTo(most)) })
}

// clear deletes the keys of a foreign slot from the master of a shard: a promotion may have brought back moved keys. A server
// refuses to import onto such keys (BUSYKEY), and an operator deletes the keys.
func (g *shards) clear(slot, shard int) {
	to := g.servers[g.masterOf(shard)]
	keys, _ := to.Do("CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "10000").([]any)
	for _, key := range keys {
		to.Do("DEL", fmt.Sprint(key))
	}
}

const (
	moveAgain  = 300 * time.Millisecond // between two attempts to give a slot away
	moveTries  = 40                     // a failure is harmless
	closeTries = 12                     // after so many the slot is closed, with keys on both sides
)

// agreed reports whether all running nodes know the owner of a slot, and the largest epoch.
func (g *shards) agreed(slot int) bool {
	var current []int64
	for _, s := range g.servers {
		if !s.Replication().Running {
			continue
		}
		v := s.Cluster()
		g.mu.Lock()
		owner := g.owner[slot]
		g.mu.Unlock()
		if current = append(current, v.Current); v.Owner(slot) != owner {
			return false
		}
	}
	return len(current) > 0 && slices.Min(current) == slices.Max(current)
}

// migrate moves some keys, waits, and then finishes the move of the slot.
func (g *shards) migrate(d *dice, m *move, wait time.Duration) {
	w := g.world
	if g.opened(m) {
		g.moveKeys(m, d.n(4))
		over := w.healed
		if !w.calmStart().IsZero() {
			over = w.over
		}
		select {
		case <-time.After(wait):
		case <-over:
		}
	}
	for late := 0; !g.settled(m, late); late++ {
		time.Sleep(moveAgain)
		if calm := w.calmStart(); !calm.IsZero() && time.Since(calm) > w.times.settle && late > moveTries {
			w.violate(nil, "slot %d has not arrived: %s", m.slot, g.views())
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.active, m.broken, m.ended = false, false, time.Now()
	g.moved++
	w.history.add("fault", "", "slot %d has moved", m.slot)
}

// ends are the nodes of moving slots.
func (g *shards) ends(m *move) (from, to *fakeredis.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.servers[g.owner[m.slot]], g.servers[g.masters[m.to]]
}

// opened opens a slot at both ends.
func (g *shards) opened(m *move) bool {
	from, to := g.ends(m)
	if !from.Replication().Running || !to.Replication().Running {
		return false
	}
	slot := fmt.Sprint(m.slot)
	taken := to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Cluster().ID)
	given := from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Cluster().ID)
	if taken == fakeredis.Status("OK") && given == taken {
		return true
	}
	g.world.history.add("fault", "", "slot %s does not open: %v at %s, %v at %s", slot, taken, g.world.nameOf(to), given, g.world.nameOf(from))
	return false
}

// moveKeys moves some keys.
func (g *shards) moveKeys(m *move, n int) bool {
	from, to := g.ends(m)
	if from == to {
		return true
	}
	keys, ok := from.MoveKeys(m.slot, to, n)
	g.world.history.add("fault", "", "slot %d: %q move from %s to %s, %v", m.slot, keys, g.world.nameOf(from), g.world.nameOf(to), ok)
	if len(keys) > 0 {
		offset := to.Replication().Offset
		g.judgedAnew(m.slot, to.Ahead()-from.Ahead())
		g.mu.Lock()
		defer g.mu.Unlock()
		m.offset, m.acked = offset, false
	}
	return ok
}

// judgedAnew notes that a slot's keys have come to a server with another clock: where a value says when a lease ends, the lease
// is longer or shorter by the difference.
func (g *shards) judgedAnew(slot int, by time.Duration) {
	for _, o := range g.world.objects {
		if by != 0 && cluster.Slot(o.name) == slot && (o.family == faster || o.family == permits) {
			o.jumped(by)
		}
	}
}

// settled gives a slot to its new master, and reports whether all nodes agree.
func (g *shards) settled(m *move, tries int) bool {
	from, to := g.ends(m)
	slot, id := fmt.Sprint(m.slot), to.Cluster().ID
	if from != to {
		if !g.agreed(m.slot) {
			if tries > closeTries { // nodes with an open slot do not hear of its owner
				g.mu.Lock()
				m.broken = true
				g.openLocked(m)
				g.mu.Unlock()
				from.Do("CLUSTER", "SETSLOT", slot, "STABLE")
				to.Do("CLUSTER", "SETSLOT", slot, "STABLE")
			}
			return false
		}
		if !g.opened(m) || !g.moveKeys(m, 1000) {
			return false
		}
		for _, s := range []*fakeredis.Server{to, from} {
			if reply := s.Do("CLUSTER", "SETSLOT", slot, "NODE", id); reply != fakeredis.Status("OK") {
				g.world.history.add("fault", "", "SETSLOT %s NODE = %v", slot, reply)
				return false
			}
		}
	}
	if !to.Replication().Running {
		return false
	}
	for _, s := range g.all() {
		if s != to && s.Replication().Running {
			s.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
		}
	}
	return slices.Index(g.servers, to) == to.Cluster().Owner(m.slot)
}

const (
	repairAfter = 10 * time.Second // without faults
	repairEvery = time.Second
	repairs     = 15
)

// repair does an operator's work for nodes in lasting disagreement: a master that has moved a slot, and was replaced before all
// nodes had heard of the move, leaves a slot claimed by nobody or by two nodes.
func (g *shards) repair() {
	time.Sleep(repairAfter)
	for range repairs {
		g.mu.Lock()
		owner := g.owner
		for k, m := range g.masters {
			if at := slices.Index(g.addrs, g.servers[m].Replication().Master); at >= 0 {
				g.masters[k] = at
			}
		}
		g.mu.Unlock()
		var views []*fakeredis.Cluster
		heirs := make([]int, len(g.servers))
		for i, s := range g.servers {
			views = append(views, s.Cluster())
			if heirs[i] = i; views[i].Master >= 0 {
				heirs[i] = views[i].Master
			}
		}
		for slot, node := range owner {
			if slices.ContainsFunc(views, func(v *fakeredis.Cluster) bool { return v.Owner(slot) != heirs[node] }) {
				g.fix(slot, heirs[node])
			}
		}
		time.Sleep(repairEvery)
	}
	for _, o := range g.world.objects {
		if (o.family == permits || o.family == semaphore) && (o.lostBy(slotOpen) || o.lostBy(dataLost)) {
			o.lost(slotOpen) // the rest is unknown: begin again
			g.world.delete(o)
		}
	}
	g.world.setup()
}

// fix gives a slot to a node for good. Its keys may be elsewhere.
func (g *shards) fix(slot, node int) {
	g.world.history.add("fault", "", "slot %d is given to s%d, as nodes disagree", slot, node)
	for _, s := range g.servers {
		s.Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "STABLE") // an importing node believes nobody
	}
	g.servers[node].ClaimSlot(slot)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fixed++
	g.openLocked(&move{slot: slot})
}
