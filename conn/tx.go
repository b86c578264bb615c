package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Tx runs cmds as one transaction, MULTI to EXEC, and returns the replies in order. If a command fails during EXEC,
// its error reply is a value in its place, and the other commands have run.
//
//   - If a watched key has changed, no command runs, and the error is ErrTxAborted.
//   - If the server refuses a command before EXEC, no command runs, and the error wraps the refusal.
//   - If the server refuses MULTI and accepts commands, they run outside a transaction, and the error matches
//     ErrUncertain.
//
// EXEC ends every WATCH, unless the server refuses MULTI, or refuses EXEC without discarding the transaction.
func (c *Conn) Tx(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if _, err := refuseAny(c.l.Addr, cmds, inTx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	open := c.state.inMulti()
	c.mu.Unlock()
	if open {
		return nil, refusal(c.l.Addr, cmds[0].Name(), errOpenMulti)
	}
	values, err := c.SendBatch(ctx, wrapTx(cmds))
	if err != nil {
		return nil, err
	}
	return txReplies(c.l.Addr, cmds, values)
}

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

var (
	errNoMulti  = errors.New("MULTI was refused: the commands after it may have run outside a transaction")
	errOpenTx   = errors.New("EXEC did not end the transaction")
	errTxLength = errors.New("EXEC did not return one reply for each command")
)

func wrapTx(cmds []resp.Command) []resp.Command {
	whole := make([]resp.Command, 0, len(cmds)+2)
	whole = append(whole, resp.Cmd("MULTI"))
	whole = append(whole, cmds...)
	return append(whole, resp.Cmd("EXEC"))
}

// openMulti returns an error if the server still is in the transaction, according to its replies to MULTI, the commands
// and EXEC. Before Redis 6.2 a server may refuse EXEC, for example with BUSY, and keep the queued commands; it then
// answers every further command with QUEUED.
func openMulti(replies []resp.Value) error {
	exec := replies[len(replies)-1]
	switch err := exec.Err(); {
	case replies[0].Err() != nil, err == nil && (exec.Kind() == resp.Array || exec.IsNull()), err != nil && discards(err):
		return nil
	}
	return errOpenTx
}

// discards reports whether err, the reply to EXEC, means that the transaction is over: the server refused a command,
// or the keys belong to another node of the cluster.
func discards(err error) bool {
	e, _ := errors.AsType[resp.Error](err)
	switch resp.Error(e.Prefix()) {
	case resp.ErrExecAbort, resp.ErrMoved, resp.ErrAsk, resp.ErrTryAgain, resp.ErrClusterDown, resp.ErrCrossSlot:
		return true
	}
	return false
}

// txReplies returns the outcome of a transaction, given the replies to MULTI, cmds and EXEC.
func txReplies(addr string, cmds []resp.Command, replies []resp.Value) ([]resp.Value, error) {
	exec := replies[len(replies)-1]
	if err := replies[0].Err(); err != nil {
		if n, why := refusedTail(cmds, replies[1:len(replies)-1]); n == len(cmds) {
			return nil, why
		}
		return nil, &Error{Op: "MULTI", Addr: addr, Sent: true, Err: fmt.Errorf("%w: %w", errNoMulti, err)}
	}
	if err := exec.Err(); err != nil {
		for i, v := range replies[1 : len(replies)-1] {
			if refused := v.Err(); refused != nil {
				return nil, fmt.Errorf("conn: transaction discarded: %s: %w (%w)", netfail.Op(cmds[i].Name()), refused, err)
			}
		}
		text, _ := err.(resp.Error)
		if reason, ok := netfail.Discarded(text); ok {
			return nil, fmt.Errorf("conn: transaction discarded: %w (%w)", reason, resp.ErrExecAbort)
		}
		return nil, err
	}
	switch {
	case exec.IsNull():
		return nil, ErrTxAborted
	case exec.Kind() != resp.Array || exec.Len() != len(cmds):
		return nil, &Error{Op: "EXEC", Addr: addr, Sent: true, Err: errTxLength}
	}
	return slices.AppendSeq(make([]resp.Value, 0, len(cmds)), exec.All()), nil
}
