package fakeredis

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

const errNoCluster = Err("ERR This instance has cluster support disabled")

func clusterCommands() []command {
	in := func(run func(x *call, c *cluster) any) func(*call) any {
		return func(x *call) any {
			if x.s.cluster == nil {
				return errNoCluster
			}
			return run(x, x.s.cluster)
		}
	}
	accepted := in(func(*call, *cluster) any { return ok })
	return []command{
		{name: "asking", arity: 1, run: in(asking)},
		{name: "readonly", arity: 1, run: accepted},
		{name: "readwrite", arity: 1, run: accepted},
		{name: "cluster|info", arity: 2, run: in(func(_ *call, c *cluster) any { return verbatim(c.info()) })},
		{name: "cluster|myid", arity: 2, run: in(func(_ *call, c *cluster) any { return c.me().id })},
		{name: "cluster|nodes", arity: 2, run: in(func(_ *call, c *cluster) any { return verbatim(c.lines()) })},
		{name: "cluster|slots", arity: 2, run: in(func(_ *call, c *cluster) any { return c.ranges() })},
		{name: "cluster|keyslot", arity: 3, run: in(func(x *call, _ *cluster) any { return slotOf(x.args[2]) })},
		{name: "cluster|countkeysinslot", arity: 3, run: in(countKeysInSlot)},
		{name: "cluster|getkeysinslot", arity: 4, run: in(keysInSlot)},
		{name: "cluster|setslot", arity: -4, run: in(setSlot)},
		{name: "cluster|delslots", arity: 3, run: in(delSlot)},
		{name: "cluster|failover", arity: -2, run: in(clusterFailover)},
		{name: "cluster|replicate", arity: 3, run: in(replicate)},
	}
}

func asking(x *call, _ *cluster) any {
	x.c.asking = true
	return ok
}

func (c *cluster) info() string {
	state, assigned := "fail", 0
	if c.ok {
		state = "ok"
	}
	for _, owner := range c.owners {
		if owner >= 0 {
			assigned++
		}
	}
	return fmt.Sprintf("cluster_enabled:1\r\ncluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_known_nodes:%d\r\ncluster_size:%d\r\n"+
		"cluster_current_epoch:%d\r\ncluster_my_epoch:%d\r\n", state, assigned, len(c.peers), c.size(), c.epoch, c.peers[c.masterOf(c.self)].config)
}

// lines is the reply to CLUSTER NODES.
func (c *cluster) lines() string {
	var b strings.Builder
	for i, p := range c.peers {
		flags, master := "master", "-"
		if p.master >= 0 {
			flags, master = "slave", c.peers[p.master].id
		}
		switch {
		case i == c.self:
			flags = "myself," + flags
		case p.fail:
			flags += ",fail"
		case p.pfail:
			flags += ",fail?"
		}
		host, port, _ := net.SplitHostPort(p.addr)
		fmt.Fprintf(&b, "%s %s:%s@1%s %s %s 0 %d %d connected", p.id, host, port, port, flags, master, p.heard.UnixMilli(), c.peers[c.masterOf(i)].config)
		for _, r := range c.rangesOf(i) {
			if r[0] == r[1] {
				fmt.Fprintf(&b, " %d", r[0])
			} else {
				fmt.Fprintf(&b, " %d-%d", r[0], r[1])
			}
		}
		if i == c.self {
			for _, slot := range sortedKeys(c.migrating) {
				fmt.Fprintf(&b, " [%d->-%s]", slot, c.peers[c.migrating[slot]].id)
			}
			for _, slot := range sortedKeys(c.importing) {
				fmt.Fprintf(&b, " [%d-<-%s]", slot, c.peers[c.importing[slot]].id)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// rangesOf are the first and last slots of a node's ranges.
func (c *cluster) rangesOf(i int) (list [][2]int) {
	for slot, owner := range c.owners {
		switch last := len(list) - 1; {
		case int(owner) != i:
		case last >= 0 && list[last][1] == slot-1:
			list[last][1] = slot
		default:
			list = append(list, [2]int{slot, slot})
		}
	}
	return list
}

func (c *cluster) place(i int) []any {
	host, port, _ := net.SplitHostPort(c.peers[i].addr)
	n, _ := strconv.Atoi(port)
	return []any{host, n, c.peers[i].id, []any{}}
}

// ranges is the reply to CLUSTER SLOTS.
func (c *cluster) ranges() any {
	type one struct{ first, last, owner int }
	var all []one
	for slot, owner := range c.owners {
		switch last := len(all) - 1; {
		case owner < 0:
		case last >= 0 && all[last].owner == int(owner) && all[last].last == slot-1:
			all[last].last = slot
		default:
			all = append(all, one{slot, slot, int(owner)})
		}
	}
	list := []any{}
	for _, r := range all {
		entry := []any{r.first, r.last, c.place(r.owner)}
		for i, p := range c.peers {
			if p.master == r.owner && !p.fail {
				entry = append(entry, c.place(i))
			}
		}
		list = append(list, entry)
	}
	return list
}

// slot parses the first argument of a command such as CLUSTER COUNTKEYSINSLOT.
func (x *call) slot() (int, any) {
	n, valid := parseInt(x.args[2])
	if !valid || n < 0 || n >= SlotCount {
		return 0, Err("ERR Invalid or out of range slot")
	}
	return int(n), nil
}

func countKeysInSlot(x *call, _ *cluster) any {
	slot, bad := x.slot()
	if bad != nil {
		return Err("ERR Invalid slot")
	}
	return len(x.s.slotKeys(slot))
}

func keysInSlot(x *call, _ *cluster) any {
	slot, bad := x.slot()
	n, valid := parseInt(x.args[3])
	if bad != nil || !valid || n < 0 {
		return Err("ERR Invalid slot or number of keys")
	}
	keys := x.s.slotKeys(slot)
	return keys[:min(int(n), len(keys))]
}

// setSlot is CLUSTER SETSLOT slot MIGRATING|IMPORTING|NODE id, and STABLE.
func setSlot(x *call, c *cluster) any {
	if !c.isMaster() {
		return Err("ERR Please use SETSLOT only with masters.")
	}
	slot, bad := x.slot()
	if bad != nil {
		return bad
	}
	node := noNode
	if len(x.args) == 5 {
		node = slices.IndexFunc(c.peers, func(p *peer) bool { return p.id == x.args[4] })
	}
	word := strings.ToUpper(x.args[3])
	switch known := len(x.args) == 5; {
	case word == "STABLE" && !known:
		delete(c.migrating, slot)
		delete(c.importing, slot)
		return ok
	case !known || word != "MIGRATING" && word != "IMPORTING" && word != "NODE":
		return Err("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP")
	case word == "MIGRATING" && int(c.owners[slot]) != c.self:
		return Err(fmt.Sprintf("ERR I'm not the owner of hash slot %d", slot))
	case word == "IMPORTING" && int(c.owners[slot]) == c.self:
		return Err(fmt.Sprintf("ERR I'm already the owner of hash slot %d", slot))
	case node < 0 && word == "NODE":
		return Err("ERR Unknown node " + x.args[4])
	case node < 0:
		return Err("ERR I don't know about node " + x.args[4])
	case c.peers[node].master >= 0:
		return Err("ERR Target node is not a master")
	case word == "MIGRATING":
		c.migrating[slot] = node
	case word == "IMPORTING":
		c.importing[slot] = node
	default:
		return c.settle(slot, node)
	}
	return ok
}

// delSlot is CLUSTER DELSLOTS for a single slot.
func delSlot(x *call, c *cluster) any {
	slot, bad := x.slot()
	if bad != nil {
		return bad
	}
	if c.owners[slot] < 0 {
		return Err(fmt.Sprintf("ERR Slot %d is already unassigned", slot))
	}
	c.own(slot, noNode)
	c.changed(noNode)
	c.updateState()
	return ok
}

// settle gives a slot to a node for good.
func (c *cluster) settle(slot, node int) any {
	left := len(c.s.slotKeys(slot))
	if int(c.owners[slot]) == c.self && node != c.self && left > 0 {
		return Err(fmt.Sprintf("ERR Can't assign hashslot %d to a different node while I still hold keys for this hash slot.", slot))
	}
	if left == 0 {
		delete(c.migrating, slot)
	}
	c.own(slot, node)
	if _, importing := c.importing[slot]; importing && node == c.self {
		if most := c.largest(); c.me().config == 0 || c.me().config != most {
			c.epoch++
			c.me().config = c.epoch
		}
		delete(c.importing, slot)
		c.broadcast()
	}
	c.changed(noNode)
	return ok
}

// largest is the largest known epoch.
func (c *cluster) largest() int64 {
	most := c.epoch
	for _, p := range c.peers {
		most = max(most, p.config)
	}
	return most
}

// clusterFailover has the forms without the master's consent.
func clusterFailover(x *call, c *cluster) any {
	switch {
	case c.isMaster():
		return Err("ERR You should send CLUSTER FAILOVER to a replica")
	case len(x.args) == 3 && isAny(x.args[2], "FORCE"):
		c.manual, c.authAt = time.Now().Add(clusterManual), time.Time{}
	case len(x.args) == 3 && isAny(x.args[2], "TAKEOVER"):
		c.epoch++
		c.takeOver(c.epoch)
	default:
		return errStx
	}
	return ok
}

// replicate makes a node without slots and keys, or a replica, follow a master.
func replicate(x *call, c *cluster) any {
	i := slices.IndexFunc(c.peers, func(p *peer) bool { return p.id == x.args[2] })
	switch {
	case i < 0:
		return Err("ERR Unknown node " + x.args[2])
	case i == c.self:
		return Err("ERR Can't replicate myself")
	case c.peers[i].master >= 0:
		return Err("ERR I can only replicate a master, not a replica.")
	case c.isMaster() && (c.serves(c.self) || len(x.s.dbs[0].keys) > 0):
		return Err("ERR To set a master the node must be empty and without assigned slots.")
	}
	c.follow(i)
	return ok
}

// MoveKeys moves at most count keys of a slot to another node, as MIGRATE does, and returns the moved keys. Moved keys replace
// keys at the target. MoveKeys returns false if a node does not run, or the nodes do not reach each other.
func (s *Server) MoveKeys(slot int, to *Server, count int) (moved []string, ok bool) {
	return s.move(to, func() []string {
		keys := s.slotKeys(slot)
		return keys[:min(count, len(keys))]
	})
}

// MoveKey is MoveKeys for the key of a name, if there is such a key.
func (s *Server) MoveKey(name string, to *Server) (ok bool) {
	_, ok = s.move(to, func() []string {
		if s.dbs[0].keys[name] == nil {
			return nil
		}
		return []string{name}
	})
	return ok
}

func (s *Server) move(to *Server, choose func() []string) (moved []string, ok bool) {
	first, second := s, to
	if first.addr > second.addr {
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	if !s.network.reaches(s.addr, to.addr) {
		return nil, false
	}
	for _, one := range []*Server{s, to} {
		if one.down || one.still.Load() || one.repl.master != "" {
			return nil, false
		}
	}
	moved = choose()
	for _, key := range moved {
		to.dbs[0].keys[key] = s.dbs[0].keys[key]
		to.dbs[0].touch(key)
		delete(s.dbs[0].keys, key)
		s.dbs[0].touch(key)
	}
	for _, one := range []*Server{s, to} {
		one.propagateLocked()
		one.tickLocked()
	}
	return moved, true
}

// ClaimSlot makes a master the owner of a slot with an epoch above the largest known to the master, as the repairs of redis-cli
// do.
func (s *Server) ClaimSlot(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cluster
	c.epoch = c.largest() + 1
	c.me().config = c.epoch
	delete(c.importing, slot)
	delete(c.migrating, slot)
	c.own(slot, c.self)
	c.changed(noNode)
	c.broadcast()
}

// Cluster is the state of a node in its own view.
type Cluster struct {
	OK      bool
	Master  int   // the index of the node's master, or below 0 for a master
	Epoch   int64 // the node's own, or its master's
	Current int64 // the largest known
	ID      string
	owners  []int8
}

// Owner is the index of a slot's node, or below 0.
func (c *Cluster) Owner(slot int) int { return int(c.owners[slot]) }

// Cluster returns how a node stands.
func (s *Server) Cluster() *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cluster
	return &Cluster{OK: c.ok, Master: c.me().master, Epoch: c.peers[c.masterOf(c.self)].config, Current: c.largest(), ID: c.me().id, owners: slices.Clone(c.owners)}
}

// Failing are the nodes down for a majority, in the belief of a node.
func (s *Server) Failing() (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.cluster.peers {
		if p.fail {
			list = append(list, i)
		}
	}
	return list
}
