package remote

import (
	"cmp"
	"context"
	"sync"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// Call is a run of a script with several keys.
type Call struct {
	Script   *script.Script
	Lock     Lock
	Keys     []string
	Args     []any
	Doer     conn.Doer // carries the requests; nil for the client's server
	LineOnly bool      // changes the line only: may run anywhere in a batch, and never runs apart
	NoRetry  bool      // a call refused while its slot migrates runs apart once, and is repeated by the caller
	Apart    Apart     // how the call runs apart

	Sent clock.Instant // set by Run: the time before the last request; earlier ones were refused, and changed nothing
}

// Runner runs the scripts of locks.
type Runner struct {
	server   *Server
	clocks   *Clocks
	channels *Channels
	now      func() clock.Instant
	apart    sync.Map // variants of scripts for migrating slots, by the original
}

// NewRunner returns the Runner of s. now is the client's clock.
func NewRunner(s *Server, clocks *Clocks, channels *Channels, now func() clock.Instant) *Runner {
	return &Runner{server: s, clocks: clocks, channels: channels, now: now}
}

// RunInTime runs the call that of makes for a last moment, and a new call after one that arrived too late, unless of returns nil.
func (r *Runner) RunInTime(ctx context.Context, name string, of func(last int64) *Call) (resp.Value, error) {
	for range Arrivals {
		x := of(r.clocks.LastMoment(name))
		if x == nil {
			break
		}
		v, err := r.Run(ctx, x)
		if err != nil || !r.clocks.Late(name, v) {
			return v, err
		}
	}
	return resp.Value{}, ErrLate
}

// Run runs x, apart while the slot of its keys migrates.
func (r *Runner) Run(ctx context.Context, x *Call) (resp.Value, error) {
	ctx = Dividing(ctx)
	v, err := r.send(ctx, x, x.Script, x.Keys, x.Args)
	if !TryAgain(err) {
		return v, err
	}
	return r.RunMigrating(ctx, x, err)
}

// Outcome is the reply to a call, or its error.
type Outcome struct {
	Reply resp.Value
	Err   error
}

// RunBatch runs calls in one write, and those apart, one by one, whose slot migrates. The outcomes are in the order of calls.
func (r *Runner) RunBatch(ctx context.Context, calls []*Call) []Outcome {
	ctx = Dividing(ctx)
	batch, outcomes := make([]script.Call, len(calls)), make([]Outcome, len(calls))
	for i, x := range calls {
		batch[i] = x.Script.Call(x.Keys, x.Args...)
	}
	replies, err := script.RunBatch(ctx, r.server.Doer, batch)
	for i, x := range calls {
		v, failed := script.Outcome(replies, err, i)
		if failed = cmp.Or(failed, v.Err()); TryAgain(failed) {
			v, failed = r.RunMigrating(ctx, x, failed)
		}
		outcomes[i] = Outcome{v, failed}
	}
	return outcomes
}

// send makes a request of x, with the script of x or a variant of it.
func (r *Runner) send(ctx context.Context, x *Call, s *script.Script, keys []string, args []any) (resp.Value, error) {
	d := x.Doer
	if d == nil {
		d = r.server.Doer
	}
	x.Sent = r.now()
	return s.Run(ctx, d, keys, args...)
}
