package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Doer sends commands: a Pool, a Conn, or a cluster. Its methods may be called by many goroutines at once.
type Doer interface {
	// Send sends one command and returns its reply. An error reply is returned as an error, a resp.Error; a null is a
	// value.
	Send(ctx context.Context, cmd resp.Command) (resp.Value, error)

	// SendBatch sends commands over one connection, next to each other and in order, and returns their replies in
	// the same order. Error replies are values. With an error, which is that of the connection, the replies are those
	// of the first commands, as far as they are known.
	SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error)
}

var errEnded = fmt.Errorf("%w: the function given to With has returned", ErrClosed)

// Conn is one connection, for those who need to know that it is the same: made by [Dial] or lent by [Pool.With]. It
// may be used by many goroutines at once, whose commands then follow each other without waiting for answers; but WATCH,
// MULTI and blocking commands are for one at a time, as they concern whatever is sent behind them.
//
// Nothing is repeated or connected again. A caller that leaves because its ctx ends does no harm to the connection: its
// reply is dropped when it comes. Only a blocking command ends with its connection, as the server would go on waiting,
// and then take an element for nobody; even so an element may be lost that was already on its way.
type Conn struct {
	l     *link
	trace *Trace
	own   *single // nil if lent

	active atomic.Int32 // calls in progress

	mu       sync.Mutex            // guards the following
	ended    bool                  // With has returned
	begun    [unanswered + 1]int32 // commands in progress that change the connection, by their rules
	watching bool                  // a WATCH is open
	queueing bool                  // a MULTI is open
	changed  bool                  // database, user, name or the like
	readOnly bool                  // the server has said so
}

// Dial connects to the server at cfg.Addr, within ctx and cfg.DialTimeout. It tries once. What cfg says of pools and
// repetition has no effect. The caller closes the Conn.
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	begin := time.Now()
	s, err := dialServer(ctx, &cfg)
	cfg.Trace.dial(begin, cfg.Addr, true, s.protocol(), err)
	if err != nil {
		return nil, err
	}
	own := &single{cfg: cfg}
	own.pushes = newPushes(cfg.OnPush, &own.wg)
	return &Conn{l: newLink(s, &own.cfg, false, own, &own.wg), trace: cfg.Trace, own: own}, nil
}

// Do sends a command, given as its name and arguments, and returns its reply. Arguments are strings, []byte, bools,
// integers and floats, as for resp.Cmd; none is kept. An error reply is returned as an error, a resp.Error; a null is
// a value.
func (c *Conn) Do(ctx context.Context, args ...any) (resp.Value, error) {
	var buf [512]byte
	b, err := resp.AppendCommand(buf[:0], args...)
	if err != nil {
		return resp.Value{}, refusal(c.l.addr, request{}, err)
	}
	return c.do(ctx, request{encoded: b}, ruleOfEncoded(b))
}

// Send is Do for a command that is encoded already.
func (c *Conn) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	q := request{cmds: []resp.Command{cmd}}
	if err := cmd.Err(); err != nil {
		return resp.Value{}, refusal(c.l.addr, q, err)
	}
	return c.do(ctx, q, ruleOfCommand(&cmd))
}

func (c *Conn) do(ctx context.Context, q request, r rule) (resp.Value, error) {
	c.active.Add(1)
	defer c.active.Add(-1)
	limit, err := c.prepare(r)
	if err != nil {
		return resp.Value{}, refusal(c.l.addr, q, err)
	}
	begin := c.trace.begin()
	v, err := c.l.do(ctx, q, limit)
	if err == nil {
		c.settle(r, v)
		err = v.Err()
	} else {
		c.forgo(r, !SafeToRetry(err))
	}
	c.trace.command(begin, c.l.addr, q, err)
	if err != nil {
		return resp.Value{}, err
	}
	return v, nil
}

// SendBatch sends commands next to each other and in order, and returns their replies in the same order. Error replies
// are values. With an error, the replies are those of the first commands, as far as they have come.
func (c *Conn) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if i, err := refuseAny(cmds, exclusive); err != nil {
		return nil, refusal(c.l.addr, request{cmds: cmds[i:]}, err)
	}
	c.active.Add(1)
	defer c.active.Add(-1)
	var limit time.Duration
	for i := range cmds {
		most, err := c.prepare(ruleOfCommand(&cmds[i]))
		if err != nil {
			c.forgoAll(cmds[:i], false)
			return nil, refusal(c.l.addr, request{cmds: cmds}, err)
		}
		if most == never {
			most = c.l.waitLimit(&cmds[i])
		}
		limit = max(limit, most)
	}
	begin := c.trace.begin()
	values, err := c.l.doBatch(ctx, request{cmds: cmds}, limit)
	for i := range values {
		c.settle(ruleOfCommand(&cmds[i]), values[i])
	}
	c.forgoAll(cmds[len(values):], !SafeToRetry(err))
	c.trace.command(begin, c.l.addr, request{cmds: cmds}, err)
	return values, err
}

// prepare takes note that a command with the rule r is about to be sent, and returns the limit for its answer. It is
// followed by settle or forgo.
func (c *Conn) prepare(r rule) (limit time.Duration, err error) {
	if err := r.refuse(exclusive); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, errEnded
	}
	if r == blocks {
		limit = never
	}
	if r.lasts() {
		c.begun[r]++
		c.hushLocked(r)
	}
	return limit, nil
}

// lasts reports whether a command with the rule r leaves the connection in another state.
func (r rule) lasts() bool {
	switch r {
	case plain, blocks, unwatches, ends:
		return false
	}
	return true
}

// openLocked reports whether a MULTI is open, or will be.
func (c *Conn) openLocked() bool { return c.queueing || c.begun[begins] > 0 }

// hushLocked lets no PING be sent in a transaction, once a command with the rule r has begun or ended.
func (c *Conn) hushLocked(r rule) {
	if r == begins || r == ends {
		c.l.hush(c.openLocked())
	}
}

// forgo takes note that a command with the rule r has no answer. If it was sent, it may have done what it does.
func (c *Conn) forgo(r rule, sent bool) {
	if !r.lasts() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun[r]--
	switch {
	case !sent:
	case r == watches:
		c.watching = true
	case r == begins:
		c.queueing = true
	default:
		c.changed = true
	}
	c.hushLocked(r)
}

func (c *Conn) forgoAll(cmds []resp.Command, sent bool) {
	for i := range cmds {
		c.forgo(ruleOfCommand(&cmds[i]), sent)
	}
}

// settle takes note of what a command with the rule r has done and undone, once it has the answer v, in the order of
// the answers. A server that says that it is read-only is not the one to lend connections to.
func (c *Conn) settle(r rule, v resp.Value) {
	err := v.Err()
	if r == plain && err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.lasts() {
		c.begun[r]--
	}
	switch {
	case err != nil && netfail.Reply(err) == netfail.Redial:
		c.changed, c.readOnly = true, true
	case r == watches:
		c.watching = true
	case r == begins:
		c.queueing = true
	case r == ends && c.queueing && (err == nil || discards(err)):
		c.watching, c.queueing = false, false
	case r == ends && errors.Is(err, resp.ErrGeneral) && strings.HasSuffix(err.Error(), " without MULTI"):
		c.queueing = false
	case r == unwatches && !c.queueing:
		c.watching = false
	case r.lasts():
		c.changed = true
	}
	c.hushLocked(r)
}

// end makes the Conn useless, when With ends, and reports whether its connection is not to be lent again: it is in
// another state than before, or a call is still in progress, which might reach it when it is somebody else's. It also
// reports whether the server has said that it is read-only.
func (c *Conn) end() (changed, readOnly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.watching || c.queueing || c.changed || c.active.Load() > 0, c.readOnly
}

// Protocol returns the version of RESP that the handshake agreed on, 2 or 3.
func (c *Conn) Protocol() int { return c.l.proto }

// Done returns a channel that is closed when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.l.done }

// Err returns why the connection was lost, ErrClosed if this program closed it, and nil as long as it stands.
func (c *Conn) Err() error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.l.err
}

// Close closes the connection. Calls that wait for a reply fail with ErrClosed. When it returns no goroutine of a Conn
// made by Dial runs any more. It may be called more than once, and returns nil.
func (c *Conn) Close() error {
	c.l.fail(ErrClosed)
	if c.own != nil {
		c.own.pushes.close()
		c.own.wg.Wait()
	}
	return nil
}

// single owns the link of a Conn made by Dial.
type single struct {
	cfg    Config
	pushes *pushes
	wg     sync.WaitGroup
}

func (o *single) push(_ *link, v resp.Value) { o.pushes.add(v) }
func (o *single) due(*link)                  {}
func (o *single) drained(*link)              {}

func (o *single) lost(l *link, outstanding int, err error) {
	if onPurpose(err) {
		return
	}
	info := LostInfo{Addr: l.addr, Exclusive: true, Age: time.Since(l.start), InFlight: outstanding, Err: err}
	o.wg.Go(func() { report(&o.cfg, info) })
}
