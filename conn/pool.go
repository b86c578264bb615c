package conn

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// openAttempts is the default number of attempts of Open without sentinels. With sentinels an election may be in
// progress, and the budget alone limits Open.
const openAttempts = 4

// Open returns a Pool for the server at cfg.Addr, or for the master named by cfg.Sentinel. Open dials one connection,
// within the limits of ctx and cfg.Retry, and so reports a wrong address or password at once.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	policy := p.cfg.Retry
	if policy.Attempts == 0 && p.resolver == nil {
		policy.Attempts = openAttempts
	}
	connected := func(context.Context, *pipeline.Link) (none struct{}, _ error) { return none, nil }
	if _, err := attempts(ctx, p.sharedConns[0], &policy, request{}, nil, connected); err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// New is like Open, but does not dial: the Pool connects on first use. New only returns errors about cfg.
func New(cfg Config) (*Pool, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Pool{
		cfg:          cfg,
		seed:         maphash.MakeSeed(),
		dialTokens:   make(chan struct{}, dialsAtOnce),
		links:        make(map[*pipeline.Link]struct{}),
		pendingDials: make(map[*dialState]struct{}),
	}
	p.life, p.end = context.WithCancelCause(context.Background())
	if cfg.Sentinel.used() {
		p.cfg.Addr = cfg.Sentinel.Master // the address in errors without a connection
		p.resolver = newResolver(&p.cfg, p.switched, p.goWhileOpen)
		p.streams = make(map[*Stream]struct{})
	}
	p.cfg.name = p.name
	p.pushes = newPushes(cfg.OnPush, &p.wg)
	for range cfg.Conns {
		p.sharedConns = append(p.sharedConns, &sharedConn{p: p})
	}
	return p, nil
}

// Do sends a command, given as name and arguments, and returns the reply. Arguments are strings, []byte, bools,
// integers, floats and slices of these, as for resp.Cmd; Do keeps none of them. An error reply is returned as a
// resp.Error; a null reply is a value.
func (p *Pool) Do(ctx context.Context, args ...any) (resp.Value, error) {
	var short [512]byte
	q, x, r, long, err := encode(short[:0], args)
	defer long.release()
	if err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, "", err)
	}
	if err := r.refuse(onShared); err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, q.name(), err)
	}
	return p.send(ctx, p.sharedFor("", false), q, x)
}

// Send sends one command and returns its reply, like Do. The routing key of cmd, if any, selects the shared connection.
func (p *Pool) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	err, r := cmd.Err(), plain
	if err == nil {
		r = ruleOfCommand(&cmd)
		err = r.refuse(onShared)
	}
	if err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, cmd.Name(), err)
	}
	return p.send(ctx, p.sharedFor(cmd.Key()), request{Commands: []resp.Command{cmd}}, wholeText(&cmd, r))
}

// SendBatch sends commands over one connection, in order and without commands of other callers in between, and returns
// the replies in the same order. The routing key of the first command selects the connection. Error replies are values.
//
// SendBatch repeats commands at the end of the batch that the server did not execute, within the limits of
// Config.Retry, and never changes the order. A refused command before an executed command is not repeated; the refusal
// is its reply. If the connection fails, SendBatch returns the error and the known replies of the first commands.
//
// A batch with WAIT or WAITAOF behind other commands borrows an exclusive connection, like With. SendBatch then repeats
// the batch as a whole, and only if the server executed no other command. A batch whose answer would come too late may
// not be sent at all: see [Leaves].
func (p *Pool) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	waits, err := refuseAny(p.cfg.Addr, cmds, inBatch)
	switch {
	case err != nil:
		return nil, err
	case waits:
		return p.sendAcked(ctx, cmds)
	}
	ctx, traced, own := p.cfg.Trace.enter(ctx, request{Commands: cmds})
	values, err := p.sendBatch(ctx, p.sharedFor(cmds[0].Key()), cmds, traced)
	own.End(ctx, err)
	return values, err
}

// Tx runs cmds as one transaction, MULTI to EXEC, on one shared connection, and returns the replies in order. The
// routing key of the first command selects the connection. If a command fails during EXEC, its error reply is a value
// in its place, and the other commands have run.
//
//   - If the server refuses a command before EXEC, no command runs, and the error wraps the refusal.
//   - If the server is not ready and refuses the transaction as a whole, for example with LOADING, Tx repeats the
//     transaction within the limits of Config.Retry.
//   - If the server refuses MULTI and accepts commands, they run outside a transaction, and the error matches
//     ErrUncertain.
func (p *Pool) Tx(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if _, err := refuseAny(p.cfg.Addr, cmds, inTx); err != nil {
		return nil, err
	}
	whole := wrapTx(cmds)
	q := request{Commands: whole, Verify: openMulti}
	return retried(ctx, p.sharedFor(cmds[0].Key()), q, func(ctx context.Context, l *pipeline.Link) ([]resp.Value, error) {
		values, err := q.doBatch(ctx, l)
		if err != nil {
			return nil, err
		}
		if err := values[len(values)-1].Err(); err != nil && openMulti(values) != nil { // the EXEC of another caller may run it
			return nil, &Error{Op: "EXEC", Addr: l.Addr, Sent: true, Err: fmt.Errorf("%w: %w", errOpenTx, err)}
		}
		return txReplies(l.Addr, cmds, values)
	})
}

// Block sends a command that may block, such as BLPOP, or that takes long, and returns its reply as Do does:
//
//	job, ok, err := resp.Maybe[[]string](pool.Block(ctx, "BLPOP", "jobs", 5))
//
// Block borrows an exclusive connection for the command, as With does, so at most Config.MaxConns of such commands wait
// at the same time, and further callers wait for a connection. Block does not repeat the command. If ctx ends while the
// command blocks, its connection is closed; an element that was on its way may be lost, so let the command's own timeout
// end the wait, and ctx end later. If the server is silent for Config.Timeout longer than the command's own timeout, the
// error matches ErrUncertain; a command without a timeout waits until ctx ends.
func (p *Pool) Block(ctx context.Context, args ...any) (v resp.Value, err error) {
	cmd := resp.Cmd(args...)
	if _, err := refuseAny(p.cfg.Addr, []resp.Command{cmd}, onExclusive); err != nil {
		return resp.Value{}, err
	}
	ctx, traced := StartCommands(ctx, p, []resp.Command{cmd}, false)
	defer func() { traced.End(ctx, err) }()
	lent := false
	err = p.With(ctx, func(c *Conn) (err error) {
		lent = true
		v, err = c.Send(ctx, cmd)
		return err
	})
	if !lent {
		traced.attempt(&p.cfg, nil, err)
	}
	return v, err
}

// Watch changes the values of keys depending on their present values. It watches the keys, calls fn, and runs the
// commands that fn returns as one transaction, whose replies it returns as Tx does:
//
//	_, err := pool.Watch(ctx, []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
//		n, err := resp.As[int](c.Do(ctx, "GET", "n"))
//		return []resp.Command{resp.Cmd("SET", "n", 2*n)}, err
//	})
//
// If another client changes one of the keys in the meantime, no command runs, and Watch begins anew after a short pause,
// with another call of fn, until ctx ends. If fn returns an error or no commands, Watch runs nothing and returns that
// error, whatever the error matches.
//
// fn reads with the Conn, which is lent as by With. Watch repeats nothing else; an error that matches ErrUncertain means
// that the transaction may have run.
func (p *Pool) Watch(ctx context.Context, keys []string, fn func(*Conn) ([]resp.Command, error)) (values []resp.Value, err error) {
	for n := 0; ; n++ {
		var failed error // the error of fn
		err = p.With(ctx, func(c *Conn) (err error) {
			values, err = c.Watch(ctx, keys, func(c *Conn) (cmds []resp.Command, err error) {
				cmds, failed = fn(c)
				return cmds, failed
			})
			return err
		})
		if failed != nil || !errors.Is(err, ErrTxAborted) {
			return values, err
		}
		if ended := p.sleep(ctx, p.cfg.Retry.backoff(min(n, abortSteps))); ended != nil {
			return nil, &Error{Op: "WATCH", Addr: p.cfg.Addr, Err: fmt.Errorf("%w; last attempt: %w", ended, err)}
		}
	}
}

// abortSteps bounds the pauses of a Watch whose keys are changed again and again: to 2^abortSteps times
// Retry.MinBackoff.
const abortSteps = 3

// Stream opens a separate connection for protocols without one reply per command, such as subscriptions and MONITOR.
// The connection does not count for the Pool's statistics and limits. Stream dials once. The caller closes the
// Stream; closing the Pool does not.
func (p *Pool) Stream(ctx context.Context) (*Stream, error) {
	if err := p.enter(); err != nil {
		return nil, &Error{Op: "dial", Addr: p.cfg.Addr, Err: err}
	}
	defer p.wg.Done()
	ctx, release := netfail.Within(ctx, p.life)
	defer release()
	begin := time.Now()
	s, err := p.connect(ctx)
	p.cfg.Trace.dial(begin, p.dialAddr(s, err), true, s, err)
	switch {
	case p.isClosed():
		if s != nil {
			s.HangUp()
		}
		return nil, &Error{Op: "dial", Addr: p.dialAddr(s, err), Err: p.cause()}
	case err != nil:
		return nil, err
	}
	return p.enlist(newStream(s, &p.cfg))
}

// enter makes Close wait for the caller's wg.Done. It returns the cause of Close if the Pool is closed already.
func (p *Pool) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isClosed() {
		p.wg.Add(1)
	}
	return p.cause()
}

// Replicated reports whether replicas may take the server's place, which is the case with Config.Sentinel.
func (p *Pool) Replicated() bool { return p.resolver != nil }

// Close closes all connections. Calls that wait for a connection, a reply or the next attempt fail with ErrClosed.
// Close returns after all goroutines of the Pool and all calls of Stream have ended, but does not wait for functions
// given to With. Close may be called more than once. A callback in Config must not call Close, which waits for callbacks.
func (p *Pool) Close() error { return p.CloseFor(ErrClosed) }

// CloseFor is like Close, with a cause other than ErrClosed: for a Pool that ends without a Close by its user, for
// example when the server has left a cluster. The first cause stays.
func (p *Pool) CloseFor(cause error) error {
	p.mu.Lock()
	p.end(cause) // without effect after an earlier end
	cause = p.cause()
	for p.queue.Len() > 0 {
		p.settle(p.queue.Front(), nil, cause)
	}
	links := slices.Collect(maps.Keys(p.links))
	p.mu.Unlock()
	for _, l := range links {
		l.Fail(cause)
	}
	p.pushes.close()
	p.wg.Wait()
	return nil
}

// goWhileOpen calls run in a goroutine, with a context that ends when the Pool is closed. It returns the cause of Close,
// and does not call run, if the Pool is closed already.
func (p *Pool) goWhileOpen(run func(ctx context.Context)) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.wg.Done()
	p.wg.Go(func() { run(p.life) })
	return nil
}

// OnLoss registers fn to be called each time that the Pool loses a connection or turns to another master, until stop is
// called. After a loss the server may have restarted or been replaced. fn must not block, use the Pool or call stop.
func (p *Pool) OnLoss(fn func()) (stop func()) { return p.losses.Add(fn) }

// Trace returns Config.Trace.
func (p *Pool) Trace() *Trace { return p.cfg.Trace }
