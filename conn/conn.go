package conn

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

var errEnded = fmt.Errorf("%w: the function given to With has returned", ErrClosed)

// Conn is one connection, made by [Dial] or lent by [Pool.With]. Use a Conn for commands that must share a connection.
//
// Many goroutines may use a Conn at once; their commands are pipelined. WATCH, MULTI and blocking commands are for
// one goroutine at a time, because they affect every command sent after them.
//
// A Conn neither repeats a command nor connects again. If a caller's ctx ends, the connection stays open and the late
// reply is dropped. A blocking command is the exception: the end of its ctx closes the connection, because the server
// would otherwise go on waiting and hand an element to an absent caller. An element already on its way may still be
// lost.
type Conn struct {
	l   *pipeline.Link
	cfg *Config     // constant
	own *dialedConn // nil if lent by a Pool

	active atomic.Int32 // calls in progress

	mu    sync.Mutex // guards the following
	ended bool       // With has returned
	state connState
}

// Dial connects to the server at cfg.Addr, or to the master named by cfg.Sentinel. Dial makes one attempt, bounded by
// ctx and cfg.DialTimeout. A question to a sentinel takes further time, Sentinel.Timeout at most. The fields for pools and
// for repetition have no effect. The caller closes the Conn.
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	begin := time.Now()
	s, err := dialServer(ctx, &cfg)
	cfg.Trace.dial(begin, cfg.Addr, true, s, err)
	if err != nil {
		return nil, err
	}
	own := &dialedConn{cfg: cfg}
	own.pushes = newPushes(cfg.OnPush, &own.wg)
	l := pipeline.New(s, own.cfg.linkConfig(false), own, &own.wg)
	return &Conn{l: l, cfg: &own.cfg, own: own}, nil
}

// Do sends a command, given as name and arguments, and returns the reply. Arguments are strings, []byte, bools,
// integers, floats and slices of these, as for resp.Cmd; Do keeps none of them. An error reply is returned as a
// resp.Error; a null reply is a value.
func (c *Conn) Do(ctx context.Context, args ...any) (resp.Value, error) {
	var short [512]byte
	q, x, r, long, err := encode(short[:0], args)
	defer long.release()
	if err != nil {
		return resp.Value{}, refusal(c.l.Addr, "", err)
	}
	return c.do(ctx, q, x, r)
}

// Send is like Do, for an encoded command.
func (c *Conn) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	if err := cmd.Err(); err != nil {
		return resp.Value{}, refusal(c.l.Addr, "", err)
	}
	r := ruleOfCommand(&cmd)
	return c.do(ctx, request{Commands: []resp.Command{cmd}}, wholeText(&cmd, r), r)
}

func (c *Conn) do(ctx context.Context, q request, x pipeline.Text, r rule) (resp.Value, error) {
	c.active.Add(1)
	defer c.active.Add(-1)
	if err := cmp.Or(r.refuse(onExclusive), c.begin(r)); err != nil { // MULTI is not refused
		return resp.Value{}, refusal(c.l.Addr, q.name(), err)
	}
	if r == blocks {
		q.setWait()
	}
	ctx, traced, own := c.cfg.Trace.enter(ctx, q)
	v, err := q.do(ctx, c.l, x)
	c.note(r, err)
	traced.attempt(c.cfg, c.l, err)
	own.End(ctx, err)
	return v, err
}

// SendBatch sends commands in order, without commands of other callers in between, and returns the replies in the
// same order. Error replies are values. If the connection fails, SendBatch returns the error and the replies received
// so far.
func (c *Conn) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if _, err := refuseAny(c.l.Addr, cmds, onExclusive); err != nil {
		return nil, err
	}
	c.active.Add(1)
	defer c.active.Add(-1)
	q := request{Commands: cmds}
	for i := range cmds {
		if err := c.begin(ruleOfCommand(&cmds[i])); err != nil {
			return nil, refusal(c.l.Addr, q.name(), err)
		}
	}
	q.setWait()
	ctx, traced, own := c.cfg.Trace.enter(ctx, q)
	values, err := q.doBatch(ctx, c.l)
	for i := range cmds {
		outcome := err
		if i < len(values) {
			outcome = values[i].Err()
		}
		c.note(ruleOfCommand(&cmds[i]), outcome)
	}
	traced.attempt(c.cfg, c.l, err)
	own.End(ctx, err)
	return values, err
}

// begin registers a command with rule r before it is sent. Call note afterwards.
func (c *Conn) begin(r rule) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	if r == begins {
		c.state.multis++
		c.l.SuspendPings(true)
	}
	return nil
}

// note updates the state of the connection by the outcome of a command with rule r. It is called in the order of the
// replies.
func (c *Conn) note(r rule, err error) {
	if r == plain && err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.note(r, err)
	if r == begins || r == ends || r == resets {
		c.l.SuspendPings(c.state.inMulti())
	}
}

// end marks the Conn as unusable when With returns. changed reports that the connection must not be lent again: its
// state differs, or a call is still in progress and could reach the connection during the next loan. readOnly reports
// a READONLY or NOAUTH reply.
func (c *Conn) end() (changed, readOnly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.state.differs() || c.active.Load() > 0, c.state.readOnly
}

// Protocol returns the RESP version of the connection, 2 or 3.
func (c *Conn) Protocol() int { return c.l.Proto }

// Done returns a channel that closes when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.l.Done() }

// Err returns the reason why the connection was lost, ErrClosed after Close, and nil while the connection is open.
func (c *Conn) Err() error { return c.l.Err() }

// Close closes the connection. Calls in progress fail with ErrClosed. For a Conn made by Dial, Close returns after
// all goroutines of the Conn have ended, so a callback in Config must not call Close. For a Conn lent by With, Close does
// nothing after With has returned. Close returns nil and may be called more than once.
func (c *Conn) Close() error {
	c.mu.Lock()
	ended := c.ended // then the Pool may have lent the connection to another caller
	c.mu.Unlock()
	if !ended {
		c.l.Fail(ErrClosed)
	}
	if c.own != nil {
		c.own.pushes.close()
		c.own.wg.Wait()
	}
	return nil
}

// dialedConn owns the link of a Conn made by Dial.
type dialedConn struct {
	cfg    Config
	pushes *pushes
	wg     sync.WaitGroup
}

func (o *dialedConn) Push(_ *pipeline.Link, v resp.Value) { o.pushes.add(v) }
func (o *dialedConn) Due(*pipeline.Link)                  {}
func (o *dialedConn) Drained(*pipeline.Link)              {}

func (o *dialedConn) Lost(l *pipeline.Link, outstanding int, err error) {
	if !onPurpose(err) {
		report(&o.cfg, &o.wg, l, true, outstanding, err)
	}
}

// Trace returns Config.Trace.
func (c *Conn) Trace() *Trace { return c.cfg.Trace }
