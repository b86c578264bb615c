package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// errNotRun is the error of a result that is read before its Queue was run.
var errNotRun = errors.New("conn: the queue of the command has not been run")

// Queue collects commands and runs them as one batch. Each command has a result of its own type:
//
//	var q conn.Queue
//	hits := conn.Add[int64](&q, "INCR", "hits")
//	name := conn.Add[string](&q, "GET", "name")
//	if err := q.Run(ctx, pool); err != nil {
//		return err
//	}
//	fmt.Println(hits.Get())
//
// The zero Queue is ready for use. A Queue belongs to one goroutine at a time. After Run it is empty and may be used again.
type Queue struct {
	cmds     []resp.Command
	outcomes []*outcome
}

// Result is the outcome of a command in a [Queue], converted to T by [resp.As]. Many goroutines may read it after Run.
// Before Run, and for the zero Result, the methods return an error.
type Result[T any] struct{ outcome }

// outcome is the reply to a command, or the reason why there is none.
type outcome struct {
	value resp.Value
	err   error
	ran   bool
	name  string // of a command that cannot be encoded
}

// Add appends a command, given as name and arguments as for [resp.Cmd], to the queue q. It sends nothing.
func Add[T any](q *Queue, args ...any) *Result[T] {
	cmd := resp.Cmd(args...)
	r := AddCommand[T](q, cmd)
	if cmd.Err() != nil && len(args) > 0 {
		r.name, _ = args[0].(string)
	}
	return r
}

// AddCommand is Add for an encoded command. Run reports a command that cannot be encoded.
func AddCommand[T any](q *Queue, cmd resp.Command) *Result[T] {
	r := &Result[T]{}
	q.cmds, q.outcomes = append(q.cmds, cmd), append(q.outcomes, &r.outcome)
	return r
}

// Get returns the reply as a T. The error is an error reply, the error of the conversion, or the error of the connection,
// by which [SafeToRetry] knows whether the command may have run.
func (r *Result[T]) Get() (T, error) { return resp.As[T](r.Value()) }

// Maybe is Get for a key that may be missing; see [resp.Maybe].
func (r *Result[T]) Maybe() (t T, ok bool, err error) { return resp.Maybe[T](r.Value()) }

// Value returns the reply without a conversion. An error reply is returned as the error.
func (r *Result[T]) Value() (resp.Value, error) {
	switch {
	case !r.ran:
		return resp.Value{}, errNotRun
	case r.err != nil:
		return resp.Value{}, r.err
	}
	return r.value, r.value.Err()
}

// Len returns the number of commands in the queue.
func (q *Queue) Len() int { return len(q.cmds) }

// Run sends all commands with one SendBatch of d, for example a Pool or a Cluster, and waits for the replies. Other
// commands of the queue run even if one of them fails. Run returns one of these errors:
//
//   - the error of SendBatch, if the outcome of any command is unknown; each Result has the outcome of its command.
//     If the client refuses a command ([ErrRefused]), no command runs, and the error contains the command's number and
//     name.
//   - the first error reply, with the number and the name of its command.
func (q *Queue) Run(ctx context.Context, d Doer) error { return q.run(ctx, d.SendBatch) }

// Transactor runs commands as one transaction. Pool, Conn and cluster.Cluster are Transactors.
type Transactor interface {
	Tx(ctx context.Context, cmds []resp.Command) ([]resp.Value, error)
}

// RunTx is Run for one transaction, with Tx in place of SendBatch. If the transaction was aborted or refused, no command
// has run, and each Result has that error.
func (q *Queue) RunTx(ctx context.Context, tx Transactor) error { return q.run(ctx, tx.Tx) }

func (q *Queue) run(ctx context.Context, send func(context.Context, []resp.Command) ([]resp.Value, error)) error {
	cmds, outcomes := q.cmds, q.outcomes
	*q = Queue{}
	values, err := send(ctx, cmds)
	if r, ok := errors.AsType[refused](err); ok && 0 < r.number && r.number <= len(cmds) {
		err = fmt.Errorf("conn: command %d of %d, %s: %w", r.number, len(cmds), outcomes[r.number-1].nameOf(cmds[r.number-1]), err)
	}
	for i, o := range outcomes {
		o.value, o.err = Outcome(values, err, i)
		o.ran = true
	}
	if err != nil {
		return err
	}
	for i, v := range values {
		if err := v.Err(); err != nil {
			return fmt.Errorf("conn: command %d of %d, %s: %w", i+1, len(cmds), netfail.Op(cmds[i].Name()), err)
		}
	}
	return nil
}

func (o *outcome) nameOf(cmd resp.Command) string {
	if cmd.Err() != nil {
		return netfail.Op(o.name)
	}
	return netfail.Op(cmd.Name())
}

// Outcome returns the outcome of command i after SendBatch of any Doer has returned values and err: the reply, which may
// be an error value, or the reason for a missing reply. err may be [Outcomes], with replies to more commands than values.
func Outcome(values []resp.Value, err error, i int) (resp.Value, error) {
	if i < len(values) {
		return values[i], nil
	}
	if all, ok := errors.AsType[Outcomes](err); ok && i < all.Len() {
		return all.At(i)
	}
	return resp.Value{}, err
}

// Outcomes is an error with the outcome of each command of a batch, such as *cluster.BatchError.
type Outcomes interface {
	error
	Len() int
	At(i int) (resp.Value, error)
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
	if err := cmd.Err(); err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, request{Commands: []resp.Command{cmd}}, err)
	}
	err = p.With(ctx, func(c *Conn) (err error) {
		v, err = c.Send(ctx, cmd)
		return err
	})
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

// Watch is Pool.Watch in one attempt: if a key was changed in the meantime, the error is ErrTxAborted. If ctx ends during fn,
// the server watches the keys until the next EXEC or UNWATCH on the Conn: send UNWATCH before another transaction.
func (c *Conn) Watch(ctx context.Context, keys []string, fn func(*Conn) ([]resp.Command, error)) ([]resp.Value, error) {
	if _, err := c.Do(ctx, "WATCH", keys); err != nil {
		return nil, err
	}
	cmds, err := fn(c)
	if err != nil || len(cmds) == 0 {
		_, _ = c.Do(ctx, "UNWATCH") // without an answer the Pool closes the connection
		return nil, err
	}
	values, err := c.Tx(ctx, cmds)
	if errors.Is(err, ErrRefused) && !errors.Is(err, errOpenMulti) { // nothing was sent, so the WATCH is open
		_, _ = c.Do(ctx, "UNWATCH")
	}
	return values, err
}
