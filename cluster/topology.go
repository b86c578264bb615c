package cluster

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// topology is the cluster according to one node: the announced addresses of the masters, and the
// slots of each master. A topology is immutable once read.
type topology struct {
	masters  []string      // masters that serve slots
	ids      []string      // node ids of masters; "" if unknown
	backups  [][]string    // replicas of each master, without failed replicas
	replicas []string      // replicas of all masters
	owners   [Slots]uint16 // 1 + index in masters; 0 for an unserved slot
	served   int           // number of served slots
}

var (
	errSlots  = errors.New("cluster: CLUSTER SLOTS: malformed reply")
	errShards = errors.New("cluster: CLUSTER SHARDS: malformed reply")
)

// origin is the node that sent a reply. Parts missing in the reply default to the origin.
type origin struct {
	host string
	port int
	tls  bool
}

// originOf returns the origin for the address of a node.
func originOf(addr string, tls bool) origin {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return origin{host: addr, tls: tls}
	}
	n, _ := strconv.Atoi(port)
	return origin{host: host, port: n, tls: tls}
}

// addr returns the address of the origin.
func (o origin) addr() string { return net.JoinHostPort(o.host, strconv.Itoa(o.port)) }

// unknown is the host in a reply for a node without a configured host name.
const unknown = "?"

// resolve returns the address of a node announced by the origin as host and port. ip is the address
// in the node's metadata, if any. alone means that the reply is about a single node, so an unknown
// host is the origin's. resolve reports false if the address cannot be known.
func (o origin) resolve(host string, port int, ip string, alone bool) (addr string, ok bool) {
	switch {
	case host == unknown && ip != "":
		host = ip
	case host == unknown && !alone:
		return "", false
	case host == "" || host == unknown:
		host = o.host
	}
	if strings.HasPrefix(host, "127.") && loopback(host) && !loopback(o.host) && o.host != "" {
		host = o.host // the announced loopback address is valid only on the origin's machine
	}
	if port == 0 {
		port = o.port
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), true
}

// loopback reports whether host is a loopback address.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// place returns the index of the master at addr, and adds a new master. places has the indexes so far.
func (t *topology) place(places map[string]int, addr, id string) int {
	place, ok := places[addr]
	if !ok {
		place = len(t.masters)
		places[addr] = place
		t.masters, t.ids, t.backups = append(t.masters, addr), append(t.ids, id), append(t.backups, nil)
	}
	return place
}

// backup is a replica of the master at index place.
type backup struct {
	place int
	addr  string
}

// back records a replica of a master. known has the replicas so far.
func (t *topology) back(known map[backup]bool, b backup) {
	if b.place >= 0 && !known[b] {
		known[b] = true
		t.backups[b.place] = append(t.backups[b.place], b.addr)
	}
}

// assign gives slots to the master at index place. A slot that already has a master keeps its
// master.
func (t *topology) assign(first, last, place int) {
	for slot := first; slot <= last; slot++ {
		if t.owners[slot] == 0 {
			t.owners[slot] = uint16(place + 1)
			t.served++
		}
	}
}

// parseSlots reads the reply to CLUSTER SLOTS. One mistake makes the whole reply invalid.
func parseSlots(v resp.Value, from origin) (*topology, error) {
	if v.Kind() != resp.Array || v.Len() > Slots {
		return nil, errSlots
	}
	var shards []shard
	for r := range v.All() {
		first, last, ok := slotRange(r.At(0), r.At(1))
		if !ok || r.Kind() != resp.Array || r.Len() < 3 {
			return nil, errSlots
		}
		s := shard{slots: []int{first, last}}
		for i := 2; i < r.Len(); i++ {
			n, ok := readSlotNode(r.At(i))
			if !ok {
				return nil, errSlots
			}
			n.master = i == 2
			s.nodes = append(s.nodes, n)
		}
		shards = append(shards, s)
	}
	return topologyOf(shards, from, errSlots)
}

// maxNodes is the largest number of nodes in a topology. A cluster has no more masters, and hardly a thousand nodes.
const maxNodes = Slots

// topologyOf returns the topology with the shards, as seen from a node, or the error malformed if no cluster has so many
// nodes or ranges.
func topologyOf(shards []shard, from origin, malformed error) (*topology, error) {
	nodes, ranges := map[shardNode]bool{}, 0
	for _, s := range shards {
		ranges += len(s.slots) / 2
		for _, n := range s.nodes {
			n.master, n.online = false, false
			nodes[n] = true
		}
		if len(nodes) > maxNodes || ranges > Slots {
			return nil, malformed
		}
	}
	alone, t := len(nodes) == 1, &topology{}
	places, known := map[string]int{}, map[backup]bool{}
	for _, s := range shards {
		if len(s.slots) == 0 {
			continue
		}
		master, place := s.master(), -1
		if master >= 0 {
			n := s.nodes[master]
			if addr, ok := from.resolve(n.host, n.port, n.ip, alone); ok {
				place = t.place(places, addr, n.id)
				for j := 0; j < len(s.slots); j += 2 {
					t.assign(s.slots[j], s.slots[j+1], place)
				}
			}
		}
		for i, n := range s.nodes {
			addr, ok := from.resolve(n.host, n.port, n.ip, alone)
			if i == master || !ok {
				continue
			}
			t.replicas = append(t.replicas, addr)
			if n.online {
				t.back(known, backup{place, addr})
			}
		}
	}
	return t, nil
}

// slotRange reads the first and the last slot of a range.
func slotRange(first, last resp.Value) (lo, hi int, ok bool) {
	a, ok1 := integer(first, Slots-1)
	b, ok2 := integer(last, Slots-1)
	return a, b, ok1 && ok2 && a <= b
}

// integer reads a number from 0 to most.
func integer(v resp.Value, most int) (int, bool) {
	if v.Kind() != resp.Integer {
		return 0, false
	}
	n, err := v.Int()
	return int(n), err == nil && 0 <= n && n <= int64(most)
}

// hostValue reads a host name. Null means the same as an empty name.
func hostValue(v resp.Value) (string, bool) {
	if v.IsNull() {
		return "", true
	}
	text, err := v.Text()
	return text, err == nil && v.Kind() != resp.Integer
}

// readSlotNode reads host, port, and the additions of newer servers: node id and metadata. Further
// elements are ignored.
func readSlotNode(v resp.Value) (n shardNode, ok bool) {
	n.online = true
	if v.Kind() != resp.Array || v.Len() < 2 {
		return n, false
	}
	if n.host, ok = hostValue(v.At(0)); !ok {
		return n, false
	}
	if n.port, ok = integer(v.At(1), math.MaxUint16); !ok {
		return n, false
	}
	n.id, _ = v.At(2).Text()
	eachField(v.At(3), func(key string, value resp.Value) bool { // older servers have no metadata
		if key == "ip" {
			n.ip, _ = value.Text()
		}
		return true
	})
	return n, true
}

// parseShards reads the reply to CLUSTER SHARDS, as strictly as parseSlots.
func parseShards(v resp.Value, from origin) (*topology, error) {
	if v.Kind() != resp.Array || v.Len() > Slots {
		return nil, errShards
	}
	var shards []shard
	for e := range v.All() {
		s, ok := readShard(e, from.tls)
		if !ok {
			return nil, errShards
		}
		shards = append(shards, s)
	}
	return topologyOf(shards, from, errShards)
}

// shard is an element of the reply to CLUSTER SHARDS: a master, its replicas and their slots.
type shard struct {
	slots []int // first and last slot of each range
	nodes []shardNode
}

type shardNode struct {
	id, host, ip   string
	port           int
	master, online bool
}

// master returns the index of the node that serves the slots, or -1. During a failover a shard may
// have two masters; master prefers the online node.
func (s shard) master() int {
	found := -1
	for i, n := range s.nodes {
		if n.master && (found < 0 || n.online && !s.nodes[found].online) {
			found = i
		}
	}
	return found
}

// eachField calls fn with the names and values in v, a map. It returns false if v is malformed or fn has returned false.
func eachField(v resp.Value, fn func(name string, value resp.Value) bool) bool {
	pairs, err := v.Pairs()
	for name, value := range pairs {
		if key, err := name.Text(); err != nil || !fn(key, value) {
			return false
		}
	}
	return err == nil
}

func readShard(v resp.Value, tls bool) (s shard, ok bool) {
	ok = eachField(v, func(name string, value resp.Value) bool {
		list := value.Kind() == resp.Array
		switch name {
		case "slots":
			if !list || value.Len()%2 != 0 || value.Len() > 2*Slots {
				return false
			}
			for i := 0; i < value.Len(); i += 2 {
				first, last, ok := slotRange(value.At(i), value.At(i+1))
				if !ok {
					return false
				}
				s.slots = append(s.slots, first, last)
			}
		case "nodes":
			if !list {
				return false
			}
			for e := range value.All() {
				n, ok := readShardNode(e, tls)
				if !ok {
					return false
				}
				s.nodes = append(s.nodes, n)
			}
		}
		return true
	})
	return s, ok
}

func readShardNode(v resp.Value, tls bool) (n shardNode, ok bool) {
	var port, tlsPort int
	n.host = unknown // without an endpoint
	ok = eachField(v, func(name string, value resp.Value) (ok bool) {
		ok = true
		switch name {
		case "port":
			port, ok = integer(value, math.MaxUint16)
		case "tls-port":
			tlsPort, ok = integer(value, math.MaxUint16)
		case "ip":
			n.ip, ok = hostValue(value)
		case "endpoint":
			n.host, ok = hostValue(value)
		case "id":
			n.id, _ = value.Text()
		case "role":
			role, err := value.Text()
			n.master, ok = role == "master", err == nil
		case "health":
			health, err := value.Text()
			n.online, ok = health == "online", err == nil
		}
		return ok
	})
	if n.port = port; tls {
		n.port = tlsPort
	}
	return n, ok
}
