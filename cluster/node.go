package cluster

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
)

// node is a node of the cluster with the connections to it. A connection is dialled on first use.
type node struct {
	// Constant.
	announced string // host:port as announced by the cluster
	from      origin // announced, parsed
	addr      string // to dial
	pool      *conn.Pool
	reader    *conn.Pool // on its connections a replica answers reads

	sick   atomic.Int64 // time of the last missing answer, in Unix ns; 0 after an answer
	hinted atomic.Int64 // time of the last redirection to the node, in Unix ns; 0 for none

	// Guarded by the Cluster's mu.
	retired  error // why the node is no longer in use; nil for a member
	demoted  bool  // the topology has named the node as a master, and does so no more
	replaced bool  // another master serves its slots: the node became a replica or does not answer
	streams  []*conn.Stream
}

// addStreamLocked makes s end when the node is retired, because a listener would receive nothing afterwards. If the node is
// retired already, s ends at once.
func (n *node) addStreamLocked(s *conn.Stream) error {
	if n.retired != nil {
		_ = s.Close()
		return &conn.Error{Op: "dial", Addr: n.addr, Err: n.retired}
	}
	n.streams = slices.DeleteFunc(n.streams, func(s *conn.Stream) bool { return s.Err() != nil })
	n.streams = append(n.streams, s)
	return nil
}

func (n *node) endStreamsLocked(why error) {
	for _, s := range n.streams {
		_ = s.CloseFor(why)
	}
	n.streams = nil
}

// hintLife is the time to keep a node named in a redirection but absent from the topology.
const hintLife = 5 * time.Second

// isHinted reports whether a redirection has named the node in the last seconds.
func (n *node) isHinted(now time.Time) bool { return now.UnixNano()-n.hinted.Load() <= int64(hintLife) }

// sickTime is the time during which a node without an answer is asked last.
const sickTime = 5 * time.Second

func (n *node) isSick(now time.Time) bool {
	at := n.sick.Load()
	return at != 0 && now.UnixNano()-at < int64(sickTime)
}

// idle reports whether no caller waits for an answer of the node.
func (n *node) idle() bool {
	return !slices.ContainsFunc(n.pools(), func(p *conn.Pool) bool {
		s := p.Stats()
		return s.InFlight != 0 || s.Lent != 0 || s.Waiting != 0
	})
}

func (n *node) pools() []*conn.Pool { return []*conn.Pool{n.pool, n.reader} }

// addCounters adds the counters of the connections to sum.
func (n *node) addCounters(sum *conn.Stats) {
	for _, pool := range n.pools() {
		p := pool.Stats()
		sum.Dials += p.Dials
		sum.DialErrors += p.DialErrors
		sum.Lost += p.Lost
		sum.PushesLost += p.PushesLost
	}
}

func (n *node) close(cause error) {
	for _, p := range n.pools() {
		_ = p.CloseFor(cause)
	}
}

const (
	// lastAnswers is the time for a replaced master, which may hang, to answer earlier commands.
	lastAnswers = 250 * time.Millisecond

	// drainPause is the time between looks at a retired node.
	drainPause = 100 * time.Millisecond
)

// drain closes the connections to a retired node when life ends, when they owe no answer, or when they have owed an answer for
// too long. A node that owes answers is dialled: after a failure the node counts as replaced, because no answer will come. why is the
// reason for leaving.
func (n *node) drain(life context.Context, cfg Config, replaced bool, why error) {
	begin, limit := time.Now(), time.Duration(math.MaxInt64)
	if cfg.Node.Timeout > 0 {
		limit = cfg.Node.Timeout + time.Second
	}
	if replaced || !n.idle() && !n.answers(life, cfg) {
		limit = min(limit, lastAnswers)
	}
	for !n.idle() && time.Since(begin) <= limit {
		if netfail.Sleep(life, drainPause) != nil {
			n.close(conn.ErrClosed)
			return
		}
	}
	n.close(why) // waits for callbacks
}

// answers reports whether the node can be dialled.
func (n *node) answers(life context.Context, cfg Config) bool {
	ctx, cancel := context.WithTimeout(life, lastAnswers)
	defer cancel()
	probe, err := conn.Dial(ctx, cfg.seed(n.announced, n.addr))
	if err != nil {
		return false
	}
	_ = probe.Close()
	return true
}
