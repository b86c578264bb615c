package conn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Call is a call under way, from CommandStart to CommandEnd of a [Trace]. A nil Call is not traced, and its End does
// nothing.
type Call struct {
	trace *Trace
	begin time.Time

	mu  sync.Mutex // guards the following
	end CommandEnd
}

// callKey is the key of the Call in the context of its commands.
const callKey contextKey = 2

// StartCall begins a call of several commands on d, for packages that send more than one command for a call of theirs:
// the commands under the returned context are attempts of the call, and are not reported on their own. The caller
// must call End.
//
// The Call is nil if d has no Trace, or if ctx belongs to a call already.
func StartCall(ctx context.Context, d Doer, start CommandStart) (context.Context, *Call) {
	t := TraceOf(d)
	if !t.wantsCommands() || ctx.Value(callKey) != nil {
		return ctx, nil
	}
	ctx, call := t.start(ctx, start)
	return context.WithValue(ctx, callKey, call), call
}

// StartCommands is StartCall for a call that sends cmds, as a transaction if tx is set.
func StartCommands(ctx context.Context, d Doer, cmds []resp.Command, tx bool) (context.Context, *Call) {
	if !TraceOf(d).wantsCommands() {
		return ctx, nil
	}
	start := request{Commands: cmds}.describe()
	if tx {
		start.Batch = Transaction
	}
	return StartCall(ctx, d, start)
}

// TraceOf returns the Trace of d, or nil. A Pool, a Conn and a cluster.Cluster have one by their Config. A type that
// wraps a Doer passes it on by a method Trace() *Trace.
func TraceOf(d Doer) *Trace {
	if traced, ok := d.(interface{ Trace() *Trace }); ok {
		return traced.Trace()
	}
	return nil
}

func (t *Trace) wantsCommands() bool {
	return t != nil && (t.CommandStart != nil || t.CommandEnd != nil)
}

func (t *Trace) start(ctx context.Context, start CommandStart) (context.Context, *Call) {
	c := &Call{trace: t, begin: time.Now(), end: CommandEnd{CommandStart: start}}
	if t.CommandStart != nil {
		ctx = t.CommandStart(ctx, start)
	}
	return ctx, c
}

// End reports the end of the call with the context of StartCall and the error for the caller.
func (c *Call) End(ctx context.Context, err error) {
	if c == nil || c.trace.CommandEnd == nil {
		return
	}
	c.mu.Lock()
	end := c.end
	c.mu.Unlock()
	end.Elapsed, end.Err = time.Since(c.begin), err
	end.Sent = end.Sent || err == nil || !errors.Is(err, ErrNotSent)
	c.trace.CommandEnd(ctx, end)
}

// part is the share of one method call of a Pool or Conn in a Call. The zero part is not traced.
type part struct {
	call *Call
	own  bool // the method call is the whole Call
}

// enter begins a method call, unless ctx belongs to a Call already.
func (t *Trace) enter(ctx context.Context, q request) (context.Context, part) {
	if !t.wantsCommands() {
		return ctx, part{}
	}
	if call, ok := ctx.Value(callKey).(*Call); ok {
		return ctx, part{call: call}
	}
	ctx, call := t.start(ctx, q.describe())
	return ctx, part{call: call, own: true}
}

// attempt records an attempt over l, or without a connection if l is nil, that ended with err.
func (p part) attempt(cfg *Config, l *pipeline.Link, err error) {
	c := p.call
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.Attempts++
	if l == nil {
		if c.end.Server == "" {
			c.end.Server, c.end.DB = cfg.Addr, cfg.DB
		}
		return
	}
	c.end.Server, c.end.DB, c.end.Protocol = l.Addr, cfg.DB, l.Proto
	c.end.Sent = c.end.Sent || !SafeToRetry(err)
}

// done ends the method call.
func (p part) done(ctx context.Context, err error) {
	if p.own {
		p.call.End(ctx, err)
	}
}

// describe returns the description of q for a Trace.
func (q request) describe() CommandStart {
	cmds := q.Commands
	if len(cmds) == 0 {
		return CommandStart{Name: q.name(), Count: 1}
	}
	s := CommandStart{Name: netfail.Op(cmds[0].Name()), Count: len(cmds)}
	if n := len(cmds) - 1; n > 1 && strings.EqualFold(cmds[0].Name(), "multi") && strings.EqualFold(cmds[n].Name(), "exec") {
		cmds = cmds[1:n]
		s = CommandStart{Name: netfail.Op(cmds[0].Name()), Count: len(cmds), Batch: Transaction}
	} else if n > 0 {
		s.Batch = Pipeline
	}
	if names := distinct(cmds); len(names) > 1 {
		s.Name, s.Names = "", names
	}
	return s
}

// distinct returns the names of cmds, equal neighbours once; nil if all are equal.
func distinct(cmds []resp.Command) (names []string) {
	last := cmds[0].Name()
	for i := range cmds {
		if name := cmds[i].Name(); name != last {
			if names == nil {
				names = append(names, netfail.Op(last))
			}
			names, last = append(names, netfail.Op(name)), name
		}
	}
	return names
}
