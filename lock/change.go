package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const (
	// changeFor is for how long a change without an answer is repeated, and an acquire of permits without one undone.
	changeFor = 5 * time.Minute
	// changeLife is how long the server knows a change from its repeats once the request that made it is good no more: until the
	// last of them is not either.
	changeLife = changeFor + arrival
	// maxCount is the most that is counted in one step: Redisson has 32 bits for it.
	maxCount = math.MaxInt32
)

// change is something that is done to a synchronizer apart from leases, and must not be done twice. It may be sent twice: its
// script leaves the outcome under a latch. The script takes as KEYS those of undo and the latch, as ARGV the lifetime of the
// latch in ms, the publish command, args, and until when it is good; it returns a number.
type change struct {
	client  *Client
	target  *target
	script  *script.Script
	args    []any
	latch   string
	start   instant // before the first request
	returns int     // how many permits it gives back
	unsure  bool    // a request had no answer, and may come yet
	last    int64   // until when one may, by the server's clock, in ms
	outcome int64   // once answered
}

// change makes a change, which is an operation of the kind's own, and returns what its script does. Until the server has
// confirmed it, it is repeated: here for as long as ctx allows, and releaseMax at most, and in the background after that. A
// change that gives something back is made under a context that is over too.
func (c *Client) change(ctx context.Context, t *target, operation string, givesBack bool, args ...any) (int64, error) {
	var done context.CancelFunc
	if givesBack {
		ctx, done = c.bound(ctx, releaseMax)
	} else {
		ctx, done = context.WithTimeout(ctx, releaseMax)
	}
	defer done()
	if err := c.settleChannels(ctx, t); err != nil {
		return 0, err
	}
	x := &change{client: c, target: t, script: t.kind.more[operation], args: args, latch: newLatch(t), start: c.now()}
	if givesBack && len(args) > 0 {
		x.returns, _ = args[0].(int)
	}
	j, err := x.begin(ctx, givesBack)
	if j == nil {
		return x.outcome, err
	}
	select {
	case <-j.done:
		return x.outcome, j.outcome
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", ErrUncertain, err)
	}
}

// begin makes the change, or leaves it to the job that it returns, with the reason.
func (x *change) begin(ctx context.Context, givesBack bool) (*job, error) {
	c := x.client
	if c.changes.enter(x.returns) { // and else Close has been called, and nobody counts it
		defer c.changes.leave(x.returns)
	}
	v, err := x.run(c.patient(ctx))
	if err == nil {
		err = x.answered(v)
	}
	if err == nil {
		return nil, nil
	}
	if _, failed := errors.AsType[resp.Error](err); !x.unsure && (!givesBack || final(err) || failed && !passing(err)) {
		return nil, serverError(err)
	}
	j := &job{change: x, until: time.Now().Add(changeFor), done: make(chan struct{})}
	c.takeBack(j)
	return j, err
}

// old reports whether it is too late for a repeat, also because the machine has slept.
func (x *change) old() bool { return x.start.elapsed(x.client.now()) > changeFor }

func (x *change) run(ctx context.Context) (resp.Value, error) {
	v, err := x.client.runInTime(ctx, x.target, x.call)
	x.unsure = x.unsure || err != nil && uncertain(err)
	return v, err
}

func (x *change) call(last int64) *call {
	x.last = max(x.last, last)
	args := append(append([]any{changeLife.Milliseconds(), x.client.publishing(x.target)}, x.args...), last)
	return &call{script: x.script, target: x.target, keys: x.target.with(x.latch), args: args}
}

// answered takes note of the server's answer. Something that is no answer is an error.
func (x *change) answered(v resp.Value) error {
	n, err := v.Int()
	if err != nil || v.Kind() != resp.Integer {
		x.unsure = true
		return fmt.Errorf("lock: unexpected reply to a change, of kind %v", v.Kind())
	}
	x.outcome = n
	x.client.cleanup.settleLatch(x.target.name, x.latch, x.unsure, x.last)
	return nil
}

// checkCount refuses numbers that cannot be counted with.
func checkCount(what string, n, least int) error {
	if n < least || n > maxCount {
		return invalidf("%s of %d", what, n)
	}
	return nil
}
