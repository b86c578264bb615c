package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
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

	mu       sync.Mutex // guards the following
	ended    bool       // With has returned
	multis   int        // number of MULTI sent and not answered
	watching bool       // a WATCH is open
	queueing bool       // a MULTI is open
	changed  bool       // the state set by the handshake has changed: database, user, name and the like
	readOnly bool       // the server replied READONLY or NOAUTH
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
	cfg.Trace.dial(begin, cfg.Addr, true, protocol(s), err)
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
		return resp.Value{}, refusal(c.l.Addr, request{}, err)
	}
	return c.do(ctx, q, x, r)
}

// Send is like Do, for an encoded command.
func (c *Conn) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	q := request{Commands: []resp.Command{cmd}}
	if err := cmd.Err(); err != nil {
		return resp.Value{}, refusal(c.l.Addr, q, err)
	}
	r := ruleOfCommand(&cmd)
	return c.do(ctx, q, wholeText(&cmd, r), r)
}

func (c *Conn) do(ctx context.Context, q request, x pipeline.Text, r rule) (resp.Value, error) {
	c.active.Add(1)
	defer c.active.Add(-1)
	if err := c.prepare(r); err != nil {
		return resp.Value{}, refusal(c.l.Addr, q, err)
	}
	if r == blocks {
		q.setWait()
	}
	ctx, traced := c.cfg.Trace.enter(ctx, q)
	v, sent, err := c.l.Do(ctx, pipeline.Request(q), x)
	if err == nil {
		c.noteReply(r, v)
		err = v.Err()
	} else {
		err = q.failure(c.l, sent, err)
		c.noteUnanswered(r, !SafeToRetry(err))
	}
	traced.attempt(c.cfg, c.l, err)
	traced.End(ctx, err)
	if err != nil {
		return resp.Value{}, err
	}
	return v, nil
}

// SendBatch sends commands in order, without commands of other callers in between, and returns the replies in the
// same order. Error replies are values. If the connection fails, SendBatch returns the error and the replies received
// so far.
func (c *Conn) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if i, _, err := refuseAny(cmds, exclusive); err != nil {
		return nil, refusalOf(c.l.Addr, cmds, i, err)
	}
	c.active.Add(1)
	defer c.active.Add(-1)
	for i := range cmds {
		if err := c.prepare(ruleOfCommand(&cmds[i])); err != nil {
			c.noteUnansweredAll(cmds[:i], false)
			return nil, refusal(c.l.Addr, request{Commands: cmds}, err)
		}
	}
	q := request{Commands: cmds}
	q.setWait()
	ctx, traced := c.cfg.Trace.enter(ctx, q)
	values, err := q.doBatch(ctx, c.l)
	for i := range values {
		c.noteReply(ruleOfCommand(&cmds[i]), values[i])
	}
	c.noteUnansweredAll(cmds[len(values):], !SafeToRetry(err))
	traced.attempt(c.cfg, c.l, err)
	traced.End(ctx, err)
	return values, err
}

// prepare registers a command with rule r before the command is sent. Call noteReply or noteUnanswered afterwards.
func (c *Conn) prepare(r rule) error {
	if err := r.refuse(exclusive); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	if r == begins {
		c.multis++
		c.suspendPingsLocked(r)
	}
	return nil
}

// changesState reports whether a command with rule r makes a connection different from a new one.
func (r rule) changesState() bool {
	switch r {
	case plain, blocks, unwatches, ends:
		return false
	}
	return true
}

// inMultiLocked reports whether a MULTI is open, or has been sent and not answered.
func (c *Conn) inMultiLocked() bool { return c.queueing || c.multis > 0 }

// suspendPingsLocked stops PINGs while a transaction is open. It is called after a change by a command with rule r.
func (c *Conn) suspendPingsLocked(r rule) {
	if r == begins || r == ends || r == resets {
		c.l.SuspendPings(c.inMultiLocked())
	}
}

// noteUnanswered updates the state of the connection if a command with rule r got no answer. A command that was sent
// counts as executed. An EXEC or DISCARD that was sent makes the connection unfit for another loan, because the server
// may have refused to end the transaction.
func (c *Conn) noteUnanswered(r rule, sent bool) {
	if !r.changesState() && r != ends {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r == begins {
		c.multis--
	}
	switch {
	case !sent:
	case r == watches:
		c.watching = true
	case r == begins:
		c.queueing = true
	case r == ends, r == resets:
		c.queueing, c.changed = false, true
	default:
		c.changed = true
	}
	c.suspendPingsLocked(r)
}

func (c *Conn) noteUnansweredAll(cmds []resp.Command, sent bool) {
	for i := range cmds {
		c.noteUnanswered(ruleOfCommand(&cmds[i]), sent)
	}
}

// noteReply updates the state of the connection by the reply v to a command with rule r. It is called in the order of the
// replies. An error reply to a command that would change the state counts as a change.
func (c *Conn) noteReply(r rule, v resp.Value) {
	err := v.Err()
	if r == plain && err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r == begins {
		c.multis--
	}
	switch {
	case err != nil && netfail.Reply(err) == netfail.Redial: // READONLY or NOAUTH: do not lend the connection again
		c.changed, c.readOnly = true, true
	case r == watches:
		c.watching = true
	case r == begins:
		c.queueing = c.queueing || err == nil
	case r == ends && c.queueing && (err == nil || discards(err)):
		c.watching, c.queueing = false, false
	case r == ends && errors.Is(err, resp.ErrGeneral) && strings.HasSuffix(err.Error(), " without MULTI"): // none was open
		c.queueing = false
	case r == unwatches && !c.queueing:
		c.watching = false
	case r == resets && err == nil:
		c.watching, c.queueing, c.changed = false, false, true
	case r.changesState():
		c.changed = true
	}
	c.suspendPingsLocked(r)
}

// end marks the Conn as unusable when With returns. changed reports that the connection must not be lent again: its
// state differs, or a call is still in progress and could reach the connection during the next loan. readOnly reports
// a READONLY or NOAUTH reply.
func (c *Conn) end() (changed, readOnly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.watching || c.queueing || c.changed || c.active.Load() > 0, c.readOnly
}

// Protocol returns the RESP version of the connection, 2 or 3.
func (c *Conn) Protocol() int { return c.l.Proto }

// Done returns a channel that closes when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.l.Done() }

// Err returns the reason why the connection was lost, ErrClosed after Close, and nil while the connection is open.
func (c *Conn) Err() error { return c.l.Err() }

// Close closes the connection. Calls in progress fail with ErrClosed. For a Conn made by Dial, Close returns after
// all goroutines of the Conn have ended, so a callback in Config must not call Close. Close returns nil and may be
// called more than once.
func (c *Conn) Close() error {
	c.l.Fail(ErrClosed)
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
	if onPurpose(err) {
		return
	}
	info := LostInfo{Addr: l.Addr, Exclusive: true, Age: time.Since(l.Start), InFlight: outstanding, Err: err}
	o.wg.Go(func() { report(&o.cfg, info) })
}

// Trace returns Config.Trace.
func (c *Conn) Trace() *Trace { return c.cfg.Trace }
