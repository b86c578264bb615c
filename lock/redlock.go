package lock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// RedlockConfig configures a [Redlock]. The zero RedlockConfig is ready to use.
type RedlockConfig struct {
	// NodeTimeout limits the wait for the answer of a server. It must be much shorter than the lease, and longer than the
	// round trip to a majority of the servers; otherwise Lock ends with [ErrNoQuorum]. 0 is 1 % of the lease, at least 20 ms
	// and at most 250 ms.
	NodeTimeout time.Duration

	// MinValidity is the share of the lease, or of a shorter time set by [AtMost], that must remain when a majority has
	// answered; with a smaller share the lock is not acquired. 0 is 0.5; the maximum is 0.9; below 0 any remaining time is accepted.
	MinValidity float64

	// Quarantine is the time after a server's start without a vote, because the server may have lost granted locks. It must
	// be the longest lease used for the lock by any process; a longer lease is refused. Callers of Redisson's RedLock need as
	// much as their wait and their lease together. 0 is the longest Lease of the clients. Below 0 is off: a server votes at once after
	// its start; use a negative value only if no server loses data.
	Quarantine time.Duration

	// Pause is the minimum time between attempts of Lock for Plain locks, and with too many servers unreachable. Lock adds a random
	// time of up to twice Pause. 0 is 50 ms; the minimum is 1 ms.
	Pause time.Duration
}

func (c RedlockConfig) withDefaults(longest time.Duration) RedlockConfig {
	c.MinValidity = cmp.Or(c.MinValidity, 0.5)
	c.Pause = cmp.Or(c.Pause, 50*time.Millisecond)
	c.Quarantine = cmp.Or(c.Quarantine, longest)
	return c
}

// backoff returns the pause of a waiter for Plain locks.
func (c *RedlockConfig) backoff(int, time.Duration) time.Duration { return c.Pause + rand.N(2*c.Pause) }

// minValidityMax leaves a tenth of the lease for clock drift and slow answers.
const minValidityMax = 0.9

// validate rejects settings that cannot work with clients whose longest Lease is longest.
func (c RedlockConfig) validate(longest time.Duration) error {
	switch {
	case c.NodeTimeout < 0:
		return invalidf("NodeTimeout of %v", c.NodeTimeout)
	case !(c.MinValidity <= minValidityMax):
		return invalidf("MinValidity of %v", c.MinValidity)
	case c.Pause < time.Millisecond || c.Pause > maxLease:
		return invalidf("Pause of %v", c.Pause)
	case c.Quarantine >= 0 && longest > c.Quarantine:
		return invalidf("Lease of %v with a Quarantine of %v", longest, c.Quarantine)
	}
	return nil
}

// ErrNoQuorum: too many servers of a [Redlock] could not be asked or had no vote, and with their votes a majority would have
// been possible. The error names each of these servers with the reason.
var ErrNoQuorum = errors.New("lock: no majority of the servers could be asked")

// Redlock is the Redlock algorithm, and Redisson's RedissonRedLock: a lock on several independent servers. The holder has
// the lock on a majority of the servers, so the lock works while fewer than half of the servers are down. A Redlock is
// immutable, and many goroutines may share it.
//
// Use servers without replicas: after a failover a replica may not know granted locks. A restarted server has no vote for
// RedlockConfig.Quarantine, unless it writes its AOF with appendfsync always: do not turn that on by a restart while locks are held. A server emptied
// by FLUSHALL is not detected.
// A Redlock has no fencing token, because tokens of several servers do not order the holders.
// Open the clients of the nodes with conn.New: conn.Open fails while its server is down.
//
// Lock asks all servers at once. The [Lease] has a lease per granting server, returned by [Lease.Members]; each member is
// renewed by its own client. The Lease is held while a majority of all servers holds the lock. A lock lost by a server is
// not set there again. Unlock releases all members at once; it returns nil after the confirmation of a majority, or if no
// server can have the lock any more, else the joined errors. Requests without an answer are undone in the background.
//
// In each process a single caller asks the servers; the other callers wait in line. The processes that wait for [Reentrant] locks stand in the
// line of one server, in which they have their turns in order, near to the servers or far away: the first node, or the next one while that fails.
// So all processes should have the nodes in the same order, as Redisson's clients, the nearest server first. With another order the lock stays as safe,
// but waits are longer, and turns are less even. A waiting process looks every two to ten seconds whether its server still answers; after a failure it
// has the lock some seconds later than usual. A [Plain] lock has no line: its waiters ask the first server again and again.
type Redlock struct {
	several // the nodes, in the order of the caller
	cfg     RedlockConfig
	quorum  int
	term    time.Duration // without For: the shortest Lease of the clients
	first   *Client       // of the first node: has the gates
	key     entryKey      // of the Redlock there
}

// NewRedlock returns the Redlock of the nodes. The number of nodes is odd and at least three, each node is on a separate
// server, and all nodes have the same kind:
//
//   - [Reentrant], compatible with Redisson's RedissonRedLock
//   - [Plain], compatible with redsync, redislock and node-redlock
//
// A cluster is refused as a node. Two nodes on the same server are refused, by NewRedlock or by the first Lock or TryLock
// able to ask the servers for their identity.
func NewRedlock(cfg RedlockConfig, nodes ...Member) (*Redlock, error) {
	r := &Redlock{quorum: len(nodes)/2 + 1}
	for _, node := range nodes {
		h, err := handleOf(node)
		if err != nil {
			return nil, err
		}
		switch k := h.target.kind; {
		case k != reentrantKind.Get() && k != plainKind.Get():
			return nil, invalidf("a Redlock of %s locks", k.Name)
		case len(r.members) > 0 && k != r.members[0].target.kind:
			return nil, invalidf("a Redlock of two kinds")
		case h.client.nature.spread != nil:
			return nil, invalidf("a Redlock with a cluster for a node")
		case slices.ContainsFunc(r.members, h.sameServer):
			return nil, invalidf("a Redlock with two nodes on one server")
		}
		r.members = append(r.members, h)
	}
	if n := len(nodes); n < 3 || n%2 == 0 {
		return nil, invalidf("a Redlock of %d nodes", n)
	}
	r.first, r.key = r.members[0].client, r.members[0].target.awaitedAs()
	r.term = r.first.cfg.Lease
	longest := r.term
	for _, h := range r.members {
		r.term, longest = min(r.term, h.client.cfg.Lease), max(longest, h.client.cfg.Lease)
	}
	r.cfg = cfg.withDefaults(longest)
	if err := r.cfg.validate(longest); err != nil {
		return nil, err
	}
	return r, nil
}

// Lock waits for a majority until ctx ends; [Handle.Lock] describes the error. If fewer servers than a majority answer, Lock
// tries for the length of the shortest Lease of the clients and then returns [ErrNoQuorum] with the servers' errors. [As] is
// refused: a holder cannot take a Redlock again.
func (r *Redlock) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return r.acquire(ctx, opts, false)
}

// acquire is Lock, or with try TryLock.
func (r *Redlock) acquire(ctx context.Context, opts []Option, try bool) (lease *Lease, err error) {
	c, err := r.check(opts)
	if err != nil {
		return nil, err
	}
	ctx, c.traced = r.first.cfg.Trace.beginAcquire(ctx, AcquireStart{
		Client: r.first, Kind: "redlock", Name: r.key.name, Try: try, Lease: c.term, Renewed: c.renewed, Members: len(r.members), Standby: standsBy(c.opts),
	})
	if try {
		lease, err = r.tryLock(ctx, c)
	} else {
		lease, err = r.lock(ctx, c)
	}
	if _, unnamed := err.(*noQuorumError); unnamed {
		err = r.first.about(r.key.name, err)
	}
	c.traced.done(ctx, lease, err)
	return lease, err
}

// lock is Lock for a checked call. The lease calls leave at its end.
func (r *Redlock) lock(ctx context.Context, c redlockCall) (lease *Lease, err error) {
	r.first.counters.waiting.Add(1)
	defer r.first.counters.waiting.Add(-1)
	history := waited{since: time.Now(), standby: standsBy(c.opts)}
	turn, leave := r.first.gates.Enter(r.key)
	err = r.awaitTurn(ctx, turn, &history)
	c.traced.leftLine(history.since)
	if err == nil {
		lease, err = r.contend(ctx, c, r.leaving(leave), &history)
	}
	if err != nil {
		leave()
		return nil, err
	}
	lease.warnWaited(history.since)
	return lease, nil
}

// TryLock asks the servers once. TryLock returns:
//
//   - [ErrNotAcquired] if other owners hold the lock on so many servers that the rest is no majority; concurrent callers may
//     split the votes so that all of them fail; also at once beside another caller of this process, unless that one's last
//     attempt has failed with ErrNoQuorum
//   - [ErrNoQuorum] if servers without an answer or vote prevented a majority
//   - a [*LostError] with the reason [Expired] if the majority answered too late
func (r *Redlock) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return r.acquire(ctx, opts, true)
}

// tryLock is TryLock for a checked call.
func (r *Redlock) tryLock(ctx context.Context, c redlockCall) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, r.untried(ctx)
	}
	leave, ok := r.first.gates.TryEnter(r.key)
	if !ok {
		if failure := r.first.gates.Failure(r.key, nil); errors.Is(failure, ErrNoQuorum) { // of a caller in front, moments ago
			return nil, failure
		}
		return nil, r.refusal()
	}
	lease, err := r.ask(ctx, &c, r.leaving(leave))
	if err != nil {
		leave()
	}
	return lease, err
}

// ask asks all servers once, and calls ended at the end of the returned lease.
func (r *Redlock) ask(ctx context.Context, c *redlockCall, ended func(bool)) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, r.untried(ctx)
	}
	if err := r.identify(ctx, c.timeout); err != nil {
		return nil, err
	}
	b := r.newBallot(ctx, c, ended)
	b.begin(ctx, -1)
	return b.await(ctx)
}

// untried returns the error of a call whose context had ended before.
func (r *Redlock) untried(ctx context.Context) error {
	e := r.refusal()
	e.untried = true
	return new(waited).end(ctx, r.first, e)
}

// Do runs fn while holding the lock; see [Handle.Do].
func (r *Redlock) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	return run(ctx, r.Lock, fn, opts)
}

// redlockCall has the request of a Lock or TryLock to every server.
type redlockCall struct {
	traced  *acquiring // for the Trace; nil if not traced
	opts    []Option
	term    time.Duration
	renewed bool // without For
	timeout time.Duration
	answers bool // a look of the last wait in line had the answers of a majority
}

// identify returns an error if two of the servers are one. Each client asks its server once for an unknown identity;
// a server that does not answer in time is identified with its vote.
func (r *Redlock) identify(ctx context.Context, timeout time.Duration) error {
	if slices.ContainsFunc(r.members, func(h *Handle) bool { return h.client.identity.Unasked() }) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		atOnce(r.members, func(_ int, h *Handle) { h.client.identity.Ask(ctx) })
	}
	return r.distinct()
}

// distinct returns an error if two of the servers are known to be one.
func (r *Redlock) distinct() error {
	seen := make(map[string]bool, len(r.members))
	for _, h := range r.members {
		id := h.client.identity.ID()
		if id != "" && seen[id] {
			return invalidf("a Redlock with two nodes on one server")
		}
		seen[id] = true
	}
	return nil
}

func (r *Redlock) check(opts []Option) (redlockCall, error) {
	c := redlockCall{opts: opts, term: r.term, renewed: true, timeout: r.cfg.NodeTimeout}
	for _, o := range opts {
		switch {
		case o.hasOwner:
			return c, invalidf("an Owner of a Redlock")
		case o.keeps():
			return c, invalidf("AtLeast of a Redlock")
		case o.hasLease:
			c.term, c.renewed = o.lease.Truncate(time.Millisecond), false
		}
	}
	if len(opts) > 0 { // without options a request is valid, as is the Config of its client
		for _, h := range r.members {
			if _, err := h.request(opts, 0); err != nil {
				return c, err
			}
		}
	}
	if r.cfg.Quarantine >= 0 && c.term > r.cfg.Quarantine {
		return c, invalidf("lease of %v, longer than the Quarantine of %v", c.term, r.cfg.Quarantine)
	}
	if c.timeout == 0 {
		c.timeout = min(max(c.term/100, nodeTimeoutMin), nodeTimeoutMax)
	}
	return c, nil
}

// awaitTurn waits in line behind earlier callers of this process, including a holder. A caller that has to wait learns whether the servers have
// answered them: then the lock was refused to them, or was theirs.
func (r *Redlock) awaitTurn(ctx context.Context, turn <-chan struct{}, history *waited) error {
	select {
	case <-turn:
		return nil
	default:
	}
	var late <-chan time.Time
	if after := r.first.cfg.WarnAfter; after > 0 {
		late = time.After(after)
	}
	over := false
	for waits := true; waits; {
		select {
		case <-turn:
			waits = false
		case <-late:
			history.warn(r.first, r.refusal())
		case <-ctx.Done():
			waits, over = false, true
		case <-r.first.done:
			return ErrClosed
		}
	}
	history.failure = r.first.gates.Failure(r.key, turn)
	history.refused = history.failure == nil
	if over {
		return r.gaveUp(ctx, history)
	}
	return nil
}

// leaving returns what the end of a lease calls.
func (r *Redlock) leaving(leave func()) func(awaited bool) {
	return func(awaited bool) {
		r.first.wanted.Set(r.key, awaited)
		leave()
	}
}

// refusal returns the error for a Redlock that belongs to another owner. The error names an owner in this process.
func (r *Redlock) refusal() *NotAcquiredError {
	e := &NotAcquiredError{Name: r.key.name, Kind: "redlock", log: r.first.log}
	for _, h := range r.members {
		for _, l := range h.client.table.holdsOf(h.target.heldAs(), "", nil) {
			if l.whole.Load() != nil {
				e.Holder, e.HeldFor = l.Owner(), l.age()
				return e
			}
		}
	}
	return e
}

// gaveUp returns the error of a wait that ended with ctx. Without a holder in this process the error names the one on the anchor, if known.
func (r *Redlock) gaveUp(ctx context.Context, history *waited) error {
	e := r.refusal()
	if last := history.last; e.Holder == "" && last != nil {
		e.Holder, e.HeldFor, e.Process, e.HolderErr, e.Remaining, e.seen = last.Holder, last.HeldFor, last.Process, last.HolderErr, last.Remaining, last.seen
	}
	return history.end(ctx, r.first, e)
}
