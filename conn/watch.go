package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockwire/lockwire/resp"
)

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

// Watch is Pool.Watch in one attempt: if a key was changed in the meantime, the error is ErrTxAborted.
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
