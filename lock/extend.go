package lock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/lock/internal/watchdog"
)

// Extend makes a fixed lease, set by [For], last for at least d from now; it never shortens the lease. d counts in
// whole milliseconds, from [MinLease] to 50 years.
//
// Extend returns:
//
//   - nil if the server has extended the lease
//   - the result of Err if the lease is over, also if it ended during the call
//   - [ErrInvalid] for a lease without an end of its own: the watchdog renews it, or it was taken with [Forever]
//   - any other error if the server could not be asked; the lease then ends at its previous time
//
// Extend of a lease of an [Owner] waits for a call of the Owner on the same lock that is under way, such as the release of another
// hold.
//
// Extend of a lease with Members extends all members at once. It returns nil when as many members are extended as the
// lease requires: all of a [Multi], and a majority of the servers of a [Redlock].
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if err := checkTerm("lease", d); err != nil {
		return l.client.about(l.target.Name, err)
	}
	d = d.Truncate(time.Millisecond)
	if l.group != nil {
		return l.group.extend(ctx, d)
	}
	switch {
	case l.renewed:
		return l.client.invalid(l.target.Name, "Extend of a lease that the watchdog renews")
	case l.now().term == forever:
		return l.client.invalid(l.target.Name, "Extend of a lease without an end")
	}
	// The release of another hold of the Owner would set the server's lease to what this hold needed before the Extend.
	turn, err := l.state.take(ctx, l.target.Name, l.over(), ErrReleased)
	if err != nil {
		return cmp.Or(l.Err(), l.client.about(l.target.Name, err))
	}
	defer turn.give()
	if err := l.beginExtension(ctx); err != nil {
		return err
	}
	start, err := l.askExtension(ctx, d)
	l.endRenewal(err)
	if err != nil {
		return cmp.Or(l.Err(), l.client.failed(l.target.Name, err))
	}
	l.countFrom(start, d)
	return l.Err()
}

// beginExtension waits for a renewal under way, or another Extend, and makes Unlock wait for this one.
func (l *Lease) beginExtension(ctx context.Context) error {
	for {
		switch err := l.Err(); {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return l.client.about(l.target.Name, netfail.Ended(ctx))
		case l.beginRenewal():
			return nil
		}
		if other := l.now().renewal; other != nil {
			select {
			case <-other:
			case <-l.over():
			case <-ctx.Done():
			}
		}
	}
}

// askExtension asks the server, and twice if the first answer may come from a server already replaced: see
// watchdog.renewed. It returns the time of the request that counts.
func (l *Lease) askExtension(ctx context.Context, d time.Duration) (start clock.Instant, err error) {
	c := l.client
	doubted := l.now().failure != nil
	ctx = remote.Patient(ctx)
	l.mu.Lock()
	l.extending = d
	l.mu.Unlock()
	for range 2 {
		start = c.now()
		answer := renewals{c}.ask(ctx, []*Lease{l}, d.Milliseconds())[0]
		switch {
		case answer.Err != nil:
			return start, answer.Err
		case answer.Outcome <= 0:
			l.notRenewed(answer.Outcome < 0)
			return start, nil
		case c.replicas.On() || !doubted && start.Elapsed(c.now()) <= watchdog.AnsweredLate:
			return start, nil
		}
		l.mayLast(d) // though the second request may not be sent
	}
	return start, nil
}

// extend is Extend of a lease with Members. A member that answers later than needed is extended all the same, and so is one that joins later.
func (g *group) extend(ctx context.Context, d time.Duration) error {
	if g.longest > 0 && d > g.longest {
		return g.whole.client.invalid(g.whole.Name(), "lease of %v, longer than the Quarantine of %v", d, g.longest)
	}
	l := g.whole
	if err := l.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	g.extendedTo = clock.Later(time.Now().Add(d), g.extendedTo) // before the look for parts: a part that joins meanwhile is extended by join or here
	l.mu.Unlock()
	return g.ask(ctx, func(p *Lease) error { return extendPart(ctx, p, d) })
}

// extendPart extends a part as its client would, whatever becomes of the caller.
func extendPart(ctx context.Context, p *Lease, d time.Duration) error {
	ctx, cancel := context.WithTimeout(p.client.untilCloseOnly(ctx), watchdog.Limit(p.client.cfg.Lease))
	defer cancel()
	return p.Extend(ctx, d)
}

// Check asks the server whether the lock is still held. The request changes nothing on the server. Check returns:
//
//   - nil if the lock is held
//   - the result of Err if the lease is over; a [*LostError] matches [ErrWrongType] too if the key holds another type
//   - any other error if the server could not be asked
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.group != nil {
		return l.group.check(ctx)
	}
	t := l.target
	answer := renewals{l.client}.ask(remote.Patient(ctx), []*Lease{l}, checkOnly)[0]
	switch outcome := answer.Outcome; {
	case answer.Err != nil:
		return cmp.Or(l.Err(), l.client.failed(t.Name, answer.Err))
	case outcome < 0:
		l.denied(Taken, l.wrongType(ctx))
	case outcome == 0 && t.kind.permits: // the lease of a permit is not stored under the name of the lock
		l.denied(Forced, l.wrongType(ctx))
	case outcome == 0:
		l.notRenewed(false)
	}
	return l.Err()
}

// wrongType looks at the key of a lost lock. It returns [ErrWrongType] if the key does not hold a lock of its kind, else nil.
func (l *Lease) wrongType(ctx context.Context) error {
	if _, err := l.target.info(ctx, l.client.scripts); errors.Is(err, ErrWrongType) {
		return err
	}
	return nil
}
