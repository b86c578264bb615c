package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

// group is the state of a lease with Members. Each part is a lease of its own client, which renews, watches and releases
// the part.
type group struct {
	whole   *Lease
	quorum  int                // the number of held parts that the whole requires
	all     bool               // a release succeeds only if all parts are released
	longest time.Duration      // limits Extend; 0 or less is no limit
	ended   func(awaited bool) // called once, when the whole is released or lost: see finish
	over    sync.Once          // guards ended

	// Guarded by the mu of the whole.
	parts      []*Lease // never changed in place
	armed      bool
	extendedTo time.Time // the latest end that an Extend has asked for, for parts that join later; zero for none
}

// newWhole makes one lease of parts. The whole's next Err reports earlier losses of parts.
func newWhole(quorum int, all bool, parts []*Lease, ended func(awaited bool), longest time.Duration) *Lease {
	first := parts[0]
	l := &Lease{hold: hold{client: first.client, target: first.target, owner: first.owner}, grantedAt: first.client.now()}
	l.renewed, l.standby, l.limits = first.renewed, first.standby, first.limits
	l.group = &group{whole: l, quorum: quorum, all: all, parts: parts, ended: ended, longest: longest}
	for _, p := range parts {
		p.whole.Store(l)
	}
	return l
}

func (g *group) name() string {
	if g.all {
		return "multi"
	}
	return "redlock"
}

// Members returns the parts of this lease, for a [Multi] in the order of their acquisition; nil for a lease without
// parts. Use the members to read tokens, owners and times. Releasing a member loses the whole.
func (l *Lease) Members() []*Lease {
	if l.group == nil {
		return nil
	}
	return slices.Clone(l.group.members())
}

func (g *group) members() []*Lease {
	g.whole.mu.Lock()
	defer g.whole.mu.Unlock()
	return g.parts
}

// join adds a part to a held lease, and reports false if the lease has ended. The part is extended like the others were.
func (g *group) join(ctx context.Context, part *Lease) bool {
	l := g.whole
	l.mu.Lock()
	joined, rest := l.phase == held, time.Until(g.extendedTo)
	if joined {
		g.parts = append(slices.Clip(g.parts), part)
		part.whole.Store(l)
		if g.armed {
			part.arm()
		}
	}
	l.mu.Unlock()
	if joined && rest > 0 {
		_ = extendPart(ctx, part, rest) // else it ends at its own time, like a part that Extend did not reach
	}
	return joined
}

// armLocked arms the deadline of each part. The whole needs no timer of its own.
func (g *group) armLocked() {
	if g.whole.phase != held {
		return
	}
	g.armed = true
	for _, p := range g.parts {
		p.arm()
	}
}

func (l *Lease) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armLocked()
}

// mustStopContexts reports whether StopBefore requires the end of contexts: enough parts are held, but not enough of them for longer than
// their StopBefore.
func (g *group) mustStopContexts() bool {
	living, longer := 0, 0
	for _, p := range g.members() {
		until, ok := p.alive()
		if !ok {
			continue
		}
		living++
		if stop := p.limits[stopBefore]; stop == 0 || time.Until(until) > stop {
			longer++
		}
	}
	return living >= g.quorum && longer < g.quorum
}

func (g *group) validUntil() time.Time { return validUntil(g.members(), g.quorum) }

// validUntil returns the time at which fewer than quorum parts remain, without renewals.
func validUntil(parts []*Lease, quorum int) time.Time {
	var living, all []time.Time
	for _, p := range parts {
		until, ok := p.alive()
		if ok {
			living = append(living, until)
		}
		all = append(all, until)
	}
	if len(living) < quorum {
		living = all
	}
	slices.SortFunc(living, func(a, b time.Time) int { return b.Compare(a) })
	return living[quorum-1]
}

// checkClocks checks every part against the clock, and then the whole against the remaining parts.
func (g *group) checkClocks() {
	for _, p := range g.members() {
		p.Err()
	}
	g.checkQuorum(nil)
}

// checkQuorum ends the whole if too few parts remain, and removes these from the watchdog, since renewals would be useless. The server keeps them
// until Unlock. cause is the latest loss of a part, if known.
func (g *group) checkQuorum(cause *LostError) {
	l, living := g.whole, 0
	for _, p := range g.members() {
		if _, ok := p.alive(); ok {
			living++
		}
	}
	if living >= g.quorum {
		return
	}
	first := l.markLost(func() *LostError {
		if cause == nil {
			return l.lostLocked(PartLost, nil)
		}
		lost := l.lostLocked(cause.Reason, cause.Err)
		lost.Name, lost.Owner, lost.log = cause.Name, cause.Owner, cause.log
		return lost
	})
	if !first {
		return
	}
	for _, p := range g.members() { // a part may have joined
		p.lose(PartLost, nil)
	}
	l.traceLoss()
	g.finish(false)
}

// finish reports the end of the whole, once. awaited: other clients waited for a part when it was released.
func (g *group) finish(awaited bool) {
	g.over.Do(func() { g.ended(awaited) })
}

// check asks the servers of all parts, until enough parts are confirmed or all servers have answered.
func (g *group) check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return g.ask(ctx, func(p *Lease) error {
		ctx, cancel := p.client.untilClose(ctx)
		defer cancel()
		return p.Check(ctx)
	})
}

// ask calls a function for all parts at once, and returns when the quorum has succeeded or all have ended. A call still running goes on, and
// must end with the client of its part, whose Close waits for it.
func (g *group) ask(ctx context.Context, ask func(part *Lease) error) error {
	parts := g.members()
	answers := make(chan error, len(parts))
	for _, p := range parts {
		if !p.client.background(func() { answers <- ask(p) }) {
			answers <- ErrClosed
		}
	}
	var errs []error
	for done := 0; done+len(errs) < len(parts); {
		select {
		case err := <-answers:
			if err != nil {
				errs = append(errs, err)
			} else if done++; done == g.quorum {
				return g.whole.Err()
			}
		case <-ctx.Done():
			return g.whole.client.about(g.whole.Name(), netfail.Ended(ctx))
		}
	}
	if err := g.whole.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

func (g *group) unlock(ctx context.Context) error {
	l := g.whole
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if outcome, ok := l.course.Settled(); ok {
		return outcome
	}
	l.Err() // notices an expired lease
	lost, _ := l.markReleased()
	parts := g.members()
	settled, awaited, outcome := g.combine(parts, unlockAll(ctx, parts, false), lost != nil)
	if settled {
		l.course.Settle(outcome)
		if errors.Is(outcome, ErrNotHeld) { // found by Unlock
			l.traceLoss()
		}
	}
	g.finish(awaited)
	return outcome
}

type partOutcome struct {
	part *Lease
	err  error
}

// unlockAll releases all leases concurrently, even if ctx has ended. The channel receives one outcome per lease. Close of a client waits for
// its releases; unlockAll itself waits for those of clients already closed, for a second at most of a rollback.
func unlockAll(ctx context.Context, leases []*Lease, rollback bool) <-chan partOutcome {
	outcomes := make(chan partOutcome, len(leases))
	var late []*Lease
	for _, l := range leases {
		if !l.client.background(func() { outcomes <- partOutcome{l, l.unlockAs(ctx, true)} }) {
			late = append(late, l)
		}
	}
	atOnce(late, func(_ int, l *Lease) { outcomes <- partOutcome{l, l.unlockAs(ctx, rollback)} })
	return outcomes
}

// combine makes one outcome of the releases of the parts, and reports whether the outcome is final (settled) and whether
// other clients were waiting (awaited). combine waits only for as many releases as needed.
func (g *group) combine(parts []*Lease, outcomes <-chan partOutcome, lost bool) (settled, awaited bool, outcome error) {
	var errs []error
	settled = true
	left := false // a part was lost, or a server may still have it
	for done := 0; done+len(errs) < len(parts); {
		o := <-outcomes
		if o.err == nil {
			awaited = awaited || o.part.awaited
			if done++; done >= g.quorum {
				return true, awaited, nil
			}
			continue
		}
		errs = append(errs, o.err)
		uncertain := errors.Is(o.err, ErrUncertain)
		settled = settled && !uncertain
		left = left || !uncertain || time.Now().Before(o.part.serverEnd())
	}
	if !g.all && !left && !lost {
		return true, awaited, nil
	}
	return settled, awaited, errors.Join(errs...)
}

// The requests of Multi and Redlock to many servers at once.

// nodeTimeoutMin and nodeTimeoutMax bound the wait for a server among others.
const nodeTimeoutMin, nodeTimeoutMax = 20 * time.Millisecond, 250 * time.Millisecond

// sameServer reports whether two locks are certainly on the same server.
func (h *Handle) sameServer(other *Handle) bool {
	a, b := h.client, other.client
	return a == b || a.nature.same(&b.nature) || a.nature.data != "" && a.nature.data == b.nature.data
}

// several are the locks of a Multi, in the order of their acquisition, or of a Redlock, in the order of its nodes.
type several struct{ members []*Handle }

// ForceUnlock frees all the locks at once, whatever their owners, and reports whether any of them was held. ForceUnlock waits for
// unreachable servers until ctx ends; the error joins the errors of the locks. See [Handle.ForceUnlock].
func (s *several) ForceUnlock(ctx context.Context) (bool, error) {
	forced, err := ofAll(ctx, s.members, (*Handle).ForceUnlock)
	return slices.Contains(forced, true), err
}

// Info returns the holders and remaining times of the locks: of a Multi in the order of acquisition, of a Redlock in the order of its nodes.
// Info waits for unreachable servers until ctx ends; the error joins the errors of the locks. The Info of a lock without an answer is zero.
func (s *several) Info(ctx context.Context) ([]Info, error) {
	return ofAll(ctx, s.members, (*Handle).Info)
}

// ofAll calls a method of all locks concurrently, and returns the results in the order of the locks.
func ofAll[T any](ctx context.Context, handles []*Handle, ask func(*Handle, context.Context) (T, error)) ([]T, error) {
	all, errs := make([]T, len(handles)), make([]error, len(handles))
	atOnce(handles, func(i int, h *Handle) { all[i], errs[i] = ask(h, ctx) })
	return all, errors.Join(errs...)
}

// atOnce calls fn for all items concurrently.
func atOnce[T any](items []T, fn func(i int, item T)) {
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { fn(i, item) })
	}
	wg.Wait()
}
