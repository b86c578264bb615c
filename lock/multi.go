package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Multi is Redisson's RLock of getMultiLock: several locks, of any kinds and on any servers, that are taken all or none. It
// never changes and may be shared by any number of goroutines.
//
// The locks are taken one after another in an order that is the same in every process: by their names, and where those
// are equal by their servers. So two Multis that have locks in common do not wait for each other for ever, whatever order
// they were given. Others, Redisson's among them, may use another order: so while Lock has some of the locks, it
// waits for the next one for 1.5 s at most, gives all back, pauses, and starts again. In the queue of a [Fair] lock it then
// stands at the end, so that where such a lock is always wanted it may wait for long.
//
// The [Lease] has one lease for each lock as its [Lease.Members], each renewed by its own client. It is lost as soon as one of
// them is, and valid until the first of them ends; the others are kept, but no longer renewed, until Unlock. Unlock gives all of
// them back beside each other and returns nil if every one of them did, else their errors together.
type Multi struct {
	members []*Handle
	aliases aliases
}

// NewMulti returns the lock of all members. A lock that is given twice counts once: the same kind and name, of one client, of
// clients on one server, or of pools with one Target. Two kinds with one name there are refused with [ErrInvalid],
// since one would wait for the other, and so is a name that will not do.
//
// Two locks of one name may also be in one database of one server that has several addresses. Lock and TryLock ask the servers of
// such locks who they are, and return [ErrInvalid] if two of them are one.
func NewMulti(members ...Member) (*Multi, error) {
	m := &Multi{}
	for _, member := range members {
		h := member.member()
		if h.err != nil {
			return nil, h.err
		}
		twin := slices.IndexFunc(m.members, h.sameKey)
		switch {
		case twin < 0:
			m.members = append(m.members, h)
		case m.members[twin].target.kind != h.target.kind:
			return nil, invalidf("%s and %s of one name", m.members[twin].target.kind.name, h.target.kind.name)
		}
	}
	if len(m.members) == 0 {
		return nil, invalidf("a lock of no locks")
	}
	m.aliases.suspect(m.members)
	slices.SortStableFunc(m.members, func(a, b *Handle) int {
		return cmp.Or(cmp.Compare(a.target.name, b.target.name), cmp.Compare(a.client.place(), b.client.place()))
	})
	return m, nil
}

// sameKey reports whether two locks are the same key of the same server, as far as that is known.
func (h *Handle) sameKey(other *Handle) bool {
	return h.target.name == other.target.name && h.sameServer(other)
}

func (h *Handle) sameServer(other *Handle) bool {
	a, b := h.client, other.client
	return a == b || a.nature.same(&b.nature) || a.place() != "" && a.place() == b.place()
}

const (
	// multiWait is how long a lock is waited for while others are held.
	multiWait = 1500 * time.Millisecond
	// multiPauseMin and multiPauseMax bound the growing pauses before the locks are tried again, of which up to a half
	// is taken at random.
	multiPauseMin, multiPauseMax = 20 * time.Millisecond, 500 * time.Millisecond
)

// Lock waits for all of the locks for as long as ctx allows and no longer; see [Handle.Lock] for what it returns then. With
// [For] the lease counts from when all are held. An [Owner] passed by [As] takes the locks of its own client; give one for each
// client whose locks are to be taken again.
func (m *Multi) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	plan, err := m.plan(opts)
	if err != nil {
		return nil, err
	}
	if err := m.aliases.find(ctx, false); err != nil {
		return nil, err
	}
	pause, refused := multiPauseMin, false
	var failing time.Time
	for {
		parts, err := plan.collect(ctx, false)
		if err == nil {
			var whole *Lease
			if whole, err = plan.join(ctx, parts); err == nil {
				return whole, nil
			}
		}
		rollback(ctx, parts)
		if len(parts) > 0 && errors.Is(err, ErrNotAcquired) {
			if err := m.aliases.find(ctx, true); err != nil {
				return nil, err
			}
		}
		switch {
		case ctx.Err() != nil && (refused || len(parts) > 0):
			return nil, gaveUp(ctx, refused, err)
		case ctx.Err() != nil, !errors.Is(err, errPartly):
			return nil, err
		case errors.Is(err, ErrNotAcquired):
			refused, failing = true, time.Time{}
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > plan.patience:
			return nil, err
		}
		if err := m.members[0].client.sleep(ctx, pause-rand.N(pause/2)); err != nil {
			return nil, err
		}
		pause = min(2*pause, multiPauseMax)
	}
}

// TryLock takes all of the locks if they are free, or the Owners' already. It asks for one after another, and gives those that
// it has got back when there is one that it does not get, whose error it returns.
func (m *Multi) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	plan, err := m.plan(opts)
	if err != nil {
		return nil, err
	}
	if err := m.aliases.find(ctx, false); err != nil {
		return nil, err
	}
	parts, err := plan.collect(ctx, true)
	if err == nil {
		var whole *Lease
		if whole, err = plan.join(ctx, parts); err == nil {
			return whole, nil
		}
	}
	rollback(ctx, parts)
	if len(parts) > 0 && errors.Is(err, ErrNotAcquired) {
		if err := m.aliases.find(ctx, true); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// Do runs fn while it holds all of the locks, as [Handle.Do] does.
func (m *Multi) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	lease, err := m.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// ForceUnlock frees each of the locks whoever has it, as [Handle.ForceUnlock] does, and reports whether anybody had one.
// It asks for all of them beside each other; the error joins theirs.
func (m *Multi) ForceUnlock(ctx context.Context) (bool, error) { return forceAll(ctx, m.members) }

// Info tells of each of the locks who has it and for how long, in the order in which they are taken. The error joins
// theirs; what there is no answer about is zero.
func (m *Multi) Info(ctx context.Context) ([]Info, error) { return infoAll(ctx, m.members) }

// errPartly marks what may be different the next time: some of the locks were there and another was not.
var errPartly = errors.New("lock: not all of the locks")

// partly is an error as it was, and an errPartly.
type partly struct{ error }

func (partly) Is(target error) bool { return target == errPartly }
func (p partly) Unwrap() error      { return p.error }

// gaveUp is the error of a Lock of several locks that ended with ctx, the last try with an error; refused says that there was
// one before that found somebody else to have a lock.
func gaveUp(ctx context.Context, refused bool, last error) error {
	if refused || last == nil || errors.Is(last, ErrNotAcquired) {
		return fmt.Errorf("%w: %w", ErrNotAcquired, ended(ctx))
	}
	return fmt.Errorf("lock: %w, and the server could not be asked: %w", ended(ctx), last)
}

// multiPlan is what one Lock or TryLock asks of each member.
type multiPlan struct {
	members  []*Handle
	opts     [][]Option    // of each member
	lease    time.Duration // that was asked for with For, else 0
	patience time.Duration // with servers that cannot be asked
}

func (m *Multi) plan(opts []Option) (*multiPlan, error) {
	p := &multiPlan{members: m.members, opts: make([][]Option, len(m.members))}
	for _, o := range opts {
		used := !o.hasOwner
		for i, h := range m.members {
			if o.hasOwner && (o.owner == nil || o.owner.client != h.client) {
				continue
			}
			used = true
			p.opts[i] = append(p.opts[i], o)
		}
		if !used {
			return nil, invalidf("an Owner of a Client that has none of the locks")
		}
		if o.hasLease {
			p.lease = o.lease.Truncate(time.Millisecond)
		}
	}
	for i, h := range m.members {
		if _, err := h.client.newRequest(h.target, p.opts[i]); err != nil {
			return nil, err
		}
		p.patience = max(p.patience, h.client.cfg.Lease)
	}
	return p, nil
}

// collect takes the locks in order and returns the leases of those it has got, with the error of the one it has not.
func (p *multiPlan) collect(ctx context.Context, try bool) (parts []*Lease, err error) {
	since := time.Now()
	for i, h := range p.members {
		var part *Lease
		switch {
		case try:
			part, err = h.client.tryLock(ctx, h.target, p.opts[i])
		case i == 0:
			part, err = h.Lock(ctx, p.opts[i]...)
		default:
			part, err = p.next(ctx, i)
		}
		if err != nil {
			return parts, err
		}
		parts = append(parts, part)
		if p.lease > 0 && i+1 < len(p.members) && time.Since(since) > p.lease/4 {
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
		wait = min(wait, p.lease/4) // those that are held are not renewed meanwhile
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	h := p.members[i]
	part, err := h.Lock(bounded, p.opts[i]...)
	if err != nil && (bounded.Err() != nil || passing(err)) {
		err = partly{err}
	}
	return part, err
}

// join makes one lease of those of all members. With For it counts from now.
func (p *multiPlan) join(ctx context.Context, parts []*Lease) (*Lease, error) {
	if p.lease > 0 && len(parts) > 1 {
		if err := refresh(ctx, parts); err != nil {
			return nil, err
		}
	}
	whole := newWhole(len(parts), true, parts, nil)
	if err := whole.Err(); err != nil {
		return nil, partly{err}
	}
	return whole, nil
}

// rollback gives back what was taken in vain. It is done in the background where ctx does not leave the time for it.
func rollback(ctx context.Context, parts []*Lease) {
	outcomes := unlockAll(ctx, parts)
	for range parts {
		select {
		case <-outcomes:
		case <-ctx.Done():
			return
		}
	}
}

// refresh extends leases that the watchdog does not, each only if it is still its owner's: from now on they last as long as
// they did at first. An error says that one is lost, or that its server could not be asked.
func refresh(ctx context.Context, leases []*Lease) error {
	rest := slices.Clone(leases)
	for len(rest) > 0 {
		first := rest[0]
		same, others := rest[:0:0], rest[:0:0]
		for _, l := range rest {
			if l.client == first.client && l.client.route(l.target.name) == first.client.route(first.target.name) {
				same = append(same, l)
			} else {
				others = append(others, l)
			}
		}
		if err := refreshOn(ctx, first.client, same); err != nil {
			return err
		}
		rest = others
	}
	return nil
}

// refreshOn is refresh for leases of one client on one server.
func refreshOn(ctx context.Context, c *Client, leases []*Lease) error {
	start := c.now()
	answers, err := c.askRenewals(ctx, leases, false)
	if err != nil {
		return partly{serverError(err)}
	}
	for _, a := range answers {
		switch l := a.lease; {
		case a.err != nil && passing(a.err):
			return partly{serverError(a.err)}
		case a.err != nil:
			return serverError(a.err)
		case a.outcome == 0:
			l.denied(Forced, nil)
		case a.outcome < 0:
			l.denied(Taken, nil)
		default:
			l.extend(start)
		}
		if err := a.lease.Err(); err != nil {
			return partly{err}
		}
	}
	return nil
}

// forceAll is ForceUnlock of many locks.
func forceAll(ctx context.Context, handles []*Handle) (bool, error) {
	forced := make([]bool, len(handles))
	err := atOnce(handles, func(i int, h *Handle) (err error) {
		forced[i], err = h.client.forceUnlock(ctx, h.target)
		return err
	})
	return slices.Contains(forced, true), err
}

// infoAll is Info of many locks.
func infoAll(ctx context.Context, handles []*Handle) ([]Info, error) {
	infos := make([]Info, len(handles))
	err := atOnce(handles, func(i int, h *Handle) (err error) {
		infos[i], err = h.client.info(ctx, h.target)
		return err
	})
	return infos, err
}

// atOnce calls fn for all handles beside each other and joins the errors.
func atOnce(handles []*Handle, fn func(i int, h *Handle) error) error {
	errs := make([]error, len(handles))
	var wg sync.WaitGroup
	for i, h := range handles {
		wg.Go(func() { errs[i] = fn(i, h) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
