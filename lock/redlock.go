package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// RedlockConfig configures a [Redlock]. The zero RedlockConfig is ready to use.
type RedlockConfig struct {
	// NodeTimeout is how long one server may take to answer. It has to be much less than the lease. 0 is 1 % of the lease,
	// but 20 ms at least and 250 ms at most.
	NodeTimeout time.Duration

	// MinValidity is the part of the lease that has to be left when a majority has answered; with less the lock is not
	// taken. 0 is 0.5, 0.9 the most; below 0 whatever is left will do.
	MinValidity float64

	// Quarantine is for how long a server that was started has no vote, since it may have lost a lock that it had granted
	// before. It has to be the longest lease with which anybody takes the lock; no longer one can be asked for. 0 is the
	// longest Lease of the clients. Below 0 is off: each server votes at once, which is right only where none loses data.
	Quarantine time.Duration

	// Pause is the least time before a majority is asked again that could not be had. Up to twice as much is added at
	// random, and more after votes that were split. 0 is 50 ms, and a millisecond the least.
	Pause time.Duration
}

func (c RedlockConfig) withDefaults(nodes []*Handle) RedlockConfig {
	if c.MinValidity == 0 {
		c.MinValidity = 0.5
	}
	if c.Quarantine == 0 {
		for _, h := range nodes {
			c.Quarantine = max(c.Quarantine, h.client.cfg.Lease)
		}
	}
	if c.Pause == 0 {
		c.Pause = 50 * time.Millisecond
	}
	return c
}

// minValidityMax leaves a tenth of the lease for drift and the time that answers take.
const minValidityMax = 0.9

func (c RedlockConfig) validate(nodes []*Handle) error {
	switch {
	case c.NodeTimeout < 0:
		return invalidf("NodeTimeout of %v", c.NodeTimeout)
	case !(c.MinValidity <= minValidityMax):
		return invalidf("MinValidity of %v", c.MinValidity)
	case c.Pause < time.Millisecond:
		return invalidf("Pause of %v", c.Pause)
	}
	for _, h := range nodes {
		if c.Quarantine >= 0 && h.client.cfg.Lease > c.Quarantine {
			return invalidf("Lease of %v with a Quarantine of %v", h.client.cfg.Lease, c.Quarantine)
		}
	}
	return nil
}

// ErrNoQuorum says that so many servers of a [Redlock] could not be asked, or have no vote, that no majority was to be had,
// although it might have been with them. The error names each of them and says why.
var ErrNoQuorum = errors.New("lock: no majority of the servers could be asked")

// Redlock is the algorithm of that name, and Redisson's RedissonRedLock: a lock on several independent servers that is held by
// who has it on a majority of them, so that it can be had and kept while fewer than half of them are down. It never changes
// and may be shared by any number of goroutines.
//
// It is for servers without replicas: one that fails over to a replica may forget what it has granted. A server that was
// restarted has no vote for as long as a lease lasts, unless it writes its AOF with appendfsync always; one that was emptied
// by FLUSHALL cannot be told from one that never had anything. There is no fencing token, since those of several servers do not
// order the holders.
//
// All servers are asked at once. The [Lease] has one lease for each server that granted it as its [Lease.Members], each
// renewed by its own client; it is valid, and held, while a majority of all servers is. A lock that a server has lost is
// not set again there. Unlock gives all of them back at once and returns nil as soon as a majority has confirmed, or when
// no server can have it any more; else the errors together. What was sent without an answer is taken back in the
// background.
//
// In each process one caller at a time asks the servers, the others stand in line behind it. Nobody is told of a release by
// another process: who waits asks again and again.
type Redlock struct {
	cfg    RedlockConfig
	nodes  []*Handle
	quorum int
	term   time.Duration // without For: the shortest Lease of the clients
}

// NewRedlock returns the lock of the nodes, each of them on a server of its own: three, five, or another odd number, of one
// kind. A cluster is no server of its own, and is refused. [Reentrant] locks are what Redisson's RedissonRedLock has; [Plain] ones are those of redsync, redislock and
// node-redlock; no other kind has a meaning here. Two nodes on one server are refused: at once if that shows, and otherwise by
// the first call of Lock or TryLock that can ask the servers who they are.
func NewRedlock(cfg RedlockConfig, nodes ...Member) (*Redlock, error) {
	r := &Redlock{quorum: len(nodes)/2 + 1}
	for _, node := range nodes {
		h := node.member()
		switch k := h.target.kind; {
		case h.err != nil:
			return nil, h.err
		case k != reentrantKind.get() && k != plainKind.get():
			return nil, invalidf("a Redlock of %s locks", k.name)
		case len(r.nodes) > 0 && k != r.nodes[0].target.kind:
			return nil, invalidf("a Redlock of two kinds")
		case h.client.nature.spread != nil:
			return nil, invalidf("a Redlock with a cluster for a node")
		}
		for _, other := range r.nodes {
			if h.sameServer(other) {
				return nil, invalidf("a Redlock with two nodes on one server")
			}
		}
		if r.nodes = append(r.nodes, h); r.term == 0 || h.client.cfg.Lease < r.term {
			r.term = h.client.cfg.Lease
		}
	}
	if n := len(nodes); n < 3 || n%2 == 0 {
		return nil, invalidf("a Redlock of %d nodes", n)
	}
	r.cfg = cfg.withDefaults(r.nodes)
	if err := r.cfg.validate(r.nodes); err != nil {
		return nil, err
	}
	return r, nil
}

// Lock waits for a majority for as long as ctx allows and no longer; see [Handle.Lock] for what it returns then. While too few
// servers can be asked it goes on trying for as long as a lease, and then returns [ErrNoQuorum] together with their
// errors. [As] is refused: a Redlock cannot be taken again by who has it.
func (r *Redlock) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	c, err := r.check(opts)
	if err != nil {
		return nil, err
	}
	leave, stood, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	lease, err := r.contend(ctx, c, leave, stood)
	if err != nil {
		leave()
	}
	return lease, err
}

// TryLock asks the servers once. It returns [ErrNotAcquired] if the lock is somebody else's on so many of them that the others are
// no majority, also when several who tried at the same time have shared them out among themselves; [ErrNoQuorum] if a majority
// was missing those that could not be asked. If the majority took too long it returns a [*LostError] with the reason [Expired].
func (r *Redlock) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	c, err := r.check(opts)
	if err != nil {
		return nil, err
	}
	leave, ok := r.gate().tryEnter(r.line())
	if !ok {
		return nil, ErrNotAcquired
	}
	lease, _, err := r.ask(ctx, c, leave)
	if err != nil {
		leave()
	}
	return lease, err
}

// Do runs fn while it holds the lock, as [Handle.Do] does.
func (r *Redlock) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	lease, err := r.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// ForceUnlock frees the lock on every server, whoever has it, and reports whether anybody had it on one. The error joins
// those of the servers that could not be asked, for which it waits as long as ctx allows.
func (r *Redlock) ForceUnlock(ctx context.Context) (bool, error) { return forceAll(ctx, r.nodes) }

// Info tells of each server, in the order of the nodes, who has the lock there and for how long. The error joins those of
// the servers that could not be asked, for which it waits as long as ctx allows.
func (r *Redlock) Info(ctx context.Context) ([]Info, error) { return infoAll(ctx, r.nodes) }

// candidacy is what one Lock or TryLock asks of every server.
type candidacy struct {
	opts    []Option
	term    time.Duration
	timeout time.Duration
}

const nodeTimeoutMin, nodeTimeoutMax = 20 * time.Millisecond, 250 * time.Millisecond

func (r *Redlock) check(opts []Option) (candidacy, error) {
	c := candidacy{opts: opts, term: r.term, timeout: r.cfg.NodeTimeout}
	for _, o := range opts {
		if o.hasOwner {
			return c, invalidf("an Owner of a Redlock")
		}
		if o.hasLease {
			c.term = o.lease.Truncate(time.Millisecond)
		}
	}
	if c.term < MinLease {
		return c, invalidf("lease of %v, less than %v", c.term, MinLease)
	}
	if r.cfg.Quarantine >= 0 && c.term > r.cfg.Quarantine {
		return c, invalidf("lease of %v, longer than the Quarantine of %v", c.term, r.cfg.Quarantine)
	}
	if c.timeout == 0 {
		c.timeout = min(max(c.term/100, nodeTimeoutMin), nodeTimeoutMax)
	}
	return c, nil
}

// nameOf names the server of a node: by its place among the nodes, and where it is if that is known.
func (r *Redlock) nameOf(h *Handle) string {
	name := fmt.Sprintf("node %d", slices.Index(r.nodes, h)+1)
	if place := h.client.place(); place != "" {
		name += " (" + place + ")"
	}
	return name
}

// gate is the first node's client's: of all who use the lock with that, one at a time asks the servers.
func (r *Redlock) gate() *gates   { return &r.nodes[0].client.gates }
func (r *Redlock) line() entryKey { return r.nodes[0].target.key() }

// enter waits in line for the callers of this process before this one, and for the holder if that is one of them. stood says
// that there were some.
func (r *Redlock) enter(ctx context.Context) (leave func(), stood bool, err error) {
	first := r.nodes[0].client
	turn, leave := r.gate().enter(r.line())
	select {
	case <-turn:
		return leave, false, nil
	default:
	}
	first.counters.waiting.Add(1)
	defer first.counters.waiting.Add(-1)
	select {
	case <-turn:
		return leave, true, nil
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", ErrNotAcquired, ended(ctx))
	case <-first.done:
		err = ErrClosed
	}
	leave()
	return nil, true, err
}

const (
	// redlockSpreadMin and redlockSpread are by how much pauses may differ, in units of Pause: at first, and after several
	// votes that were split.
	redlockSpreadMin, redlockSpread = 2, 32
	// redlockPause bounds what slow servers make of the pause, and redlockPauseMax what split votes do.
	redlockPause, redlockPauseMax = 250 * time.Millisecond, time.Second
)

// contend asks the servers until a majority grants the lock. The lease calls leave when it is over. refused says that somebody
// else was seen to want it.
func (r *Redlock) contend(ctx context.Context, c candidacy, leave func(), refused bool) (*Lease, error) {
	first := r.nodes[0].client
	first.counters.waiting.Add(1)
	defer first.counters.waiting.Add(-1)
	var failing time.Time
	spread := redlockSpreadMin
	for {
		start := time.Now()
		lease, split, err := r.ask(ctx, c, leave)
		switch {
		case err == nil:
			return lease, nil
		case first.isClosed():
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, gaveUp(ctx, refused, err)
		case errors.Is(err, ErrNotAcquired):
			refused, failing = true, time.Time{}
		case !errors.Is(err, ErrNoQuorum) && !errors.Is(err, ErrLost):
			return nil, err
		case failing.IsZero():
			failing = start
		case time.Since(failing) > r.term:
			return nil, err
		}
		if split {
			spread = min(2*spread, redlockSpread)
		} else {
			spread = redlockSpreadMin
		}
		base := max(r.cfg.Pause, min(2*time.Since(start), redlockPause))
		if err := first.sleep(ctx, base+rand.N(max(2*base, min(time.Duration(spread)*base, redlockPauseMax)))); err != nil {
			return nil, err
		}
	}
}

// sleep waits for d. It returns an error if ctx or the client ends before that.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotAcquired, ended(ctx))
	case <-c.done:
		return ErrClosed
	}
}
