package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockwire/lockwire/resp"
)

// Tx runs commands as one transaction: MULTI, cmds and EXEC, next to each other on one shared connection, which is
// chosen by the routing key of the first. It returns their replies in order; an error reply of one of them is a value
// in its place, and the others have run.
//
// If the server refuses one of the commands, none has run, and the error wraps that refusal. A refusal that says the
// server is not ready is repeated within the limits of Config.Retry.
func (p *Pool) Tx(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if i, err := refuseAny(cmds, transaction); err != nil {
		return nil, refusal(p.cfg.Addr, request{cmds: cmds[i:]}, err)
	}
	whole := wrapTx(cmds)
	q := request{cmds: whole, tx: true}
	s := p.slotFor(cmds[0].Key())
	begin := p.cfg.Trace.begin()
	a := attempts{policy: &p.cfg.Retry}
	for {
		l, err := s.get(ctx, a.stale)
		var values []resp.Value
		if err == nil {
			values, err = l.doBatch(ctx, q, 0)
			if err == nil {
				values, err = sharedTxReplies(l.addr, cmds, values)
			}
			if err == nil {
				p.cfg.Trace.command(begin, p.cfg.Addr, q, nil)
				return values, nil
			}
		}
		if err = p.persist(ctx, &a, s, l, q, err); err != nil {
			p.cfg.Trace.command(begin, p.cfg.Addr, q, err)
			return nil, err
		}
	}
}

// Tx runs commands as one transaction: MULTI, cmds and EXEC, next to each other. It returns their replies in order; an
// error reply of one of them is a value in its place, and the others have run. The error is ErrTxAborted if a key under
// WATCH has changed; if the server refuses one of the commands it wraps that refusal; in both cases none has run. In
// any case nothing is under WATCH any more once EXEC is answered.
func (c *Conn) Tx(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if i, err := refuseAny(cmds, transaction); err != nil {
		return nil, refusal(c.l.addr, request{cmds: cmds[i:]}, err)
	}
	c.mu.Lock()
	open := c.openLocked()
	c.mu.Unlock()
	if open {
		return nil, refusal(c.l.addr, request{cmds: cmds}, errOpenMulti)
	}
	values, err := c.SendBatch(ctx, wrapTx(cmds))
	if err != nil {
		return nil, err
	}
	return txReplies(c.l.addr, cmds, values)
}

// wrapTx returns cmds between MULTI and EXEC.
func wrapTx(cmds []resp.Command) []resp.Command {
	whole := make([]resp.Command, 0, len(cmds)+2)
	whole = append(whole, resp.Cmd("MULTI"))
	whole = append(whole, cmds...)
	return append(whole, resp.Cmd("EXEC"))
}

var (
	errNoMulti  = errors.New("MULTI was refused, so that commands behind it may have run by themselves")
	errOpenTx   = errors.New("EXEC did not end the transaction")
	errTxLength = errors.New("EXEC was not answered by one reply for each command")
)

// openMulti reports whether the server, by its replies to MULTI, commands and EXEC, still is in the transaction. Before
// version 6.2 it may refuse EXEC without discarding what is queued, when it is BUSY for example. Every command behind
// is answered by QUEUED then.
func openMulti(replies []resp.Value) bool {
	exec := replies[len(replies)-1]
	switch err := exec.Err(); {
	case replies[0].Err() != nil:
		return false
	case err != nil:
		return !discards(err)
	}
	return exec.Kind() != resp.Array && !exec.IsNull()
}

// discards reports whether an error in reply to EXEC says that the transaction is over: by the refusal of one of its
// commands, or because a cluster serves its keys elsewhere.
func discards(err error) bool {
	e, _ := errors.AsType[resp.Error](err)
	switch resp.Error(e.Prefix()) {
	case resp.ErrExecAbort, resp.ErrMoved, resp.ErrAsk, resp.ErrTryAgain, resp.ErrClusterDown, resp.ErrCrossSlot:
		return true
	}
	return false
}

// sharedTxReplies is txReplies for a connection that others use too: if the transaction is still open, an EXEC of theirs that
// is on its way may run it.
func sharedTxReplies(addr string, cmds []resp.Command, replies []resp.Value) ([]resp.Value, error) {
	if err := replies[len(replies)-1].Err(); err != nil && openMulti(replies) {
		return nil, &Error{Op: "EXEC", Addr: addr, Sent: true, Err: fmt.Errorf("%w: %w", errOpenTx, err)}
	}
	return txReplies(addr, cmds, replies)
}

// txReplies makes the outcome of a transaction of the replies to MULTI, cmds and EXEC.
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
				return nil, fmt.Errorf("conn: transaction discarded: %s: %w (%w)", printable(cmds[i].Name()), refused, err)
			}
		}
		return nil, err
	}
	switch {
	case exec.IsNull():
		return nil, ErrTxAborted
	case exec.Kind() != resp.Array || exec.Len() != len(cmds):
		return nil, &Error{Op: "EXEC", Addr: addr, Sent: true, Err: errTxLength}
	}
	values := make([]resp.Value, 0, len(cmds))
	for v := range exec.All() {
		values = append(values, v)
	}
	return values, nil
}
