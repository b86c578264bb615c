package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const (
	// changeLife is the time for which the server recognizes repeats of a change after the first request has become
	// invalid: until the last repeat is also invalid.
	changeLife = changeFor + remote.Arrival
	// maxCount is the maximum count of one step: Redisson uses 32 bits.
	maxCount = math.MaxInt32
)

// change is an operation on a synchronizer without leases. A change may be sent several times and is applied once:
// the script stores its outcome under a latch.
//
// KEYS are keys, the latch, and the line if there is one. ARGV are the lifetime of the latch in ms, the publish command, args, the
// time until which the request is valid, and what a script needs for the line. The script returns a number.
type change struct {
	cleanup.Simple
	client     *Client
	target     *target
	script     *script.Script
	keys       []string
	args       []any
	latch      string
	apart      remote.Apart
	start      clock.Instant // before the first request
	returns    int           // permits given back
	gives      bool          // gives something back: changes of this sort may be made in any order
	master     master        // the server before the first request
	unsure     bool          // a request had no reply, and may still arrive
	mayHaveRun bool          // a request has had no answer
	lastMoment int64         // the latest time at which a request is valid, by the server's clock, in ms
	outcome    int64         // once answered
}

// change runs an operation of the kind and returns the result of its script. Unconfirmed changes are repeated: first
// by the caller for as long as ctx allows, up to bounds.Max, and then in the background. A change that gives
// something back also runs if ctx has already ended.
func (h *Handle) change(ctx context.Context, operation string, givesBack bool, args ...any) (n int64, err error) {
	if h.err != nil {
		return 0, h.err
	}
	c, t := h.client, &h.target
	var done context.CancelFunc
	if givesBack {
		traced, release := c.cfg.Trace.beginRelease(ctx, time.Now(), ReleaseStart{Client: c, Kind: t.kind.Name, Name: t.Name})
		defer func() { release.end(traced, ReleaseEnd{Err: err}) }()
		ctx, done = c.bounds.Context(traced, bounds.Max, false)
	} else {
		ctx, done = context.WithTimeout(ctx, bounds.Max)
	}
	defer done()
	x := &change{client: c, target: t, script: t.kind.More[operation], keys: t.baseKeys(), args: args, latch: newLatch(t), start: c.now(), gives: givesBack}
	x.apart.MayFree, x.apart.FreesAtZero = t.kind.permits && operation != "drain" || operation == "delete", operation == "down"
	if operation == "set" { // a script of semaphores of all kinds
		x.keys = x.keys[:2]
	}
	if givesBack {
		x.returns = x.number()
	}
	j, err := x.begin(ctx)
	if j == nil {
		return x.outcome, err
	}
	select {
	case <-j.Done():
		err := j.Outcome()
		if err != nil && x.mayHaveRun && !errors.Is(err, ErrUncertain) { // only the last request was refused
			err = fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		return x.outcome, err
	case <-ctx.Done():
		return 0, x.client.about(x.target.Name, fmt.Errorf("%w: %w", ErrUncertain, err))
	}
}

// number returns the number of permits, or the count, that the change is about; 0 for none.
func (x *change) number() (n int) {
	if len(x.args) > 0 {
		n, _ = x.args[0].(int)
	}
	return n
}

// begin sends the change. After a failure, begin may leave the change to the returned job, with the reason.
func (x *change) begin(ctx context.Context) (*cleanup.Job, error) {
	c := x.client
	if c.changes.Enter(x.returns) { // false after Close: then nobody counts the change
		defer c.changes.Leave(x.returns)
	}
	err := c.channels.Settle(ctx, x.target.Lock)
	if x.gives {
		x.master = c.masterOf(ctx, x.target.Name)
	}
	if err == nil {
		err = x.send(ctx)
	}
	_, failed := errors.AsType[resp.Error](err)
	switch {
	case err == nil:
		return nil, nil
	case x.unsure:
	case !x.gives, remote.Final(err), failed && !temporary(err):
		return nil, c.failed(x.target.Name, err)
	}
	j := cleanup.NewJob(x, time.Now().Add(changeFor), false)
	if x.unsure {
		j.NoteUnanswered()
	}
	c.cleanup.Take(j)
	return j, err
}

// send makes the first attempt.
func (x *change) send(ctx context.Context) error {
	v, err := x.client.scripts.RunInTime(remote.Patient(ctx), x.target.Name, x.call)
	if err != nil {
		x.unsure = remote.Uncertain(err) && !netfail.DeniedInside(err)
		x.mayHaveRun = x.unsure
		return err
	}
	return x.answered(v)
}

func (x *change) call(last int64) *remote.Call {
	x.lastMoment = max(x.lastMoment, last)
	return x.callUntil(last)
}

// callUntil returns the call with the last moment last.
func (x *change) callUntil(last int64) *remote.Call {
	c, t := x.client, x.target
	args := append(append([]any{changeLife.Milliseconds(), c.publishing(t)}, x.args...), last)
	l := t.Lock
	if n := x.number(); n > 0 { // Redisson wakes as many waiters
		l.Message = strconv.Itoa(n)
	}
	return &remote.Call{Script: x.script, Lock: l, Keys: t.withLine(append(slices.Clone(x.keys), x.latch)), Args: t.lineArgs(c, args),
		Apart: x.apart}
}

// answered records the server's reply. An unexpected reply is an error.
func (x *change) answered(v resp.Value) error {
	n, err := v.Int()
	if err != nil || v.Kind() != resp.Integer {
		x.unsure = true
		return fmt.Errorf("lock: unexpected reply to a change, of kind %v", v.Kind())
	}
	x.outcome = n
	c, last := x.client, x.lastMoment
	kept := x.gives && x.master != (master{})
	if kept {
		last += cleanup.ChangeFor.Milliseconds()
		again := &changeAgain{change: x, lastMoment: last, until: time.Now().Add(cleanup.ChangeFor), confirmedBy: new(atomic.Pointer[master])}
		again.confirmedBy.Store(&x.master)
		c.cleanup.KeepChange(again)
	}
	c.cleanup.SettleLatch(x.target.Name, x.latch, x.unsure || kept, last)
	return nil
}

// master is the server of a change, by its id in a cluster, or by the address at which sentinels know it. The zero master has no replicas, or
// is unknown.
type master struct {
	id, addr string
	changes  uint64 // of the master; a server that is the master again may not know what was confirmed in between
}

// askMaster bounds the question for a server that is not known: the change itself is more urgent.
const askMaster = 250 * time.Millisecond

// masterOf returns the present server of name.
func (c *Client) masterOf(ctx context.Context, name string) master {
	if c.remote.Failover == nil {
		return master{}
	}
	ctx, cancel := context.WithTimeout(ctx, askMaster)
	defer cancel()
	s, err := c.remote.Failover.Succession(ctx, name, time.Time{})
	switch {
	case err != nil:
		return master{}
	case c.remote.Spread != nil:
		return master{id: s.Master}
	}
	return master{addr: s.Addr, changes: s.Changes}
}

// changeAgain is the work of sending a confirmed change to a replica in the server's place, for as long as the servers keep the latch.
type changeAgain struct {
	cleanup.Simple
	change      *change
	lastMoment  int64                   // the end of the latch, ChangeFor later than without replicas
	until       time.Time               // the end of the repetitions
	confirmedBy *atomic.Pointer[master] // the last server to confirm the change
	server      master                  // the server of this repetition
}

// Again sends the change to another server only, or to one that was not the master for a while: the same one may have lost its data with the
// latch, and would count the change twice.
func (a *changeAgain) Again(ctx context.Context) (w cleanup.Work, until time.Time, known bool) {
	if ctx.Err() != nil {
		return nil, time.Time{}, false
	}
	next := *a
	switch next.server = a.change.client.masterOf(ctx, a.Name()); next.server {
	case master{}:
		return nil, time.Time{}, false
	case *a.confirmedBy.Load():
		return nil, time.Time{}, true
	}
	return &next, a.until, true
}

func (a *changeAgain) Name() string       { return a.change.target.Name }
func (a *changeAgain) Rank() cleanup.Rank { return cleanup.Change }
func (a *changeAgain) Call() *remote.Call { return a.change.callUntil(a.lastMoment) }

func (a *changeAgain) Answered(resp.Value, bool) (done bool, result error) {
	a.confirmedBy.Store(&a.server)
	a.change.client.cleanup.SettleLatch(a.Name(), a.change.latch, true, a.lastMoment)
	return true, nil
}

// The methods of a change for cleanup.

func (x *change) Name() string                { return x.target.Name }
func (x *change) Rank() cleanup.Rank          { return cleanup.Change }
func (x *change) background() (Change, *kind) { return BackgroundChange, x.target.kind }
func (x *change) Unsure(err error) {
	x.unsure, x.mayHaveRun = true, x.mayHaveRun || !netfail.DeniedInside(err)
}

func (x *change) Call() *remote.Call { return x.call(x.client.clocks.LastMoment(x.target.Name)) }

// Needed ends a change if the server may no longer recognize a repeat, including time asleep.
func (x *change) Needed() (left bool, outcome error) {
	if x.start.Elapsed(x.client.now()) > changeFor {
		return false, fmt.Errorf("%w, and given up", ErrUncertain)
	}
	return true, nil
}

func (x *change) Answered(v resp.Value, _ bool) (done bool, result error) {
	err := x.answered(v)
	return err == nil, err
}

func (x *change) Count(g *cleanup.Abandoned) { g.Changes, g.Permits = g.Changes+1, g.Permits+x.returns }

// setCount is change for an operation with the count n, which gives nothing back.
func (h *Handle) setCount(ctx context.Context, operation string, n, least int, args ...any) (int64, error) {
	if err := h.checkCount(n, least); err != nil {
		return 0, err
	}
	return h.change(ctx, operation, false, append([]any{n}, args...)...)
}

// checkCount rejects numbers outside the countable range.
func (h *Handle) checkCount(n, least int) error {
	if n >= least && n <= maxCount {
		return nil
	}
	what := "a count"
	if h.target.kind.permits {
		what = "permits"
	}
	return h.client.invalid(h.target.Name, "%s of %d", what, n)
}
