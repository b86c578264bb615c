package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

const (
	// The pause between two refreshes is at least minPause. While refreshes fail or find no change,
	// the pause doubles up to sickPause or calmPause.
	minPause  = 100 * time.Millisecond
	calmPause = 400 * time.Millisecond
	sickPause = time.Second

	// askLimit bounds the answer of one node.
	askLimit = time.Second

	// patience is the time after which a node without an answer becomes sick, even if it was the caller who gave up:
	// otherwise callers with a short limit would ask the same hanging node each time.
	patience = 250 * time.Millisecond

	// expectTime is how long refreshes go on after a node has ended a subscription: the other nodes know of its successor
	// after a heartbeat or two.
	expectTime = 5 * time.Second
)

var errNoSlots = errors.New("cluster: no slots served")

// wantRefresh requests a refresh of the topology. The channel is closed at the end of a refresh
// that began after the call.
func (c *Cluster) wantRefresh() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wanted {
		c.wanted = true
		netfail.Signal(c.wake)
	}
	return c.refreshDone
}

// pace decides the times of refreshes.
type pace struct {
	pause     time.Duration // pause after the last refresh
	notBefore time.Time     // earliest start of the next refresh
	due       time.Time     // start of the next unrequested refresh
}

// refreshLoop is the goroutine that reads the topology, from Open to Close. Refreshes run one at a time with pauses in between,
// however many calls request a refresh.
func (c *Cluster) refreshLoop() {
	p := pace{pause: minPause}
	p.schedule(time.Now(), c.cfg.RefreshInterval)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !c.isClosed() {
		if now := time.Now(); !now.Before(p.at(c.isWanted())) {
			changed, err := c.refresh(c.life)
			p.adjustPause(now, changed, err)
			p.schedule(time.Now(), c.cfg.RefreshInterval)
		}
		timer.Reset(max(time.Until(p.at(c.isWanted())), 0))
		select {
		case <-c.wake:
		case <-timer.C:
		case <-c.life.Done():
		}
	}
}

// at returns the start of the next refresh.
func (p *pace) at(wanted bool) time.Time {
	if wanted && p.notBefore.Before(p.due) {
		return p.notBefore
	}
	return p.due
}

// adjustPause sets the pause after a refresh that began at begin.
func (p *pace) adjustPause(begin time.Time, changed bool, err error) {
	if begin.Sub(p.notBefore) > calmPause {
		p.pause = minPause / 2 // after a quiet time
	}
	switch {
	case err != nil:
		p.pause = min(2*p.pause, sickPause)
	case changed:
		p.pause = minPause
	default:
		p.pause = min(2*p.pause, calmPause)
	}
}

// schedule sets the time of the next refresh at the end of a refresh. A random part makes clients that started together
// drift apart.
func (p *pace) schedule(now time.Time, interval time.Duration) {
	if interval <= 0 {
		interval = math.MaxInt64 // never
	}
	p.notBefore, p.due = now.Add(p.pause), now.Add(netfail.Jitter(interval))
}

// isWanted reports whether a refresh is requested, or a change expected. A change of the topology does not end expectTime:
// perhaps another change is expected.
func (c *Cluster) isWanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted || time.Now().Before(c.expected)
}

// discover reads the topology for the first time, with as many attempts as a call. They end if no server at the
// addresses knows what a cluster is.
func (c *Cluster) discover(ctx context.Context) error {
	start, bounds := time.Now(), c.cfg.policy()
	for n := 0; ; n++ {
		_, err := c.refresh(ctx)
		if err == nil {
			return nil
		}
		if knowsNoCluster(err) {
			return fmt.Errorf("%w: the server is no node of a cluster: open it with redis:// in place of redis-cluster://", err)
		}
		pause := netfail.Backoff(n, c.cfg.Node.Retry.MinBackoff, c.cfg.Node.Retry.MaxBackoff)
		late := bounds.budget > 0 && time.Since(start)+pause >= bounds.budget
		if final := isDial(err) && netfail.Dial(err) == netfail.Final; ctx.Err() == nil && (n+1 >= bounds.attempts || late || final) {
			return err
		}
		if ended := netfail.Sleep(ctx, pause); ended != nil {
			return fmt.Errorf("cluster: %w; last attempt: %w", ended, err)
		}
	}
}

// knowsNoCluster reports whether err is the answer to CLUSTER of a server that is no node of a cluster, or of a sentinel.
func knowsNoCluster(err error) bool {
	reply, answered := errors.AsType[resp.Error](err)
	return answered && !isTransport(err) && (strings.Contains(string(reply), "cluster support disabled") || strings.Contains(string(reply), "unknown command"))
}

// refresh asks node after node for the topology, until an answer has at least as many slots as the table. Without such an
// answer, the one with the most slots counts. An answer without slots, as from a node that has lost its cluster, counts as
// no answer. The error matches knowsNoCluster only if no server knows a cluster.
func (c *Cluster) refresh(ctx context.Context) (changed bool, err error) {
	c.mu.Lock()
	c.wanted = false
	round := c.refreshDone
	c.refreshDone = make(chan struct{})
	c.mu.Unlock()
	defer close(round)

	var best *topology
	for _, from := range c.candidates(time.Now()) {
		t, failed := c.askTopology(ctx, from)
		switch {
		case failed != nil:
			if err == nil || knowsNoCluster(err) {
				err = fmt.Errorf("cluster: topology: %w", failed)
			}
		case t.served == 0:
			err = errNoSlots
		case best == nil || t.served > best.served:
			best = t
		}
		if best != nil && best.served >= c.table.Load().served || ctx.Err() != nil {
			break
		}
	}
	if best == nil {
		c.refreshErrors.Add(1)
		c.noteRefresh(err)
		return false, err
	}
	c.refreshes.Add(1)
	c.noteRefresh(nil)
	return c.apply(best), nil
}

// noteRefresh logs the first failed refresh in a row, and the next success.
func (c *Cluster) noteRefresh(err error) {
	c.mu.Lock()
	before := c.failing
	c.failing = err != nil && !c.isClosed()
	now := c.failing
	c.mu.Unlock()
	switch {
	case now && !before:
		c.warn("topology cannot be read", "error", err)
	case before && !now && err == nil:
		c.warn("topology read again")
	}
}

func (c *Cluster) warn(text string, args ...any) {
	if logger := c.cfg.Node.Logger; logger != nil {
		logger.Warn("cluster: "+text, args...)
	}
}

// candidates returns the nodes to ask, in order: masters, replicas and further known nodes, seeds, and last the nodes without
// a recent answer. A seed is an address in Config.Addrs of no known node; it has no Pool.
func (c *Cluster) candidates(now time.Time) []*node {
	t := c.table.Load()
	var masters, others, seeds, sick []*node
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		switch {
		case n.isSick(now):
			sick = append(sick, n)
		case slices.Contains(t.nodes, n):
			masters = append(masters, n)
		default:
			others = append(others, n)
		}
	}
	for _, addr := range c.cfg.Addrs {
		if c.nodes[addr] == nil {
			seeds = append(seeds, &node{from: originOf(addr), addr: addr})
		}
	}
	for _, list := range [][]*node{masters, others, sick} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return slices.Concat(masters, others, seeds, sick)
}

var clusterSlots = resp.Cmd("CLUSTER", "SLOTS")

// askTopology returns the topology according to a candidate, and keeps it as a report.
func (c *Cluster) askTopology(ctx context.Context, n *node) (*topology, error) {
	asked := time.Now()
	v, err := c.askNode(ctx, n, clusterSlots)
	if err != nil {
		return nil, err
	}
	t, err := parseSlots(v, n.from)
	if err == nil {
		c.noteReport(report{asked, n.addr, t})
	}
	return t, err
}

// askNode sends a command to a candidate. A failure makes the node sick, unless the caller gave up within patience.
func (c *Cluster) askNode(caller context.Context, n *node, cmd resp.Command) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(caller, askLimit)
	defer cancel()
	if n.pool == nil {
		seed, err := conn.Dial(ctx, c.cfg.seed(n.addr, n.addr))
		if err != nil {
			return resp.Value{}, err
		}
		defer seed.Close()
		return seed.Send(ctx, cmd)
	}
	begin := time.Now()
	v, err := n.pool.Send(ctx, cmd)
	switch now := time.Now(); {
	case err == nil:
		n.sick.Store(0)
	case caller.Err() == nil || now.Sub(begin) >= patience:
		n.sick.Store(now.UnixNano())
	}
	return v, err
}

// apply installs t, and reports whether t differs from the last topology read.
func (c *Cluster) apply(t *topology) (changed bool) {
	c.mu.Lock()
	if c.isClosed() {
		c.mu.Unlock()
		return false
	}
	before, moved := c.lastRead, 0
	next, members := c.tableLocked(t)
	for slot := range Slots {
		if next.owner(slot) != before.owner(slot) {
			moved++
		}
	}
	c.table.Store(next)
	c.lastRead = next
	c.removeOthersLocked(members)
	c.mu.Unlock()
	if moved > 0 && before.served > 0 {
		c.losses.Call()
		if t := c.Trace(); t != nil && t.Topology != nil {
			t.Topology(conn.TopologyInfo{Masters: len(next.nodes), Served: next.served, Moved: moved})
		}
		c.warn("topology has changed", "masters", len(next.nodes), "slots", next.served)
	}
	return moved > 0
}

// tableLocked returns the table for a topology, and the set of all its nodes, including replicas. It retires the masters of
// the last topology that are masters no more: as a replica, a node gets a new node value.
func (c *Cluster) tableLocked(t *topology) (next *table, members map[*node]bool) {
	next, members = &table{}, make(map[*node]bool)
	places := make([]uint16, len(t.masters)+1) // 1 + index in next.nodes
	for i, m := range t.masters {
		n := c.nodeLocked(m.addr)
		if n == nil {
			continue
		}
		at := slices.Index(next.nodes, n)
		if at < 0 {
			at = len(next.nodes)
			next.nodes = append(next.nodes, n)
		}
		members[n], n.demoted, places[i+1] = true, false, uint16(at+1)
	}
	for _, n := range c.lastRead.nodes {
		if !members[n] {
			n.demoted = true
			n.replaced = slices.ContainsFunc(t.replicas, func(announced string) bool { return c.cfg.NodeMap(announced) == n.addr })
			c.removeLocked(n)
		}
	}
	next.replicas = make([][]*node, len(next.nodes))
	for i, m := range t.masters {
		for _, announced := range m.replicas {
			if n, at := c.nodeLocked(announced), places[i+1]; n != nil && at > 0 {
				next.replicas[at-1] = append(next.replicas[at-1], n)
			}
		}
	}
	for _, announced := range t.replicas {
		if n := c.nodeLocked(announced); n != nil {
			members[n] = true
		}
	}
	for slot, at := range t.owners {
		if next.owners[slot] = places[at]; places[at] > 0 {
			next.served++
		}
	}
	return next, members
}

// removeLocked retires a node that has left the cluster, or is a master no more. A node named in a recent redirection stays,
// because it may be too new for the topology; a former master that is silent does not.
func (c *Cluster) removeLocked(n *node) {
	now, why := time.Now(), errLeft
	if n.isHinted(now) && !(n.demoted && n.isSick(now)) {
		return
	}
	if n.demoted {
		why = errReplaced
	}
	delete(c.nodes, n.addr)
	c.retireLocked(n, why)
}

// removeOthersLocked retires the nodes that are not members. It ends the streams of members that are no masters in the present
// table: a listener would not receive all messages. A node named in a recent redirection may be a master too new for the topology.
func (c *Cluster) removeOthersLocked(members map[*node]bool) {
	masters := c.table.Load().nodes
	for _, n := range c.nodes {
		if !members[n] {
			c.removeLocked(n)
		}
		if !slices.Contains(masters, n) && (n.demoted || !n.isHinted(time.Now())) {
			n.endStreamsLocked(errReplaced)
		}
	}
}
