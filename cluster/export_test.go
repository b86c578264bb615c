package cluster

import (
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Topology is the cluster according to one node, for tests of the parsers.
type Topology struct{ t *topology }

// Parse reads a reply to CLUSTER SLOTS that came from addr.
func Parse(v resp.Value, addr string) (Topology, error) {
	t, err := parseSlots(v, originOf(addr))
	return Topology{t}, err
}

func (t Topology) Masters() []string  { return t.t.masters }
func (t Topology) Replicas() []string { return t.t.replicas }
func (t Topology) Served() int        { return t.t.served }

// Owner returns the address of the master of a slot, or "".
func (t Topology) Owner(slot int) string {
	if at := t.t.owners[slot]; at > 0 {
		return t.t.masters[at-1]
	}
	return ""
}

// ReadNodes is readNodes.
var ReadNodes = readNodes

// RouteOf returns the slot of a command, or -1 for a command that any node may serve.
func RouteOf(cmd resp.Command) (int, error) { return routeOf(&cmd) }

// IsRead reports whether Replicas sends a command to replicas.
func IsRead(cmd resp.Command) bool { return isRead(&cmd) }

// History describes the earlier attempts of a call.
type History struct {
	Failures, Redirects int
	Redialled, Asking   bool
	Elapsed             time.Duration
}

// Decision is the reaction to an attempt.
type Decision struct {
	Action  string // "stop", "again", "relocate", "follow", "ask" or "redial"
	Addr    string
	Refresh bool
	Pause   bool
}

var actionNames = map[action]string{
	stop: "stop", again: "again", relocate: "relocate", follow: "follow", ask: "ask", redial: "redial",
}

// Decide returns the reaction to err, the failure of an attempt on the node from, under a policy.
func Decide(err error, from string, h History, attempts, redirects int, budget time.Duration) (Decision, error) {
	d := decide(err, originOf(from), history{h.Failures, h.Redirects, h.Redialled, h.Asking, h.Elapsed},
		policy{attempts, redirects, budget})
	return Decision{actionNames[d.action], d.addr, d.refresh, d.pause}, d.err
}

// ErrLeft is the reason in the errors of calls on a node that has left.
const ErrLeft = errLeft

// KnownAfter reports whether a Cluster that has had reports of the nodes from, one after another, knows how many replicas the
// first of the masters has, without a question.
func KnownAfter(masters []string, from ...string) bool {
	c, now := &Cluster{}, time.Now()
	t := &topology{masters: masters, ids: masters, replicasOf: make([][]string, len(masters))}
	t.owners[0] = 1
	for _, node := range from {
		c.noteReport(report{now, node, t})
	}
	_, known := c.known(0, now)
	return known
}

// Sick reports whether a Cluster asks the node at addr last.
func Sick(c *Cluster, addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[addr].isSick(time.Now())
}
