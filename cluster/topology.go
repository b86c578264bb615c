package cluster

import (
	"cmp"
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
	masters  []master      // masters that serve slots
	replicas []string      // replicas of all masters
	owners   [Slots]uint16 // 1 + index in masters; 0 for an unserved slot
	served   int           // number of served slots
}

type master struct {
	addr, id string   // id is "" if unknown
	replicas []string // without failed replicas
}

var errSlots = errors.New("cluster: CLUSTER SLOTS: malformed reply")

// origin is the node that sent a reply. Parts missing in the reply default to the origin.
type origin struct {
	host string
	port int
}

func originOf(addr string) origin {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return origin{host: addr}
	}
	n, _ := strconv.Atoi(port)
	return origin{host: host, port: n}
}

func (o origin) addr() string { return net.JoinHostPort(o.host, strconv.Itoa(o.port)) }

// unknown is the host in a reply for a node without a configured host name.
const unknown = "?"

// resolve returns the address of a node that the origin announces. alone says that the reply has no other node: an unknown
// host is then the origin's. ok is false if the address cannot be known.
func (o origin) resolve(n shardNode, alone bool) (addr string, ok bool) {
	host := n.host
	switch {
	case host == unknown && n.ip != "":
		host = n.ip
	case host == unknown && !alone:
		return "", false
	case host == "" || host == unknown:
		host = o.host
	}
	if strings.HasPrefix(host, "127.") && loopback(host) && !loopback(o.host) && o.host != "" {
		host = o.host // the announced loopback address is valid only on the origin's machine
	}
	return net.JoinHostPort(host, strconv.Itoa(cmp.Or(n.port, o.port))), true
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// maxNodes is the largest number of nodes in a topology: as many masters as slots. Real clusters have up to a thousand.
const maxNodes = Slots

// parseSlots reads the reply to CLUSTER SLOTS. One mistake makes the whole reply invalid.
func parseSlots(v resp.Value, from origin) (*topology, error) {
	if v.Kind() != resp.Array || v.Len() > Slots {
		return nil, errSlots
	}
	var shards []shard
	nodes := map[shardNode]bool{}
	for r := range v.All() {
		s, ok := readShard(r)
		if !ok {
			return nil, errSlots
		}
		shards = append(shards, s)
		for _, n := range s.nodes {
			nodes[n] = true
		}
		if len(nodes) > maxNodes {
			return nil, errSlots
		}
	}
	return topologyOf(shards, from, len(nodes) == 1), nil
}

// topologyOf returns the topology with the shards, as announced by a node. alone says that the shards have one node in all.
// A slot in several shards belongs to the first of them.
func topologyOf(shards []shard, from origin, alone bool) *topology {
	t := &topology{}
	masters := map[string]int{}   // indexes in t.masters, by address
	known := map[[2]string]bool{} // pairs of master and replica
	for _, s := range shards {
		first, ok := from.resolve(s.nodes[0], alone)
		at, old := masters[first]
		if ok && !old {
			at = len(t.masters)
			masters[first] = at
			t.masters = append(t.masters, master{addr: first, id: s.nodes[0].id})
		}
		for slot := s.first; ok && slot <= s.last; slot++ {
			if t.owners[slot] == 0 {
				t.owners[slot] = uint16(at + 1)
				t.served++
			}
		}
		for _, n := range s.nodes[1:] {
			addr, found := from.resolve(n, alone)
			if !found {
				continue
			}
			t.replicas = append(t.replicas, addr)
			if pair := [2]string{first, addr}; ok && !known[pair] {
				known[pair] = true
				t.masters[at].replicas = append(t.masters[at].replicas, addr)
			}
		}
	}
	return t
}

// shard is an element of the reply to CLUSTER SLOTS: a range of slots, and the nodes that have it, the master first.
type shard struct {
	first, last int
	nodes       []shardNode
}

type shardNode struct {
	id, host, ip string // ip is the address in the node's metadata, if any
	port         int
}

func readShard(v resp.Value) (s shard, ok bool) {
	var begins, ends bool
	s.first, begins = integer(v.At(0), Slots-1)
	s.last, ends = integer(v.At(1), Slots-1)
	if !begins || !ends || s.first > s.last || v.Len() < 3 || v.Kind() != resp.Array {
		return s, false
	}
	for i := 2; i < v.Len(); i++ {
		n, ok := readShardNode(v.At(i))
		if !ok {
			return s, false
		}
		s.nodes = append(s.nodes, n)
	}
	return s, true
}

// integer reads a number from 0 to most.
func integer(v resp.Value, most int) (int, bool) {
	if v.Kind() != resp.Integer {
		return 0, false
	}
	n, err := v.Int()
	return int(n), err == nil && 0 <= n && n <= int64(most)
}

// readShardNode reads host, port, and the additions of newer servers: node id and metadata. Further
// elements are ignored.
func readShardNode(v resp.Value) (n shardNode, ok bool) {
	if v.Kind() != resp.Array || v.Len() < 2 {
		return n, false
	}
	if host := v.At(0); !host.IsNull() { // null means the same as an empty name
		var err error
		if n.host, err = host.Text(); err != nil || host.Kind() == resp.Integer {
			return n, false
		}
	}
	if n.port, ok = integer(v.At(1), math.MaxUint16); !ok {
		return n, false
	}
	n.id, _ = v.At(2).Text()
	pairs, _ := v.At(3).Pairs() // older servers have no metadata
	for name, value := range pairs {
		if key, _ := name.Text(); key == "ip" {
			n.ip, _ = value.Text()
		}
	}
	return n, true
}
