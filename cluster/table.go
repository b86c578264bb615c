package cluster

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// table is the topology in terms of nodes. A table is immutable: a change makes a new table.
type table struct {
	nodes    []*node       // nodes that serve slots, or did when the table was made
	replicas [][]*node     // of each of the first nodes
	owners   [Slots]uint16 // 1 + index in nodes; 0 for an unserved slot
	served   int           // number of served slots
}

// owner returns the node that serves a slot, or nil for an unserved slot. For anySlot owner returns
// a random node that serves slots.
func (t *table) owner(slot int) *node {
	if slot == anySlot {
		return t.any()
	}
	if at := t.owners[slot]; at > 0 {
		return t.nodes[at-1]
	}
	return nil
}

// with returns a table in which n serves slot.
func (t *table) with(slot int, n *node) *table {
	next := *t
	at := slices.Index(t.nodes, n)
	if at < 0 {
		at = len(t.nodes)
		next.nodes = append(slices.Clip(t.nodes), n)
	}
	if next.owners[slot] == 0 {
		next.served++
	}
	next.owners[slot] = uint16(at + 1)
	return &next
}

// withReplaced returns a table in which n takes the place of old.
func (t *table) withReplaced(old, n *node) *table {
	next := *t
	next.nodes = slices.Clone(t.nodes)
	if i := slices.Index(t.nodes, old); i >= 0 {
		next.nodes[i] = n
	}
	return &next
}

// masters returns the nodes that serve slots.
func (t *table) masters() (list []*node) {
	listed := make([]bool, len(t.nodes))
	for _, at := range t.owners {
		if at > 0 && !listed[at-1] {
			listed[at-1] = true
			list = append(list, t.nodes[at-1])
		}
	}
	return list
}

// any returns a random node that serves slots, if possible a node without a recent failure.
func (t *table) any() *node {
	if len(t.nodes) == 0 {
		return nil
	}
	random := rand.Int()
	return cmp.Or(healthy(t.nodes, random, time.Now()), t.nodes[random%len(t.nodes)])
}

// shuffled returns the nodes that serve slots in random order, those with a recent failure last.
func (t *table) shuffled() []*node {
	var healthy, sick []*node
	now := time.Now()
	for _, i := range rand.Perm(len(t.nodes)) {
		if n := t.nodes[i]; n.isSick(now) {
			sick = append(sick, n)
		} else {
			healthy = append(healthy, n)
		}
	}
	return append(healthy, sick...)
}

// healthy returns a random node of a list without a recent failure, or nil.
func healthy(list []*node, random int, now time.Time) *node {
	for i := range list {
		if n := list[(random%len(list)+i)%len(list)]; !n.isSick(now) {
			return n
		}
	}
	return nil
}

// replica returns a replica of the owner of slot, or nil if none has answered lately.
func (t *table) replica(slot, random int, now time.Time) *node {
	if slot == anySlot || t.owners[slot] == 0 || int(t.owners[slot]) > len(t.replicas) {
		return nil
	}
	return healthy(t.replicas[t.owners[slot]-1], random, now)
}
