package remote

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
)

const (
	// bareFor is the time, in AckTimeouts, after which a server without its former replicas counts as a server without replicas.
	bareFor = 3
	// WitnessAge is the maximum age of other nodes' information about a server with no replica, with a replica in its first
	// synchronization, or with fewer replicas than before.
	// Every failover takes longer.
	WitnessAge = 500 * time.Millisecond
)

// Acks says how many replicas must acknowledge a request.
type Acks struct {
	Off     bool                   // no request waits for replicas
	Exact   int                    // the number; 0 if Of decides
	Of      func(replicas int) int // the number for a server with so many replicas
	Timeout time.Duration          // the wait for replicas

	Shortage func(Shortage) error // the error of a request that too few replicas have acknowledged
}

// Replicas is a client's record of the servers' replicas. By the record a request knows how many acknowledgements to wait for, or that
// the replicas must be counted first. That there are no replicas is never taken from the record: a request without acknowledgements
// verifies it in the same write.
type Replicas struct {
	server *Server
	acks   Acks // constant

	mu    sync.Mutex
	known map[string]*record // by the server's id, or its address; guarded by mu
}

// record is what a client knows of a server's replicas.
type record struct {
	candidates int        // at the last count
	checked    attachment // at the last count
	seen       bool       // the candidates have been counted
	had        bool       // the server has had a replica
	lastFailed bool       // the last wait for replicas failed
	bareSince  time.Time  // start of the time without a replica; zero with a replica, or if unknown
	warned     bool       // the log says that the server has no replica
	syncing    int        // headcount.syncingNotAway at the last count
	muted      lasting[muted]
	news       lasting[news] // the change since the last count
}

// lasting is what the last replies in a row had in common.
type lasting[T comparable] struct {
	value T
	since time.Time // of the first of them; zero for none
}

// note notes the value of a reply, and returns the time of the first reply in a row with the same value.
func (l *lasting[T]) note(value T) time.Time {
	if l.since.IsZero() || l.value != value {
		*l = lasting[T]{value, time.Now()}
	}
	return l.since
}

// news is a headcount that differs from the last count. Equal news are the same change.
type news struct {
	attachment
	live int
}

// muted has the replicas without any acknowledgement so far. Equal values are the same replicas, since the same arrival.
type muted struct {
	arrivals arrivals
	addrs    string
}

// NewReplicas returns the record of the replicas of s, which must acknowledge requests as acks says.
func NewReplicas(s *Server, acks Acks) *Replicas { return &Replicas{server: s, acks: acks} }

// On reports whether requests wait for replicas.
func (r *Replicas) On() bool { return !r.acks.Off }

// recordOf returns the record of a server. The caller has mu.
func (r *Replicas) recordOf(s conn.Succession) *record {
	key := cmp.Or(s.Master, s.Addr)
	st := r.known[key]
	if st == nil {
		if r.known == nil || len(r.known) > maxKnown {
			r.known = make(map[string]*record)
		}
		st = new(record)
		r.known[key] = st
	}
	return st
}

// noteCandidates records a count of n candidates, by the headcount h and the other nodes' answer s. A change of replicas stays news until the other
// nodes have been asked after the first headcount with the change. bare: the server counts as one without replicas.
func (r *Replicas) noteCandidates(s conn.Succession, h headcount, n int) (bare bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.recordOf(s)
	if s.Asked.Before(st.changedAt(h)) {
		st.candidates = max(st.candidates, n)
	} else {
		st.candidates, st.checked = n, h.attachment
	}
	st.seen, st.syncing = true, h.syncingNotAway(s)
	switch {
	case n > 0:
		st.had, st.bareSince = true, time.Time{}
		return false
	case s.Bare && !st.had:
		return true
	case st.bareSince.IsZero():
		st.bareSince = time.Now()
	}
	return r.bareForLong(st)
}

// bareForLong reports whether a server has been without a replica for long enough to count as a server without replicas.
func (r *Replicas) bareForLong(st *record) bool {
	return !st.bareSince.IsZero() && time.Since(st.bareSince) >= bareFor*r.acks.Timeout
}

// succession returns other nodes' information about the server of name.
func (r *Replicas) succession(ctx context.Context, name string, since time.Time) (conn.Succession, error) {
	if r.server.Failover == nil {
		return conn.Succession{Addr: r.server.Route(name), Bare: true, Asked: time.Now()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.acks.Timeout)
	defer cancel()
	begin := time.Now()
	s, err := r.server.Failover.Succession(ctx, name, since)
	if s.Asked.IsZero() && !since.IsZero() {
		s.Asked = begin // the Failover of a wrapper may not say
	}
	return s, err
}

// candidates returns the number of replicas that could replace the server: replicas known to the server, or healthy to the other nodes, except
// those in a first synchronization.
func (r *Replicas) candidates(h headcount, s conn.Succession) int {
	if r.server.Failover == nil {
		return len(h.live) + len(h.silent)
	}
	if names := slices.Concat(h.live, h.syncing); len(s.ReplicaAddrs) > 0 && literal(names) == literal(s.ReplicaAddrs) {
		return len(h.live) + len(s.ReplicaAddrs) - common(s.ReplicaAddrs, names)
	}
	// The other nodes name no replicas, or in another way. Their number has no replica away to them alone.
	back := common(h.live, s.AwayAddrs)
	return back + max(len(h.live)-back, s.Replicas-h.syncingNotAway(s))
}

// classifyMuted adds the muted replicas of h, a headcount of the time asked, to the live ones or, if they are muted for firstAck, to those in
// a first synchronization: a replica that loads the data is online, but acknowledges nothing. One with the data does so by then.
func (r *Replicas) classifyMuted(s conn.Succession, h *headcount, asked time.Time) {
	known := len(h.muted) > 0 && h.arrivals != arrivals{}
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.recordOf(s).muted.note(muted{h.arrivals, strings.Join(h.muted, " ")})
	if known && asked.Sub(since) >= firstAck {
		h.syncing = append(h.syncing, h.muted...)
		return
	}
	h.live = append(h.live, h.muted...)
}

// changedAt returns the time of the first headcount with the change of replicas in h since the last count; zero without a change. A replica
// that came and went in between counts as a change: it may have gone to replace the server.
func (r *Replicas) changedAt(s conn.Succession, h headcount) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recordOf(s).changedAt(h)
}

// changedAt is Replicas.changedAt for a record. The caller has mu.
func (st *record) changedAt(h headcount) time.Time {
	if len(h.live) >= st.candidates && h.replicas >= st.checked.replicas && h.arrivals == st.checked.arrivals {
		st.news = lasting[news]{}
		return time.Time{}
	}
	return st.news.note(news{h.attachment, len(h.live)})
}
