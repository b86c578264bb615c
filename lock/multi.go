package lock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Multi is Redisson's RLock of getMultiLock: several locks, acquired all or none. The locks may be of any kinds and on any
// servers. A Multi is immutable, and many goroutines may share it.
//
// A Multi acquires its locks one after another, in the order of their names and then of their servers. Every process uses
// the same order, so two Multis with common locks cannot deadlock. Other clients, such as Redisson, may use another order.
// While holding some locks, Lock therefore waits at most 1.5 s for the next lock; then it releases all, pauses, and starts
// again. In the queue of a [Fair] lock every new start is at the end, so Lock may wait long for a contended Fair lock.
//
// The [Lease] has a lease per lock, returned by [Lease.Members]; each member is renewed by its own client. The Lease is lost
// with the first lost member, and valid until the first member's end. After a loss the other members are held until
// Unlock but no longer renewed. Unlock releases all members concurrently and joins their errors.
type Multi struct {
	several
	aliases aliases
}

// NewMulti returns a Multi of the members. Members with the same kind, name and server count once. Two clients have the same
// server if they share a Server, or if their pools have the same Target. NewMulti returns [ErrInvalid] for an invalid
// name, and for two kinds of the same name on a server, because the second would wait for the first.
//
// A server may also have several addresses. Lock and TryLock ask the servers of equal names for their identity, and return
// [ErrInvalid] if two servers are the same.
func NewMulti(members ...Member) (*Multi, error) {
	m := &Multi{}
	for _, member := range members {
		h, err := handleOf(member)
		switch {
		case err != nil:
			return nil, err
		case h.target.values != "": // the name alone does not tell it from others
			return nil, h.client.invalid(h.target.Name, "a Multi of a FasterMulti")
		}
		twin := slices.IndexFunc(m.members, func(other *Handle) bool { return h.target.Name == other.target.Name && h.sameServer(other) })
		switch {
		case twin < 0:
			m.members = append(m.members, h)
		case m.members[twin].target.kind != h.target.kind:
			return nil, h.client.invalid(h.target.Name, "%s and %s of one name", m.members[twin].target.kind.Name, h.target.kind.Name)
		}
	}
	if len(m.members) == 0 {
		return nil, invalidf("a Multi without locks")
	}
	m.aliases.suspect(m.members)
	slices.SortStableFunc(m.members, func(a, b *Handle) int {
		return cmp.Or(cmp.Compare(a.target.Name, b.target.Name), cmp.Compare(a.client.nature.data, b.client.nature.data))
	})
	return m, nil
}

const (
	// multiWait limits the wait for a lock while other locks are held.
	multiWait = 1500 * time.Millisecond
	// multiPauseMin and multiPauseMax bound the growing pauses between attempts. A random part, up to half, is subtracted
	// from each pause.
	multiPauseMin, multiPauseMax = 20 * time.Millisecond, 500 * time.Millisecond
)

// Lock waits for all locks until ctx ends; [Handle.Lock] describes the error. A lease set by [For] starts when all locks are
// held. An [Owner] passed by [As] applies to the locks of its own client; pass an Owner per client to take locks again.
func (m *Multi) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.acquire(ctx, opts, false)
}

// acquire is Lock, or with try TryLock.
func (m *Multi) acquire(ctx context.Context, opts []Option, try bool) (whole *Lease, err error) {
	plan, err := m.plan(opts)
	if err != nil {
		return nil, err
	}
	first := m.members[0]
	start := AcquireStart{Client: first.client, Kind: "multi", Name: first.target.Name, Try: try, Lease: plan.lease, Members: len(m.members), Standby: standsBy(plan.opts[0])}
	if plan.lease == 0 {
		start.Lease, start.Renewed = first.client.cfg.Lease, true
	}
	ctx, traced := first.client.cfg.Trace.beginAcquire(ctx, start)
	if traced != nil {
		ctx = context.WithValue(ctx, partOf{}, true)
	}
	switch err = m.aliases.find(ctx, false); {
	case err != nil:
	case try:
		whole, _, err = m.attempt(ctx, plan, true)
	default:
		whole, err = m.lockAll(ctx, plan)
	}
	traced.done(ctx, whole, err)
	return whole, err
}

// attempt asks for the locks one after another. After a failure it releases the acquired locks, and reports whether there were some.
func (m *Multi) attempt(ctx context.Context, plan *multiPlan, try bool) (whole *Lease, some bool, err error) {
	parts, err := plan.collect(ctx, try)
	if err == nil {
		whole = newWhole(len(parts), true, parts, func(bool) {}, 0)
		if err = whole.Err(); err == nil {
			return whole, true, nil
		}
		err = partly{err}
	}
	rollback(ctx, parts)
	if some = len(parts) > 0; some && errors.Is(err, ErrNotAcquired) {
		if twice := m.aliases.find(ctx, true); twice != nil {
			return nil, some, twice
		}
	}
	return nil, some, err
}

func (m *Multi) lockAll(ctx context.Context, plan *multiPlan) (*Lease, error) {
	first, pause := m.members[0], multiPauseMin
	history := waited{since: time.Now(), last: &NotAcquiredError{Name: first.target.Name, Kind: first.target.kind.Name, log: first.client.log}}
	history.standby = standsBy(plan.opts[0])
	var failing time.Time
	for {
		whole, some, err := m.attempt(ctx, plan, false)
		asked := history.note(err)
		_, again := errors.AsType[partly](err)
		switch {
		case err == nil:
			whole.warnWaited(history.since)
			return whole, nil
		case errors.Is(err, ErrInvalid):
			return nil, err
		case ctx.Err() != nil && (history.refused || some || !asked && history.failure != nil):
			return nil, history.end(ctx, first.client, history.last)
		case ctx.Err() != nil, !again:
			return nil, err
		case errors.Is(err, ErrNotAcquired):
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > plan.patience:
			return nil, err
		}
		history.warn(first.client, history.last)
		if first.client.sleep(ctx, pause-rand.N(pause/2)) != nil {
			return nil, history.end(ctx, first.client, history.last)
		}
		pause = min(2*pause, multiPauseMax)
	}
}

// TryLock acquires all locks if each is free or already held by a passed Owner. TryLock asks for the locks one after
// another. At the first failure it releases the acquired locks and returns the error.
func (m *Multi) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.acquire(ctx, opts, true)
}

// Do runs fn while holding all locks; see [Handle.Do].
func (m *Multi) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	return run(ctx, m.Lock, fn, opts)
}

// partly is the error of an attempt that acquired only some of the locks. The next attempt may succeed.
type partly struct{ error }

func (p partly) Unwrap() error { return p.error }

// multiPlan is a Lock or TryLock, with its options divided among the members.
type multiPlan struct {
	members  []*Handle
	opts     [][]Option    // of each member
	lease    time.Duration // set by For, else 0
	patience time.Duration // time for which Lock tolerates unreachable servers
}

func (m *Multi) plan(opts []Option) (*multiPlan, error) {
	p := &multiPlan{members: m.members, opts: make([][]Option, len(m.members))}
	for _, o := range opts {
		if o.keeps() {
			return nil, invalidf("AtLeast of a Multi")
		}
		used := !o.hasOwner
		for i, h := range m.members {
			if o.hasOwner && (o.owner == nil || o.owner.client != h.client.id) {
				continue
			}
			used = true
			p.opts[i] = append(p.opts[i], o)
		}
		if !used {
			return nil, invalidf("an Owner whose Client has none of the locks")
		}
	}
	for i, h := range m.members {
		r, err := h.request(p.opts[i], 0)
		if err != nil {
			return nil, err
		}
		if !r.renewed {
			p.lease = r.lease
		}
		p.patience = max(p.patience, h.client.cfg.Lease)
	}
	return p, nil
}

// collect acquires the locks in order. A lease set by For starts when all are held, and is extended on the way. After a failure collect returns
// the leases acquired so far and the error.
func (p *multiPlan) collect(ctx context.Context, try bool) (parts []*Lease, err error) {
	since := time.Now()
	for i, h := range p.members {
		var part *Lease
		switch {
		case try:
			part, err = h.TryLock(ctx, p.opts[i]...)
		case i == 0:
			part, err = h.Lock(ctx, p.opts[i]...)
		default:
			part, err = p.next(ctx, i)
		}
		if err != nil {
			return parts, err
		}
		parts = append(parts, part)
		if last := i == len(p.members)-1; p.lease > 0 && (last && i > 0 || !last && time.Since(since) > p.lease/4) {
			if err := refresh(ctx, parts); err != nil {
				return parts, err
			}
			since = time.Now()
		}
	}
	return parts, nil
}

// next waits for a lock while others are held.
func (p *multiPlan) next(ctx context.Context, i int) (*Lease, error) {
	wait := multiWait
	if p.lease > 0 {
		wait = min(wait, p.lease/4) // the held locks are not renewed during the wait
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	h := p.members[i]
	part, err := h.Lock(bounded, p.opts[i]...)
	if err != nil && (bounded.Err() != nil || temporary(err)) {
		err = partly{err}
	}
	return part, err
}

// rollback releases the locks of a failed attempt. After the end of ctx the releases go on in the background.
func rollback(ctx context.Context, parts []*Lease) {
	outcomes := unlockAll(ctx, parts, true)
	for range parts {
		select {
		case <-outcomes:
		case <-ctx.Done():
			return
		}
	}
}

// refresh extends leases not renewed by the watchdog to their full term from now, if their owners still hold the locks. It
// returns an error if a lease is lost or a server could not be asked.
func refresh(ctx context.Context, leases []*Lease) error {
	type server struct {
		client *Client
		route  string
	}
	serverOf := func(l *Lease) server { return server{l.client, l.client.remote.Route(l.target.Name)} }
	for _, same := range remote.Partition(leases, serverOf) {
		c := same[0].client
		start := c.now()
		for _, a := range (renewals{c}).ask(ctx, same, same[0].term.Milliseconds()) {
			l := a.Lease
			if mayExtend(a.Err) {
				l.mayLast(l.term)
			}
			switch {
			case a.Err != nil && temporary(a.Err):
				return partly{serverError(a.Err)}
			case a.Err != nil:
				return serverError(a.Err)
			case a.Outcome <= 0:
				l.notRenewed(a.Outcome < 0)
			default:
				l.countFrom(start, l.term)
			}
			if err := l.Err(); err != nil {
				return partly{err}
			}
		}
	}
	return nil
}
