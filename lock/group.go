package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// group is what a lease is made up of: leases of their own, each with its own client, which renews it, watches it, and
// gives it back.
type group struct {
	whole  *Lease
	quorum int  // how many of the parts must be held for the whole to be
	all    bool // a release is one only if every part's is

	// Guarded by the mu of the whole.
	parts []*Lease
	armed bool
	ended func() // called once, when the whole has been given back or is lost
}

// newWhole makes one lease of parts. What became of a part before it was one shows at the whole's next Err.
func newWhole(quorum int, all bool, parts []*Lease, ended func()) *Lease {
	first := parts[0]
	l := &Lease{client: first.client, target: first.target, owner: first.owner}
	l.group = &group{whole: l, quorum: quorum, all: all, parts: slices.Clone(parts), ended: ended}
	for _, p := range parts {
		p.whole.Store(l)
	}
	return l
}

// Members returns the leases that this one is made up of, those of a [Multi] in the order in which they were taken; nil if
// it is not made up of others. Their tokens, owners and times are for reading. To release one is to lose the whole.
func (l *Lease) Members() []*Lease {
	if l.group == nil {
		return nil
	}
	return l.group.members()
}

func (g *group) members() []*Lease {
	g.whole.mu.Lock()
	defer g.whole.mu.Unlock()
	return slices.Clone(g.parts)
}

// join adds a part to a lease that is held. It reports false if that is over.
func (g *group) join(part *Lease) bool {
	l := g.whole
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != held {
		return false
	}
	g.parts = append(g.parts, part)
	part.whole.Store(l)
	if g.armed {
		part.arm()
	}
	return true
}

// armLocked has each part look at its deadline: the whole needs no timer of its own.
func (g *group) armLocked() {
	if g.armed || g.whole.phase != held {
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

// alive reports whether the lease is held, and until when. It tells nobody if its time is up.
func (l *Lease) alive() (until time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, left := l.client.now(), l.leftLocked()
	return at.t.Add(left), l.phase == held && left > 0
}

func (g *group) validUntil() time.Time { return validUntil(g.members(), g.quorum) }

// validUntil is when fewer than quorum of the parts are left, if none is renewed.
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

// look has every part look at the clock, and the whole at what is left.
func (g *group) look() {
	for _, p := range g.members() {
		p.Err()
	}
	g.count(nil)
}

// tellWhole tells the lease that l is a part of, if there is one, that l is over.
func (l *Lease) tellWhole() {
	if whole := l.whole.Load(); whole != nil {
		l.mu.Lock()
		lost := l.lost
		l.mu.Unlock()
		whole.group.count(lost)
	}
}

// count ends the whole if too few parts are left. cause is the loss of the last one, if that is known.
func (g *group) count(cause *LostError) {
	living := 0
	for _, p := range g.members() {
		if _, ok := p.alive(); ok {
			living++
		}
	}
	if living >= g.quorum {
		return
	}
	if cause == nil {
		cause = &LostError{Reason: PartLost}
	}
	g.fall(cause)
}

// fall tells everybody concerned that the whole is lost, and takes the parts that are left from the watchdog: there is no
// use in renewing them. The server has them until Unlock.
func (g *group) fall(cause *LostError) {
	l := g.whole
	l.mu.Lock()
	if l.phase != held {
		l.mu.Unlock()
		return
	}
	l.phase = gone
	l.lost = &LostError{Name: l.target.name, Reason: cause.Reason, Err: cause.Err}
	if l.lostc != nil {
		close(l.lostc)
	}
	contexts := l.disarmLocked()
	parts := slices.Clone(g.parts)
	l.mu.Unlock()
	for d := range contexts {
		d.cancel(l.lost)
	}
	for _, p := range parts {
		p.lose(PartLost, nil)
	}
	g.finish()
}

// finish calls ended, the first time.
func (g *group) finish() {
	g.whole.mu.Lock()
	ended := g.ended
	g.ended = nil
	g.whole.mu.Unlock()
	if ended != nil {
		ended()
	}
}

// check asks the servers of all parts, until enough have said that theirs is held or all have answered.
func (g *group) check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := g.members()
	answers := make(chan error, len(parts))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, p := range parts {
		wg.Go(func() { answers <- p.Check(ctx) })
	}
	confirmed := 0
	var errs []error
	for range parts {
		err := <-answers
		if err == nil {
			if confirmed++; confirmed == g.quorum {
				return g.whole.Err()
			}
			continue
		}
		errs = append(errs, err)
	}
	if err := g.whole.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// unlock is Unlock of the whole.
func (g *group) unlock(ctx context.Context) error {
	l := g.whole
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.settled {
		return l.outcome
	}
	l.Err() // takes note if time is up
	l.mu.Lock()
	lost := l.lost
	var contexts map[*derived]struct{}
	if l.phase == held {
		l.phase = released
		contexts = l.disarmLocked()
	}
	parts := slices.Clone(g.parts)
	l.mu.Unlock()
	for d := range contexts {
		d.cancel(ErrReleased)
	}
	outcome, settled := g.tally(parts, unlockAll(ctx, parts), lost != nil)
	l.settled, l.outcome = settled, outcome
	g.finish()
	return outcome
}

// partOutcome is what Unlock of a part has returned.
type partOutcome struct {
	part *Lease
	err  error
}

// unlockAll gives leases back, all at once and whether ctx is over or not. The channel gets the outcome of each.
func unlockAll(ctx context.Context, leases []*Lease) <-chan partOutcome {
	outcomes := make(chan partOutcome, len(leases))
	var late []*Lease
	for _, l := range leases {
		if !l.client.background(func() { outcomes <- partOutcome{l, l.Unlock(ctx)} }) {
			late = append(late, l)
		}
	}
	for _, l := range late {
		outcomes <- partOutcome{l, l.Unlock(ctx)}
	}
	return outcomes
}

// tally is what the releases of the parts are worth together, and whether that is final. It does not wait for more of them
// than it takes.
func (g *group) tally(parts []*Lease, outcomes <-chan partOutcome, lost bool) (outcome error, settled bool) {
	done := 0
	var errs []error
	settled = true
	left := 0 // parts that a server may still have, or has lost before its time
	for range parts {
		o := <-outcomes
		switch {
		case o.err == nil:
			done++
			if !g.all && done >= g.quorum {
				return nil, true
			}
			continue
		case !errors.Is(o.err, ErrUncertain):
			left++
		default:
			settled = false
			if time.Now().Before(o.part.end()) {
				left++
			}
		}
		errs = append(errs, o.err)
	}
	if !g.all && left == 0 && !lost {
		return nil, true
	}
	return errors.Join(errs...), settled
}
