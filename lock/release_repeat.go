package lock

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// repeat leaves the release to the background. The job takes over the turn of the Owner, if the caller has it.
func (l *Lease) repeat(turn *ownedLock, cause error) error {
	l.warn("release not confirmed, and repeated in the background", "error", cause)
	l.repeats = cleanup.NewJob(&repeat{lease: l}, l.serverEnd(), turn != nil)
	if !l.client.cleanup.Add(l.repeats) {
		l.repeats = nil
		l.client.table.forget(l)
		turn.give()
	}
	return l.unconfirmed(cause)
}

// awaitRepeats waits for the background to get an answer to the release.
func (l *Lease) awaitRepeats(ctx context.Context) error {
	repeats := l.repeats
	l.releasing.Unlock()
	defer l.releasing.Lock()
	select {
	case <-repeats.Done():
		return repeats.Outcome()
	case <-ctx.Done():
		return l.unconfirmed(context.Cause(ctx))
	}
}

// keepReleased has cleanup send the confirmed release again if the server is replaced by a replica that may not know of it.
func (l *Lease) keepReleased() {
	if c := l.client; c.remote.Failover != nil && (l.state == nil || l.state.once) && l.limits.least == 0 {
		c.cleanup.Keep(&undone{l.taking(), l.serverEnd()})
	}
}

// repeat is the work of repeating a release.
type repeat struct {
	lease *Lease
	sent  time.Duration // the time before the last request, as clocks.Age
	stale bool          // the last request was a late release
}

func (p *repeat) Name() string       { return p.lease.target.name }
func (p *repeat) Rank() cleanup.Rank { return cleanup.Release }
func (p *repeat) Size() int          { return p.lease.size() }
func (p *repeat) background() (Change, *kind) {
	return BackgroundRelease, p.lease.target.kind
}
func (p *repeat) Turn() chan struct{} { return p.lease.own().asTurn() }

// Needed ends a late release if the server has none of its owner's holds of that time.
func (p *repeat) Needed() (left bool, outcome error) {
	if p.lease.counted() {
		return true, nil
	}
	return false, p.settle(p.lease.notHeld())
}

// Call returns the release. Its latch may have expired, or may expire before a reply arrives, or an earlier request has left none
// and would be counted twice. A late release keeps the same latch: earlier requests may still arrive.
func (p *repeat) Call() *remote.Call {
	l := p.lease
	p.sent = l.client.clocks.Age()
	p.stale = p.stale || l.forgotten() || l.countsTwice()
	if p.stale {
		return l.lateReleaseCall()
	}
	return l.releaseCall(l.client.clocks.Last(p.Name()))
}

func (p *repeat) Answered(v resp.Value, _ bool) cleanup.Result {
	l := p.lease
	if p.stale {
		l.recordEnd(l.outerLease() > 0)
		l.client.counters.released.Add(1)
		return cleanup.Result{Done: true, Outcome: p.settle(l.releasedLate())}
	}
	outcome, err := l.answered(v)
	if err != nil {
		return cleanup.Result{Failure: err}
	}
	return cleanup.Result{Done: true, Outcome: p.settle(outcome)}
}

// settle makes outcome the result of Unlock, and returns it.
func (p *repeat) settle(outcome error) error {
	p.lease.releasing.Lock()
	defer p.lease.releasing.Unlock()
	return p.lease.settle(outcome)
}

func (p *repeat) Unsure(part bool) {
	p.lease.noteUnsure(p.sent, part)
	p.lease.late = p.lease.late || p.stale && p.lease.state == nil // the release of an Owner goes on until it has an answer
}

func (p *repeat) Finish(error) {
	p.lease.releasing.Lock()
	p.lease.repeats = nil
	p.lease.releasing.Unlock()
	p.lease.client.table.forget(p.lease)
}

func (p *repeat) Count(g *cleanup.Abandoned) {
	g.Releases++
	if p.lease.target.kind.permits {
		g.Permits += p.lease.size()
	}
}
