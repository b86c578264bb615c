package lock

import (
	"cmp"
	"context"
	"errors"

	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// repeat leaves the release to the background. The job takes over the turn of the Owner, if the caller has it.
func (l *Lease) repeat(turn *ownedLock, cause error) error {
	l.warn("release not confirmed, and repeated in the background", "error", cause)
	l.repeats = cleanup.NewJob(&repeat{lease: l}, l.serverEnd(), turn != nil)
	if l.unanswered && !errors.Is(cause, errDoubted) { // while a request may arrive, the Owner takes no further hold
		l.repeats.NoteUnanswered()
	}
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
	if c := l.client; c.remote.Failover != nil && (l.state == nil || l.state.singleUse) && l.limits.atLeast == 0 {
		c.cleanup.Keep(&undone{l.asAcquire(), l.serverEnd()})
	}
}

type repeat struct {
	lease    *Lease
	sent     clock.Instant // the time before the last request
	asUndo   bool          // the last request was an undo: see releaseAsUndoCall
	oldLatch string        // a further undo must set this latch, for requests that may still arrive; "" for none
	inDoubt  bool          // an undo without an answer may have set its latch without effect: a further one needs a new latch
}

func (p *repeat) Name() string       { return p.lease.target.name }
func (p *repeat) Rank() cleanup.Rank { return cleanup.Release }
func (p *repeat) Size() int          { return p.lease.size() }
func (p *repeat) background() (Change, *kind) {
	return BackgroundRelease, p.lease.target.kind
}
func (p *repeat) Turn() chan struct{} { return p.lease.own().turnChannel() }

// Needed ends the repeats if the hold has ended with its period.
func (p *repeat) Needed() (left bool, outcome error) {
	if p.lease.mayBeHeld() {
		return true, nil
	}
	return false, p.settle(p.lease.notHeld())
}

// Call returns the release. It keeps the latch as an undo, too: earlier requests may still arrive.
func (p *repeat) Call() *remote.Call {
	l := p.lease
	p.sent = l.client.now()
	if p.asUndo = l.mayReleaseTwice(); p.asUndo {
		return l.releaseAsUndoCall()
	}
	return l.releaseCall(l.client.clocks.LastMoment(p.Name()))
}

func (p *repeat) Answered(v resp.Value, _ bool) cleanup.Result {
	l := p.lease
	switch {
	case p.asUndo && p.inDoubt: // its latch stops the undo without an answer
		l.latch, p.inDoubt = newLatch(l.target), false
		return cleanup.Result{}
	case p.asUndo && p.oldLatch != "":
		l.latch, p.oldLatch = p.oldLatch, ""
		return cleanup.Result{}
	case p.asUndo: // the reply does not tell whether an earlier request has released the hold
		l.recordEnd(true)
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
	l := p.lease
	l.noteUnsure(p.sent, part)
	switch {
	case !p.asUndo:
	case part: // it may have set its latch without effect: a repeat needs another one
		p.oldLatch = cmp.Or(p.oldLatch, l.latch)
		l.latch = newLatch(l.target)
	default:
		p.inDoubt = l.maybeNoLatch // a right is or was missing
	}
}

func (p *repeat) Finish(error) {
	p.lease.releasing.Lock()
	p.lease.repeats = nil
	p.lease.leaveTally()
	p.lease.releasing.Unlock()
	p.lease.client.table.forget(p.lease)
}

func (p *repeat) Count(g *cleanup.Abandoned) {
	g.Releases++
	if p.lease.target.kind.permits {
		g.Permits += p.lease.size()
	}
}
