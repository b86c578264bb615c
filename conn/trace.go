package conn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/callback"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Trace holds callbacks for traces, metrics and logs. A nil callback costs nothing. Callbacks receive names and
// addresses, never arguments, keys or values.
//
// Several goroutines may run callbacks at once, without a lock held, and never the goroutine that reads replies. The
// call or dial that caused the event waits for the callback. A callback must not close the Pool or Conn, because
// Close waits for callbacks. Dial must not send a command by the Pool, because the command may wait for that dial.
//
// A call is reported once, by CommandStart and CommandEnd, however many attempts, redirections of a cluster and
// connections it takes. The run of a script is one call too: the source sent after NOSCRIPT is its second attempt. A
// call refused before it is sent, such as BLPOP on a shared connection, is not reported.
type Trace struct {
	// CommandStart is called before a call, with the context of the caller. The call goes on under the returned
	// context, which must be derived from ctx; CommandEnd, Retry and Wait receive it.
	CommandStart func(ctx context.Context, start CommandStart) context.Context

	// CommandEnd is called when a call returns.
	CommandEnd func(ctx context.Context, end CommandEnd)

	// Wait is called after a call has waited for a connection: for a dial, or for an exclusive connection that
	// another caller had.
	Wait func(ctx context.Context, wait WaitInfo)

	// Retry is called before a call pauses and tries again.
	Retry func(ctx context.Context, retry RetryInfo)

	Dial     func(DialInfo)     // a dial has ended
	Lost     func(LostInfo)     // a connection has failed; not called for connections closed on purpose
	Switch   func(SwitchInfo)   // a Pool follows its sentinels to another master; not called for the first
	Topology func(TopologyInfo) // a cluster's slots have other masters; not called for the first topology
}

// Batch is the form of a call.
type Batch uint8

const (
	Single      Batch = iota // one command
	Pipeline                 // several commands in one write
	Transaction              // several commands between MULTI and EXEC
)

// CommandStart describes a call before it is sent.
type CommandStart struct {
	Name   string   // name of the command; of a batch the name common to its commands, or "" if they differ
	Names  []string // names of a batch's commands in their order, equal neighbours once; nil unless they differ
	Script string   // name of the Lua script, as given to script.Named; of a batch the common name
	Batch  Batch
	Count  int // number of commands, without MULTI and EXEC
}

// Operation returns the name of the operation as OpenTelemetry's conventions for Redis define it: the name of the
// command; for batches PIPELINE or MULTI, followed by the common name of the commands, if any.
func (s CommandStart) Operation() string {
	prefix := ""
	switch s.Batch {
	case Pipeline:
		prefix = "PIPELINE "
	case Transaction:
		prefix = "MULTI "
	}
	return strings.TrimSuffix(prefix+s.Name, " ")
}

// CommandEnd describes a call that has returned.
type CommandEnd struct {
	CommandStart
	Server   string        // address of the last connection used; without one Config.Addr, in a cluster that of the node or ""
	DB       int           // Config.DB
	Protocol int           // 2 or 3, of the last connection; 0 without one
	Attempts int           // number of attempts, also to connect; 1 unless something was repeated, or a batch went to several nodes
	Sent     bool          // a byte was written, so the call may have had an effect
	Elapsed  time.Duration // duration of the call, including waits for a connection, dials and repetitions
	Err      error         // error returned to the caller
}

// WaitInfo describes the wait of a call for a connection.
type WaitInfo struct {
	Addr      string
	Exclusive bool
	Elapsed   time.Duration
	Err       error // nil if the call has got a connection
}

// DialInfo describes one attempt to connect, including TLS and handshake.
type DialInfo struct {
	Addr      string
	Exclusive bool          // connection for With, Dial or Stream
	Protocol  int           // 2 or 3; 0 after an error
	Elapsed   time.Duration // duration of the dial
	Err       error         // nil after success
}

// RetryInfo describes a call that will try again, because its last attempt did not run.
type RetryInfo struct {
	Name    string
	Addr    string
	Attempt int           // number of attempts so far: 1 before the first repetition
	Pause   time.Duration // wait before the next attempt
	Err     error         // reason why the last attempt did not run
}

// LostInfo describes a failed connection.
type LostInfo struct {
	Addr      string
	Exclusive bool
	Age       time.Duration // time since the handshake
	InFlight  int           // calls that end without an answer
	Err       error
}

// SwitchInfo describes a change of the master.
type SwitchInfo struct {
	Master   string // name of the master, Sentinel.Master
	From, To string // addresses dialed
}

// TopologyInfo describes the slots of a cluster after a change.
type TopologyInfo struct {
	Masters int // masters that serve slots
	Served  int // slots served, 16384 in a complete cluster
	Moved   int // slots with another master than before
}

func (t *Trace) retry(ctx context.Context, addr string, q request, attempt int, pause time.Duration, err error) {
	if t != nil && t.Retry != nil {
		t.Retry(ctx, RetryInfo{Name: q.name(), Addr: addr, Attempt: attempt, Pause: pause, Err: err})
	}
}

func (t *Trace) waited(ctx context.Context, begin time.Time, addr string, exclusive bool, err error) {
	if t != nil && t.Wait != nil {
		t.Wait(ctx, WaitInfo{Addr: addr, Exclusive: exclusive, Elapsed: time.Since(begin), Err: err})
	}
}

// dial reports a dial that has made s, or nil with an error.
func (t *Trace) dial(begin time.Time, addr string, exclusive bool, s *pipeline.Session, err error) {
	if t == nil || t.Dial == nil {
		return
	}
	info := DialInfo{Addr: addr, Exclusive: exclusive, Elapsed: time.Since(begin), Err: err}
	if s != nil {
		info.Protocol = s.Proto
	}
	t.Dial(info)
}

// Call is a call under way, from CommandStart to CommandEnd of a [Trace]. A nil Call is not traced, and its End does
// nothing.
type Call struct {
	trace *Trace
	begin time.Time

	mu  sync.Mutex // guards the following
	end CommandEnd
}

// callKey is the type of the key of the Call in the context of its commands.
type callKey struct{}

// callContext is the context of the commands of a Call. It contains the Call to save an allocation in each run of a script.
type callContext struct {
	context.Context
	call Call
}

func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return &c.call
	}
	return c.Context.Value(key)
}

// StartCall begins a call on d, for packages that may send several commands for one call of their own. Commands under the
// returned context count as attempts of this call and are not reported by themselves. The caller must call End.
//
// The Call is nil if d has no Trace, or if ctx belongs to a call already.
func StartCall(ctx context.Context, d Doer, start CommandStart) (context.Context, *Call) {
	t := TraceOf(d)
	if !t.wantsCommands() || ctx.Value(callKey{}) != nil {
		return ctx, nil
	}
	c := &callContext{Context: ctx}
	c.Context = c.call.start(ctx, t, start)
	return c, &c.call
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

// start begins c, which is zero, for t.
func (c *Call) start(ctx context.Context, t *Trace, start CommandStart) context.Context {
	c.trace, c.begin, c.end.CommandStart = t, time.Now(), start
	if t.CommandStart != nil {
		ctx = t.CommandStart(ctx, start)
	}
	return ctx
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

// enter begins the Call of q, a method call of a Pool or Conn. If ctx belongs to a Call of StartCall, q is an attempt of that
// Call, and own is nil. Otherwise both results are the new Call, or nil without a Trace.
func (t *Trace) enter(ctx context.Context, q request) (_ context.Context, call, own *Call) {
	if !t.wantsCommands() {
		return ctx, nil, nil
	}
	if whole, ok := ctx.Value(callKey{}).(*Call); ok {
		return ctx, whole, nil
	}
	call = new(Call)
	return call.start(ctx, t, q.describe()), call, call
}

// attempt records an attempt over l, or without a connection if l is nil, that ended with err.
func (c *Call) attempt(cfg *Config, l *pipeline.Link, err error) {
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

func (q request) describe() CommandStart {
	cmds := q.Commands
	if len(cmds) == 0 {
		return CommandStart{Name: q.name(), Count: 1}
	}
	batch := Single
	switch n := len(cmds) - 1; {
	case n > 1 && strings.EqualFold(cmds[0].Name(), "multi") && strings.EqualFold(cmds[n].Name(), "exec"):
		cmds, batch = cmds[1:n], Transaction
	case n > 0:
		batch = Pipeline
	}
	s := CommandStart{Batch: batch, Count: len(cmds), Names: distinct(cmds)}
	if len(s.Names) == 1 {
		s.Name, s.Names = s.Names[0], nil
	}
	return s
}

// distinct returns the names of cmds, equal neighbours once.
func distinct(cmds []resp.Command) (names []string) {
	for i := range cmds {
		if name := netfail.Op(cmds[i].Name()); len(names) == 0 || name != names[len(names)-1] {
			names = append(names, name)
		}
	}
	return names
}

// JoinTraces returns a Trace that calls the callbacks of all traces, in their order; an End, Wait or Retry in the
// reverse order. Nil traces are left out. JoinTraces returns nil if no trace is left.
func JoinTraces(traces ...*Trace) *Trace { return callback.Join(traces, (*Trace).join) }

// join returns a Trace that calls t and then inner, whose contexts are derived from those of t.
func (t *Trace) join(inner *Trace) *Trace {
	return &Trace{
		CommandStart: callback.Start(t.CommandStart, inner.CommandStart),
		CommandEnd:   callback.End(t.CommandEnd, inner.CommandEnd),
		Wait:         callback.End(t.Wait, inner.Wait),
		Retry:        callback.End(t.Retry, inner.Retry),
		Dial:         callback.Event(t.Dial, inner.Dial),
		Lost:         callback.Event(t.Lost, inner.Lost),
		Switch:       callback.Event(t.Switch, inner.Switch),
		Topology:     callback.Event(t.Topology, inner.Topology),
	}
}

// errRetired is the reason for closing a connection that the Pool no longer needs.
var errRetired = errors.New("conn: connection retired by its pool")

// onPurpose reports whether this program closed a link that failed with err.
func onPurpose(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, errRetired) || errors.Is(err, sentinel.ErrSwitched)
}

// report reports a failed link, in a goroutine counted by wg: the caller may be readLoop.
func report(cfg *Config, wg *sync.WaitGroup, l *pipeline.Link, exclusive bool, outstanding int, err error) {
	info := LostInfo{Addr: l.Addr, Exclusive: exclusive, Age: time.Since(l.Start), InFlight: outstanding, Err: err}
	wg.Go(func() {
		if cfg.Trace != nil && cfg.Trace.Lost != nil {
			cfg.Trace.Lost(info)
		}
		warn(cfg, "connection lost", "error", info.Err, "unanswered", info.InFlight)
	})
}

func warn(cfg *Config, text string, args ...any) {
	if cfg.Logger != nil {
		cfg.Logger.Warn("conn: "+text, append([]any{"addr", cfg.Addr}, args...)...)
	}
}
