package simulation

import (
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// faults are the faults of a master with replicas and sentinels.
func (g *group) faults() []fault {
	of := func(which func(g *group, d *dice) int, what func(g *group, d *dice, i int)) func(w *world, d *dice) {
		return func(w *world, d *dice) { what(w.group, d, which(w.group, d)) }
	}
	master := func(g *group, _ *dice) int { return g.index() }
	replica := func(g *group, d *dice) int { return (g.index() + 1 + d.n(len(g.servers)-1)) % len(g.servers) }
	server := func(g *group, d *dice) int { return d.n(len(g.servers)) }
	sentinel := func(g *group, d *dice) int { return len(g.servers) + d.n(nodesOfAKind) }
	comes := 0
	if g.spare != nil {
		comes = 12
	}
	return []fault{
		{"replica comes", comes, false, func(*world, *dice) { g.grow() }},
		{"failover", 4, false, (*world).failoverFault},
		{"master hangs", 5, false, of(master, (*group).hang)},
		{"master dies", 3, false, of(master, func(g *group, d *dice, i int) { g.reboot(d, i) })},
		{"master dies without data", 1, true, of(master, (*group).die)},
		{"master cut off", 4, false, of(master, (*group).cut)},
		{"replica hangs", 3, false, of(replica, (*group).hang)},
		{"replica dies", 2, false, of(replica, func(g *group, d *dice, i int) { g.reboot(d, i) })},
		{"replica dies without data", 2, false, of(replica, (*group).die)},
		{"replica cut off", 3, false, of(replica, (*group).cut)},
		{"split", 4, false, func(w *world, d *dice) { w.group.split(d) }},
		{"lag", 4, false, of(server, (*group).lag)},
		{"sentinel hangs", 3, false, of(sentinel, (*group).hang)},
		{"sentinel dies", 3, false, of(sentinel, func(g *group, d *dice, i int) { g.reboot(d, i) })},
		{"host dies", 4, false, of(sentinel, func(g *group, d *dice, i int) { g.reboot(d, i, i-len(g.servers)) })},
		{"sentinel cut off", 3, false, of(sentinel, (*group).cut)},
		{"master stops until it is replaced", 5, false, of(master, func(g *group, d *dice, i int) {
			g.world.stopUntilReplaced(d, g.servers[i], g.servers)
		})},
		{"clients cut off", 4, false, (*world).apartFault},
	}
}

// failoverFault makes a sentinel replace a serving master.
func (w *world) failoverFault(d *dice) {
	pick(d, w.group.sentinels).Do("SENTINEL", "FAILOVER", masterName)
}

// grow gives the group its third replica, without data. The sentinels learn of the replica from the master, each within ten seconds.
func (g *group) grow() {
	if s := g.spare; s != nil {
		g.spare = nil
		s.ReplicaOf(g.addrs[g.index()])
		s.Revive(false)
		g.world.report.Events["a third replica"]++
	}
}

// outage is for how long a node does nothing: often for longer than it takes to be replaced.
func (g *group) outage(d *dice) time.Duration {
	return d.upTo(pick(d, []time.Duration{g.downAfter, 2*g.downAfter + 2*time.Second, 20 * time.Second}))
}

func (g *group) hang(d *dice, i int) {
	w, s := g.world, g.nodes[g.addrs[i]]
	w.history.add("fault", "", "%s hangs", g.addrs[i])
	w.during(g.outage(d), func() { s.Stall(true) }, func() { s.Stall(false) })
}

// die makes a server die and come back without its data.
func (g *group) die(d *dice, i int) {
	w, s := g.world, g.servers[i]
	if s.Replication().Down {
		return
	}
	w.history.add("fault", "", "%s dies, and loses what it has", g.addrs[i])
	w.during(g.outage(d), s.Kill, func() {
		if g.index() == i {
			w.lost(dataLost, w.objects...)
		} else {
			g.mu.Lock() // it may be promoted at once
			g.sound[i], g.away[i] = false, time.Now().Add(witnessAge)
			g.mu.Unlock()
		}
		s.Revive(false)
		w.history.add("fault", "", "%s is back", g.addrs[i])
	})
}

// reboot makes nodes die and come back at the same time, with what they had.
func (g *group) reboot(d *dice, nodes ...int) {
	w := g.world
	var all []*fakeredis.Server
	for _, i := range nodes {
		if s := g.nodes[g.addrs[i]]; !s.Replication().Down {
			w.history.add("fault", "", "%s dies", g.addrs[i])
			all = append(all, s)
		}
	}
	w.during(g.outage(d), func() {
		for _, s := range all {
			s.Kill()
		}
	}, func() {
		for _, s := range all {
			s.Revive(true)
		}
		w.history.add("fault", "", "%d nodes are back", len(all))
	})
}

// cut cuts a node off from some or all peers, in either direction or both. Clients still reach the node.
func (g *group) cut(d *dice, i int) {
	some, way := d.n(3), d.n(4)
	var others []string
	for j, addr := range g.addrs {
		if j != i && (some == 0 || (j < len(g.servers)) == (some == 1)) {
			others = append(others, addr)
		}
	}
	w := g.world
	w.history.add("fault", "", "%s is cut off from %v (directions %d)", g.addrs[i], others, way)
	set := func(on bool) {
		for _, addr := range others {
			if way != 1 {
				g.network.Block(g.addrs[i], addr, on)
			}
			if way != 2 {
				g.network.Block(addr, g.addrs[i], on)
			}
		}
	}
	w.during(g.outage(d), func() { set(true) }, func() { set(false) })
}

// split divides the nodes in two parts. A client may reach one part only.
func (g *group) split(d *dice) {
	var parts [2][]string
	for _, addr := range g.addrs {
		i := d.n(2)
		parts[i] = append(parts[i], addr)
	}
	w, r := g.world, g.world.route(d)
	reaches := "all"
	if d.oneIn(2) {
		reaches = "the first part"
	}
	w.history.add("fault", "", "%v are cut off from %v; %s reaches %s", parts[0], parts[1], r.name, reaches)
	set := func(on bool) {
		for _, a := range parts[0] {
			for _, b := range parts[1] {
				g.network.Block(a, b, on)
				g.network.Block(b, a, on)
			}
		}
		if reaches != "all" {
			r.set(func() {
				for _, addr := range parts[1] {
					r.apart[addr] = on
				}
			})
		}
	}
	w.during(g.outage(d), func() { set(true) }, func() { set(false) })
}

// lag has everything arrive late at a server.
func (g *group) lag(d *dice, i int) {
	by := d.upTo(pick(d, []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}))
	set := func(by time.Duration) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lagged[g.addrs[i]] = by
	}
	g.world.during(g.outage(d), func() { set(by) }, func() { set(0) })
}

// addrs are the addresses of all nodes for clients.
func (w *world) addrs() []string {
	if w.shards != nil {
		return w.shards.addrs
	}
	return w.group.addrs
}

// apartFault cuts a process off from some of the nodes.
func (w *world) apartFault(d *dice) {
	r := w.route(d)
	var from []string
	for _, addr := range w.addrs() {
		if d.oneIn(2) {
			from = append(from, addr)
		}
	}
	w.history.add("fault", "", "%s is cut off from %v", r.name, from)
	set := func(on bool) {
		r.set(func() {
			for _, addr := range from {
				r.apart[addr] = on
			}
		})
	}
	w.during(long(d), func() { set(true) }, func() { set(false) })
}
