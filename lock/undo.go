package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/course"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// errEnded is the outcome of work that Close has given up.
var errEnded = fmt.Errorf("%w: %w", ErrUncertain, ErrClosed)

// newCleanup returns the cleanup of c, for the undos here, the places of lines, releases and changes.
func (c *Client) newCleanup() *cleanup.Cleanup {
	return cleanup.New(cleanup.Config{
		Server: c.remote, Runner: c.scripts, Clocks: c.clocks,
		Sweep: c.table.sweepParked, Added: c.workAdded, Refused: refusedWork, Uncertain: ErrUncertain, Ended: errEnded,
	})
}

// undo takes back the last attempt of r, begun at start, in the background, and passes the turn of the Owner to that job. mayArrive: the
// attempt may still arrive, and the undo leaves a latch to stop it. Without an Owner, r goes on as a new owner: otherwise the undo could
// take back the next attempt.
func (r *request) undo(start clock.Instant, mayArrive bool) {
	if r.target.kind.Undo == nil {
		return
	}
	r.undoBoth(nil, r.goneBy(start.Time), mayArrive)
}

// undoBoth is undo of r and then of another acquire of the same owner; nil for none. Nothing of them is left on the server by end, unless a
// request has been late.
func (r *request) undoBoth(then *acquire, end time.Time, mayArrive bool) {
	c := r.client
	if r.latch == "" { // a relay granted an unrequested hold
		r.latch = newLatch(r.target)
	}
	turn := r.turn != nil
	r.turn = nil
	work := newUndo(r.acquire, mayArrive || r.unsure)
	if then != nil {
		work.then = newUndo(*then, false)
	}
	c.cleanup.Take(cleanup.NewJob(work, end.Add(remote.Arrival), turn))
	r.endUnsure()
	if r.state == nil && !r.target.kind.unowned() {
		r.owner = r.newOwner()
	}
}

// goneBy returns the time by which nothing of a is left on the server, if a ran at the given time: the lease and the place in a queue end.
func (a *acquire) goneBy(at time.Time) time.Time {
	if a.target.kind.queued() {
		return at.Add(max(a.lease, a.client.cfg.FairWait))
	}
	return at.Add(a.lease)
}

// undo is the work of taking back an acquire.
type undo struct {
	cleanup.Simple
	acquire
	then    *undo          // the next work of the same job; nil for none
	latches course.Latches // of the requests; the first one is that of the acquire
}

// newUndo returns the undo of a. mayArrive: the acquire may still arrive, and must find its latch.
func newUndo(a acquire, mayArrive bool) *undo {
	return &undo{acquire: a, latches: course.Latches{Latch: a.latch, Arrives: mayArrive}}
}

func (u *undo) Name() string                { return u.target.Name }
func (u *undo) Rank() cleanup.Rank          { return cleanup.Undo }
func (u *undo) Turn() chan struct{}         { return u.own().turnChannel() }
func (u *undo) background() (Change, *kind) { return BackgroundUndo, u.target.kind }
func (u *undo) Count(g *cleanup.Abandoned) {
	g.Acquires, g.Permits = g.Acquires+1, g.Permits+u.permits
}

func (u *undo) Size() int {
	if u.target.kind.divisible {
		return max(1, u.permits)
	}
	return 1
}

// Unsure is of no concern to an undo without owners: the latch has the permits taken, and stays.
func (u *undo) Unsure(err error) {
	if !u.target.kind.unowned() {
		u.latches.Unsure(netfail.DeniedInside(err))
	}
}

// Finish notes the hold of an undo given up: the server may count it for as long as the Owner's other holds last.
func (u *undo) Finish(outcome error) {
	if outcome != nil && u.counted() {
		u.own().noteUncounted(u.target.storedKind())
	}
}

func (u *undo) Call() *remote.Call {
	c, t := u.client, u.target
	if u.latches.Latch == "" {
		u.latches.Latch = newLatch(t)
	}
	u.latch = u.latches.Latch
	before := int64(0)
	if u.leaseOfOthers(nil) > 0 {
		before = u.tally().count
	}
	u.lastMoment = max(u.lastMoment, c.clocks.LastMoment(t.Name)) // the latch outlasts earlier requests
	return u.undoCall(nil, before)
}

// undoCall returns the call that sets the owner's hold count to before at most, and the lock's lease to that of its leases without except.
func (a *acquire) undoCall(except *Lease, before int64) *remote.Call {
	c, t := a.client, a.target
	args := a.args(a.keptByOwner(except), a.owner, c.publishing(t), before, a.lastMoment)
	return &remote.Call{Script: t.kind.Undo, Lock: t.Lock, Keys: a.ownerKeys(a.latch), Args: t.lineArgs(c, args),
		Apart: remote.Apart{OnSource: !t.kind.unowned(), MayFree: true, MayRunUntil: a.own().mayRun()}}
}

func (u *undo) Answered(_ resp.Value, again bool) (done bool, result error) {
	if u.state != nil {
		u.target.announceShorterLease(u.client, u.lease, u.leaseOfOthers(nil), kinds.ShorterMessage)
	}
	if !u.latches.Arrives && !again { // otherwise the latch expires by itself
		u.client.cleanup.DeleteLatch(u.target.Name, u.latch)
	}
	if !u.latches.Answered() {
		return false, nil
	}
	// A waiting call in a queue goes on with its owner.
	if ended := u.state == nil || u.state.singleUse && !u.waits; ended && u.client.remote.Failover != nil {
		u.client.cleanup.Keep(&undone{u.acquire, u.goneBy(time.Now())})
	}
	if u.then == nil {
		return true, nil
	}
	u.acquire, u.latches, u.then = u.then.acquire, u.then.latches, nil
	return false, nil
}

// undone is a confirmed undo or release, to be sent again as an undo after a failover, until the lease would have ended. Its owner never has
// the lock again.
type undone struct {
	acquire
	until time.Time
}

// Again returns the undo under a new latch: a later release may have the old one by now. Without owners the latch has the permits taken, and
// stays.
func (d *undone) Again(context.Context) (w cleanup.Work, until time.Time, known bool) {
	again := &undoAgain{*newUndo(d.acquire, false)}
	if !d.target.kind.unowned() {
		again.latches.Latch = ""
	}
	return again, d.until, true
}

// undoAgain is the work of an undone. The caller does not wait for the work, so Close does not count it.
type undoAgain struct{ undo }

func (u *undoAgain) Rank() cleanup.Rank       { return cleanup.Release }
func (u *undoAgain) Count(*cleanup.Abandoned) {}
func (u *undoAgain) Answered(_ resp.Value, again bool) (done bool, result error) {
	if !again && !u.target.kind.unowned() {
		u.client.cleanup.DeleteLatch(u.target.Name, u.latch)
	}
	return u.latches.Answered(), nil
}

// shortenedBy is the least shortening of a lease that waiters are told of.
const shortenedBy = time.Second

// announceShorterLease wakes waiters in the background if the lock's lease has changed from lasted to rest ms, which is shorter: they sleep
// until the end of the lease that they have seen. rest is 0 for a free lock, whose release has woken them. A queue has one waiter to wake.
func (t *target) announceShorterLease(c *Client, lasted time.Duration, rest int64, message string) {
	if rest == 0 || rest+shortenedBy.Milliseconds() > lasted.Milliseconds() || t.kind.silent || t.values != "" { // a group's scripts tell
		return
	}
	l := t.Lock
	c.background(func() {
		if l.Queued {
			info, err := t.info(c.life, c.scripts)
			if err != nil || len(info.Queue) == 0 {
				return // waiters look after 10 s at the latest
			}
			l.Channel += ":" + info.Queue[0].Owner
		}
		if _, err := c.server.Send(c.life, resp.Cmd(c.channels.Publishing(false), l.Channel, message)); err != nil {
			c.log.WarnOf(t.Name, t.kind.Name, "", "waiters do not know that a lease became shorter", "error", err)
		}
	})
}

// leaving is the work of leaving a place in the line of waiting processes.
type leaving struct {
	cleanup.Simple // not counted: the place expires
	client         *Client
	target         *target
	place          any
}

func (l *leaving) Name() string       { return l.target.Name }
func (l *leaving) Rank() cleanup.Rank { return cleanup.Undo }
func (l *leaving) Call() *remote.Call {
	c, t := l.client, l.target
	return &remote.Call{Script: t.kind.Quit, Lock: t.Lock, Keys: t.withLine(t.baseKeys()[:2]), LineOnly: true,
		Args: []any{c.publishing(t), c.listenersKnown(t), c.id, l.place, t.kind.permits}}
}

func (l *leaving) Answered(resp.Value, bool) (done bool, result error) { return true, nil }

// workAdded notes the begin of w in the background, and returns a function that notes the end.
func (c *Client) workAdded(w cleanup.Work) (ended func(outcome error)) {
	ended = c.traceBackground(w)
	if u, ok := w.(*undo); ok && u.latches.Arrives {
		key, traced := u.target.awaitedAs(), ended
		c.table.noteUnanswered(key, 1)
		ended = func(outcome error) {
			c.table.noteUnanswered(key, -1)
			traced(outcome)
		}
	}
	return ended
}

// traceBackground reports the begin of w in the background, and returns a function that reports the end. A place in a line, which expires by
// itself, is not reported.
func (c *Client) traceBackground(w cleanup.Work) (ended func(outcome error)) {
	t := c.cfg.Trace
	shown, ok := w.(interface{ background() (Change, *kind) })
	if !ok || t == nil || t.Background == nil {
		return func(error) {}
	}
	change, k := shown.background()
	info := BackgroundInfo{Client: c, Change: change, Kind: k.Name, Name: w.Name()}
	t.Background(info)
	added := time.Now()
	return func(outcome error) {
		info.Done, info.Age, info.Err = true, time.Since(added), outcome
		t.Background(info)
	}
}
