package conn

import (
	"context"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

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
	if i, err := refuseAny(cmds, transaction); err != nil {
		return nil, refusalOf(p.cfg.Addr, cmds, i, err)
	}
	whole := wrapTx(cmds)
	q := request{Commands: whole, Verify: verifyTx}
	return retried(ctx, p.sharedFor(cmds[0].Key()), q, func(ctx context.Context, l *pipeline.Link) ([]resp.Value, error) {
		values, err := q.doBatch(ctx, l)
		if err != nil {
			return nil, err
		}
		return sharedTxReplies(l.Addr, cmds, values)
	})
}

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
	if i, err := refuseAny(cmds, transaction); err != nil {
		return nil, refusalOf(c.l.Addr, cmds, i, err)
	}
	c.mu.Lock()
	open := c.openLocked()
	c.mu.Unlock()
	if open {
		return nil, refusal(c.l.Addr, request{Commands: cmds}, errOpenMulti)
	}
	values, err := c.SendBatch(ctx, wrapTx(cmds))
	if err != nil {
		return nil, err
	}
	return txReplies(c.l.Addr, cmds, values)
}
