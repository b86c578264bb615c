package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const (
	// changeFor limits the repeats of a change without a reply, and of the undo of an unanswered acquire of permits.
	changeFor = 5 * time.Minute
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
	client  *Client
	target  *target
	script  *script.Script
	keys    []string
	args    []any
	latch   string
	start   clock.Instant // before the first request
	returns int           // permits given back
	unsure  bool          // a request had no reply, and may still arrive
	last    int64         // the latest time at which a request is valid, by the server's clock, in ms
	outcome int64         // once answered
}

// change runs an operation of the kind and returns the result of its script. Unconfirmed changes are repeated: first
// by the caller for as long as ctx allows, up to bounds.Max, and then in the background. A change that gives
// something back also runs if ctx has already ended.
func (h *Handle) change(ctx context.Context, operation string, givesBack bool, args ...any) (int64, error) {
	if h.err != nil {
		return 0, h.err
	}
	if givesBack && h.client.cfg.Trace != nil {
		return h.changeTraced(ctx, operation, args)
	}
	return h.makeChange(ctx, operation, givesBack, args)
}

// makeChange is change without a Trace.
func (h *Handle) makeChange(ctx context.Context, operation string, givesBack bool, args []any) (int64, error) {
	c, t := h.client, &h.target
	var done context.CancelFunc
	if givesBack {
		ctx, done = c.bounds.Context(ctx, bounds.Max)
	} else {
		ctx, done = context.WithTimeout(ctx, bounds.Max)
	}
	defer done()
	if err := c.channels.Settle(ctx, t.remote()); err != nil {
		return 0, err
	}
	x := &change{client: c, target: t, script: t.kind.More[operation], keys: t.keys(), args: args, latch: newLatch(t), start: c.now()}
	if operation == "set" { // a script of semaphores of all kinds
		x.keys = x.keys[:2]
	}
	if givesBack && len(args) > 0 {
		x.returns, _ = args[0].(int)
	}
	j, err := x.begin(ctx, givesBack)
	if j == nil {
		return x.outcome, err
	}
	select {
	case <-j.Done():
		return x.outcome, j.Outcome()
	case <-ctx.Done():
		return 0, x.client.about(x.target.name, fmt.Errorf("%w: %w", ErrUncertain, err))
	}
}

// begin sends the change. After a failure, begin may leave the change to the returned job, with the reason.
func (x *change) begin(ctx context.Context, givesBack bool) (*cleanup.Job, error) {
	c := x.client
	if c.changes.enter(x.returns) { // false after Close: then nobody counts the change
		defer c.changes.leave(x.returns)
	}
	v, err := x.run(remote.Patient(ctx))
	if err == nil {
		err = x.answered(v)
	}
	if err == nil {
		return nil, nil
	}
	if _, failed := errors.AsType[resp.Error](err); !x.unsure && (!givesBack || remote.Final(err) || failed && !passing(err)) {
		return nil, c.refused(x.target.name, err)
	}
	j := cleanup.NewJob(x, time.Now().Add(changeFor), false)
	c.cleanup.Take(j)
	return j, err
}

func (x *change) run(ctx context.Context) (resp.Value, error) {
	v, err := x.client.scripts.RunInTime(ctx, x.target.name, x.call)
	x.unsure = x.unsure || err != nil && remote.Uncertain(err)
	return v, err
}

func (x *change) call(last int64) *remote.Call {
	x.last = max(x.last, last)
	c, t := x.client, x.target
	args := append(append([]any{changeLife.Milliseconds(), c.channels.Publishing(t.kind.silent)}, x.args...), last)
	return &remote.Call{Script: x.script, Lock: t.remote(), Keys: t.lined(append(slices.Clone(x.keys), x.latch)), Args: t.lineArgs(c, args)}
}

// answered records the server's reply. An unexpected reply is an error.
func (x *change) answered(v resp.Value) error {
	n, err := v.Int()
	if err != nil || v.Kind() != resp.Integer {
		x.unsure = true
		return fmt.Errorf("lock: unexpected reply to a change, of kind %v", v.Kind())
	}
	x.outcome = n
	x.client.cleanup.SettleLatch(x.target.name, x.latch, x.unsure, x.last)
	return nil
}

// The methods of a change for cleanup.

func (x *change) Name() string                { return x.target.name }
func (x *change) Rank() cleanup.Rank          { return cleanup.Change }
func (x *change) background() (Change, *kind) { return BackgroundChange, x.target.kind }
func (x *change) Unsure()                     { x.unsure = true }
func (x *change) Call() *remote.Call          { return x.call(x.client.clocks.Last(x.target.name)) }

// Needed ends a change if the server may no longer recognize a repeat, including time asleep.
func (x *change) Needed() (left bool, outcome error) {
	if x.start.Elapsed(x.client.now()) > changeFor {
		return false, fmt.Errorf("%w, and given up", ErrUncertain)
	}
	return true, nil
}

func (x *change) Answered(v resp.Value, _ bool) cleanup.Result {
	err := x.answered(v)
	return cleanup.Result{Done: err == nil, Failure: err}
}

func (x *change) Count(g *cleanup.Abandoned) { g.Changes, g.Permits = g.Changes+1, g.Permits+x.returns }

// checkCount rejects numbers outside the countable range.
func checkCount(what string, n, least int) error {
	if n < least || n > maxCount {
		return invalidf("%s of %d", what, n)
	}
	return nil
}

// changeTraced is change for a Trace, of a change that gives something back.
func (h *Handle) changeTraced(ctx context.Context, operation string, args []any) (int64, error) {
	begin, start := time.Now(), ReleaseStart{Client: h.client, Kind: h.target.kind.Name, Name: h.target.name}
	ctx = h.client.cfg.Trace.beginRelease(ctx, start)
	n, err := h.makeChange(ctx, operation, true, args)
	h.client.cfg.Trace.endRelease(ctx, ReleaseEnd{ReleaseStart: start, Err: err, Elapsed: time.Since(begin)})
	return n, err
}
