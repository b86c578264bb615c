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
	if r, ok := errors.AsType[netfail.Refusal](err); ok && 0 < r.Number && r.Number <= len(cmds) {
		i := r.Number - 1
		err = fmt.Errorf("conn: command %d of %d, %s: %w", i+1, len(cmds), outcomes[i].nameOf(cmds[i]), err)
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
