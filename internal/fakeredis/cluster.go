package fakeredis

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// SlotCount is how many hash slots a cluster has.
const SlotCount = 16384

// ClusterOptions are the configuration of the nodes of a cluster. Each node knows all nodes from the beginning.
type ClusterOptions struct {
	Nodes   []ClusterNode
	Timeout time.Duration // cluster-node-timeout
	Partial bool          // cluster-require-full-coverage no
	// Chance returns a time below most, by which replicas differ in the begin of an election. It must not block.
	Chance func(most time.Duration) time.Duration
	// Claimed, if set, is called whenever the slots or the epoch of a master change, with the node just replaced, or -1. The
	// call comes from inside the server, and must not call a server.
	Claimed func(node, replaced int, epoch int64, has func(slot int) bool)
}

// ClusterNode is the first state of a node.
type ClusterNode struct {
	Addr        string
	Master      int // the index of the node's master, or below 0 for a master
	First, Last int // a master's slots
}

const (
	noNode = -1

	clusterWritable    = 2 * time.Second // time after the start before a master is ready
	clusterRejoinMin   = 500 * time.Millisecond
	clusterRejoinMax   = 5 * time.Second
	clusterManual      = 5 * time.Second
	clusterValidity    = 10
	clusterReplicaPing = 10 * time.Second
)

// cluster is a node's part in a cluster, and the node's own view, guarded by the mu of its Server. It behaves as Redis does:
// nodes learn of each peer by pings, and believe the claim with the larger epoch.
type cluster struct {
	s       *Server
	opts    ClusterOptions
	self    int
	epoch   int64 // the largest known
	peers   []*peer
	owners  []int8 // of all slots
	lacking int    // slots without an owner
	version int    // of owners

	migrating, importing map[int]int // by slot: the peer

	ok       bool
	started  time.Time
	minority time.Time // the last time with less than a majority

	voted     int64 // the epoch of the node's last vote
	authAt    time.Time
	authEpoch int64
	asked     bool
	votes     int
	manual    time.Time // until then the node stands for election even if its master is well
}

// peer is a node as known to a node, possibly itself.
type peer struct {
	id, addr string
	master   int
	config   int64 // the peer's epoch, or its master's
	offset   int64
	pinged   time.Time // the first ping without an answer; zero: all are answered
	ping     time.Time
	heard    time.Time
	pfail    bool
	fail     bool
	failAt   time.Time
	reports  map[int]time.Time
	votedAt  time.Time // when a replica got a vote to replace the peer

	claims  *slotSet // the peer's slots in this view, as of version; nil: not gathered
	version int
	same    *slotSet // the peer's last claim, equal to slots
	sameAt  int
}

// slotSet is an immutable set of slots.
type slotSet [SlotCount / 64]uint64

func (t *slotSet) has(slot int) bool { return t[slot/64]>>(slot%64)&1 == 1 }

// header is a node's description of itself in every message.
type header struct {
	from, master  int
	epoch, config int64
	offset        int64
	claims        *slotSet // of the master, for a replica
	failing       []int
}

// NewClusterNode returns a Server for the node of the cluster with an index. It begins on joining a Network.
func NewClusterNode(o ClusterOptions, self int) *Server {
	s := New()
	c := &cluster{s: s, opts: o, self: self, migrating: map[int]int{}, importing: map[int]int{}, ok: true, owners: make([]int8, SlotCount)}
	for slot := range c.owners {
		c.owners[slot] = noNode
	}
	c.lacking = SlotCount
	now := time.Now()
	for i, n := range o.Nodes {
		sum := sha1.Sum([]byte(n.Addr))
		p := &peer{id: hex.EncodeToString(sum[:]), addr: n.Addr, master: n.Master, heard: now, reports: map[int]time.Time{}}
		if c.peers = append(c.peers, p); n.Master >= 0 {
			p.config = int64(n.Master + 1)
			continue
		}
		p.config = int64(i + 1)
		for slot := n.First; slot <= n.Last; slot++ {
			c.owners[slot] = int8(i)
			c.lacking--
		}
	}
	c.epoch = int64(len(o.Nodes))
	s.cluster = c
	if m := o.Nodes[self].Master; m >= 0 {
		s.repl.master = o.Nodes[m].Addr
	}
	c.changed(noNode)
	return s
}

func (c *cluster) me() *peer { return c.peers[c.self] }

func (c *cluster) isMaster() bool { return c.me().master < 0 }

// masterOf is the index of a node's master, or the node's own for a master.
func (c *cluster) masterOf(i int) int {
	if m := c.peers[i].master; m >= 0 {
		return m
	}
	return i
}

// own gives a slot to a node.
func (c *cluster) own(slot, node int) {
	if c.owners[slot] == int8(node) {
		return
	}
	if int(c.owners[slot]) == c.masterOf(c.self) && len(c.s.shards) > 0 {
		c.s.dropChannels(slot)
	}
	switch {
	case node < 0:
		c.lacking++
	case c.owners[slot] < 0:
		c.lacking--
	}
	c.owners[slot] = int8(node)
	c.version++
}

// changed reports the claims of this node, and the node just replaced, to Claimed.
func (c *cluster) changed(replaced int) {
	if c.opts.Claimed != nil && c.isMaster() {
		c.opts.Claimed(c.self, replaced, c.me().config, func(slot int) bool { return c.owners[slot] == int8(c.self) })
	}
}

// slotsOf are the slots of a master.
func (c *cluster) slotsOf(i int) *slotSet {
	p := c.peers[i]
	if p.claims != nil && p.version == c.version {
		return p.claims
	}
	t := new(slotSet)
	for slot, owner := range c.owners {
		if int(owner) == i {
			t[slot/64] |= 1 << (slot % 64)
		}
	}
	if p.claims == nil || *p.claims != *t {
		p.claims = t
	}
	p.version = c.version
	return p.claims
}

func (c *cluster) serves(i int) bool { return slices.Max(c.slotsOf(i)[:]) != 0 }

// size is how many masters have slots.
func (c *cluster) size() (n int) {
	for i, p := range c.peers {
		if p.master < 0 && c.serves(i) {
			n++
		}
	}
	return n
}

func (c *cluster) header() header {
	h := header{from: c.self, master: c.me().master, epoch: c.epoch, config: c.peers[c.masterOf(c.self)].config, offset: c.s.repl.offset}
	h.claims = c.slotsOf(c.masterOf(c.self))
	for i, p := range c.peers {
		if p.pfail || p.fail {
			h.failing = append(h.failing, i)
		}
	}
	return h
}

// beat does the due work.
func (c *cluster) beat() {
	now := time.Now()
	for i, p := range c.peers {
		if i == c.self {
			continue
		}
		if now.Sub(p.ping) >= c.opts.Timeout/2 {
			c.ping(i)
		}
		if !p.pinged.IsZero() && now.Sub(p.pinged) > c.opts.Timeout && now.Sub(p.heard) > c.opts.Timeout && !p.pfail && !p.fail {
			p.pfail = true
			c.markFailed(i)
		}
	}
	c.standForElection()
	c.updateState()
}

func (c *cluster) ping(i int) {
	p := c.peers[i]
	if p.ping = time.Now(); p.pinged.IsZero() {
		p.pinged = p.ping
	}
	h := c.header()
	c.s.send(p.addr, 0, func(to *Server) {
		to.cluster.take(h)
		back := to.cluster.header()
		to.send(c.opts.Nodes[h.from].Addr, 0, func(s *Server) { s.cluster.pong(back) })
	})
}

// pong takes in the answer to a ping.
func (c *cluster) pong(h header) {
	p := c.peers[h.from]
	p.pinged, p.pfail = time.Time{}, false
	if p.fail && (p.master >= 0 || !c.serves(h.from) || time.Since(p.failAt) > 2*c.opts.Timeout) {
		p.fail = false
	}
	c.take(h)
}

// broadcast sends this node's description of itself to all nodes.
func (c *cluster) broadcast() {
	h := c.header()
	c.all(func(to *cluster) { to.take(h) })
}

// all calls do at each peer.
func (c *cluster) all(do func(to *cluster)) {
	for i, p := range c.peers {
		if i != c.self {
			c.s.send(p.addr, 0, func(to *Server) { do(to.cluster) })
		}
	}
}

// take takes in a node's description of itself and of its peers.
func (c *cluster) take(h header) {
	p := c.peers[h.from]
	p.heard, p.offset = time.Now(), h.offset
	c.epoch = max(c.epoch, h.epoch)
	p.config = max(p.config, h.config)
	if p.master != h.master {
		if p.master < 0 { // the node gave its slots away
			for slot, owner := range c.owners {
				if int(owner) == h.from {
					c.own(slot, noNode)
				}
			}
		}
		p.master = h.master
	}
	c.compare(h)
	if h.master < 0 && c.isMaster() && h.config == c.me().config && p.id < c.me().id {
		c.epoch++
		c.me().config = c.epoch
		c.changed(noNode)
	}
	if p = c.peers[h.from]; p.master < 0 && c.serves(h.from) {
		c.hear(h)
	}
	c.updateState()
}

// compare compares a node's claims with the knowledge of this node.
func (c *cluster) compare(h header) {
	master := h.from
	if h.master >= 0 {
		master = h.master
	}
	p := c.peers[h.from]
	if p.same == h.claims && p.sameAt == c.version || *c.slotsOf(master) == *h.claims {
		p.same, p.sameAt = h.claims, c.version
		return
	}
	if h.master < 0 {
		c.update(h.from, h.config, h.claims)
	}
	for slot, owner := range c.owners {
		if owner < 0 || int(owner) == master || !h.claims.has(slot) || c.peers[owner].config <= h.config {
			continue
		}
		about, config, claims := int(owner), c.peers[owner].config, c.slotsOf(int(owner))
		c.s.send(p.addr, 0, func(to *Server) { to.cluster.correct(about, config, claims) })
		return
	}
}

// correct takes in a peer's knowledge of a third node.
func (c *cluster) correct(about int, config int64, claims *slotSet) {
	p := c.peers[about]
	if p.config >= config || about == c.self {
		return
	}
	p.config, p.master = config, noNode
	c.update(about, config, claims)
}

// update gives a node its claimed slots, except slots claimed with a larger epoch.
func (c *cluster) update(from int, config int64, claims *slotSet) {
	if from == c.self {
		return
	}
	mine, lost := c.masterOf(c.self), false
	var dirty []int
	for slot, owner := range c.owners {
		if !claims.has(slot) || int(owner) == from {
			continue
		}
		if _, importing := c.importing[slot]; importing || owner >= 0 && c.peers[owner].config >= config {
			continue
		}
		if int(owner) == c.self {
			dirty = append(dirty, slot)
		}
		lost = lost || int(owner) == mine
		delete(c.migrating, slot)
		c.own(slot, from)
	}
	switch {
	case lost && !c.serves(mine):
		c.follow(from)
	default:
		for _, slot := range dirty {
			c.s.dropSlot(slot)
		}
	}
	c.changed(noNode)
}

// follow makes this node a replica of a peer.
func (c *cluster) follow(master int) {
	c.me().master = master
	clear(c.migrating)
	clear(c.importing)
	c.authAt, c.manual = time.Time{}, time.Time{}
	c.s.replicaOfLocked(c.peers[master].addr)
	c.broadcast()
}

// dropSlot deletes the keys of a slot that has gone to a peer.
func (s *Server) dropSlot(slot int) {
	for _, key := range s.slotKeys(slot) {
		delete(s.dbs[0].keys, key)
		s.dbs[0].touch(key)
	}
	s.propagateLocked()
}

// slotKeys are the keys in a slot, in order.
func (s *Server) slotKeys(slot int) (list []string) {
	for _, key := range sortedKeys(s.dbs[0].keys) {
		if slotOf(key) == slot {
			list = append(list, key)
		}
	}
	return list
}

// dropChannels ends the subscriptions to the shard channels of a slot, and tells the subscribers.
func (s *Server) dropChannels(slot int) {
	for _, channel := range sortedKeys(s.shards) {
		if slotOf(channel) != slot {
			continue
		}
		for _, c := range slices.Clone(s.shards[channel]) {
			c.leave(s.shards, &c.shards, channel)
			c.writeLocked(appendReply(nil, push{"sunsubscribe", channel, len(c.shards)}, c.proto))
		}
	}
	s.tickLocked()
}

// slotOf is the hash slot of a key.
func slotOf(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % SlotCount
}
