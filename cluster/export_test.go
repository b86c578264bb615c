package cluster

import (
	"context"
	"slices"
	"strings"
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

func (t Topology) Masters() (addrs []string) {
	for _, m := range t.t.masters {
		addrs = append(addrs, m.addr)
	}
	return addrs
}

func (t Topology) Replicas() []string { return t.t.replicas }
func (t Topology) Served() int        { return t.t.served }

// Owner returns the address of the master of a slot, or "".
func (t Topology) Owner(slot int) string {
	if at := t.t.owners[slot]; at > 0 {
		return t.t.masters[at-1].addr
	}
	return ""
}

// ReadNodes is readNodes.
var ReadNodes = readNodes

// RouteOf returns the slot of a command, or -1 for a command that any node may serve.
func RouteOf(cmd resp.Command) (int, error) { return routeOf(&cmd, 0) }

// IsRead reports whether Replicas sends a command to replicas.
func IsRead(cmd resp.Command) bool { return isRead(&cmd) }

// Attempt is a failed attempt.
type Attempt struct {
	Err, Earlier                         error
	From                                 string
	Failures, Redirects                  int
	Redialled, Asking, Read              bool
	Pinned, NoRepeat, NoTryAgain, Closed bool
	CtxErr, CtxEnd                       error
	Attempts, MaxRedirects               int
	Elapsed, Budget                      time.Duration
}

var (
	actionNames = map[action]string{
		stop: "stop", again: "again", relocate: "relocate", follow: "follow", ask: "ask", redial: "redial",
	}
	pauseNames = map[pause]string{
		backoff: ", pause", untilUp: ", pause until up", untilAgreed: ", pause until agreed",
	}
)

// Decide returns the decision about an attempt in words: what the call does, and what the Cluster
// learns. err is the error for the caller, or nil.
func Decide(a Attempt) (does, learns string, err error) {
	var redialled []string
	if a.Redialled {
		redialled = []string{originOf(a.From).addr()}
	}
	d := decide(attempt{
		err: a.Err, earlier: a.Earlier, from: originOf(a.From), history: history{a.Failures, a.Redirects, redialled},
		asking: a.Asking, read: a.Read, pinned: a.Pinned, noRepeat: a.NoRepeat, noTryAgain: a.NoTryAgain, closed: a.Closed,
		ctxErr: a.CtxErr, ctxEnd: a.CtxEnd, bounds: policy{a.Attempts, a.MaxRedirects, a.Budget}, elapsed: a.Elapsed, name: "GET",
	})
	var all []string
	for word, ok := range map[string]bool{"changed": d.changed, "moved": d.moved, "refresh": d.refresh, "silent": d.silent} {
		if ok {
			all = append(all, word)
		}
	}
	slices.Sort(all)
	learns = strings.Join(all, ", ")
	if d.action == stop {
		return "stop", learns, d.err
	}
	does = actionNames[d.action]
	if d.action == follow || d.action == ask {
		does += " " + d.addr
	}
	return does + pauseNames[d.pause], learns, nil
}

// ErrLeft is the reason in the errors of calls on a node that has left.
const ErrLeft = errLeft

// KnownAfter reports whether a Cluster that has had reports of the nodes from, one after another, knows how many replicas the
// first of the masters has, without a question.
func KnownAfter(masters []string, from ...string) bool {
	c, now := &Cluster{cfg: Config{}.withDefaults()}, time.Now()
	t := &topology{}
	for _, addr := range masters {
		t.masters = append(t.masters, master{addr: addr, id: addr})
	}
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

// Relocate decides about a call whose attempt found no node, and calls between before the pause that follows. The error is
// the one of the pause.
func (c *Cluster) Relocate(ctx context.Context, between func()) error {
	k, at := &call{c: c, ctx: ctx, name: "GET"}, target{}
	d := k.decide(at, at.unserved("GET"), &k.lastFailure)
	between()
	return k.pause(d, at)
}
