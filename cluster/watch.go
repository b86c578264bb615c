package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

var errNoKeys = errors.New("cluster: no keys")

// abortSteps bounds the pauses of a Watch whose keys are changed again and again: to 2^abortSteps times
// Retry.MinBackoff.
const abortSteps = 3

// Watch is conn.Pool.Watch on the node that serves the keys, which must be in one slot. Until fn is called, Watch follows
// MOVED and waits for a node that is not ready, as Send does. Watch also begins anew, with another call of fn, if the node
// has refused the transaction because the slot has moved. A transaction with a command for another slot that the node does
// not serve fails with CROSSSLOT.
//
// While a slot moves, Watch of a key that is on the new node already waits for the end of the move, within the limits in
// Config.Node.Retry, and then fails with ASK. A read by fn may fail with MOVED or ASK: that is an error of fn, which Watch
// returns.
func (c *Cluster) Watch(ctx context.Context, keys []string, fn func(*conn.Conn) ([]resp.Command, error)) (values []resp.Value, err error) {
	if len(keys) == 0 {
		return nil, refused("WATCH", 0, errNoKeys)
	}
	slot := Slot(keys[0])
	k := call{c: c, ctx: ctx, name: "WATCH"}
	aborts := 0 // in a row: the keys were changed
	for at := c.targetOf(slot); ; {
		var called bool  // whether fn was called
		var failed error // its error
		err := at.lend(ctx, k.name, func(lent *conn.Conn) (err error) {
			values, err = lent.Watch(ctx, keys, func(lent *conn.Conn) (cmds []resp.Command, err error) {
				called = true
				cmds, failed = fn(lent)
				return cmds, failed
			})
			return err
		})
		switch {
		case err == nil:
			return values, nil
		case failed != nil:
			if isRedirect(failed) {
				c.wantRefresh()
			}
			return nil, err
		case called && errors.Is(err, conn.ErrTxAborted):
			k.history, k.lastFailure, k.pauses = history{}, nil, min(aborts, abortSteps)
			if err := k.pause(decision{action: again, pause: backoff, err: err}, at); err != nil {
				return nil, err
			}
			aborts++
			at = c.targetOf(slot)
			continue
		case called && !isRedirect(err):
			k.decide(at, err, &k.lastFailure)
			return nil, err
		case called && ofAnotherSlot(err, slot):
			return nil, fmt.Errorf("%w: a command of the transaction is not for slot %d of the watched keys: %v", resp.ErrCrossSlot, slot, err)
		case isRedirect(err) && errors.Is(err, resp.ErrAsk): // ASKING would not hold for the commands of fn
			err = fmt.Errorf("%w: a key to watch has moved, and its slot has not: %w", resp.ErrTryAgain, err)
		}
		if at, err = k.next(at, err); err != nil {
			return nil, err
		}
	}
}

// ofAnotherSlot reports whether err is a redirection of a command for another slot than the given one.
func ofAnotherSlot(err error, slot int) bool {
	reply, _ := errors.AsType[resp.Error](err)
	r, ok := reply.Redirect()
	return ok && r.Slot != slot
}
