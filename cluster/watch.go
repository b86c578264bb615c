package cluster

import (
	"context"
	"errors"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

var errNoKeys = errors.New("cluster: no keys")

// Watch is conn.Pool.Watch on the node that serves the keys, which must be in one slot. Watch also begins anew if the node
// has refused the commands because the slot has moved.
func (c *Cluster) Watch(ctx context.Context, keys []string, fn func(*conn.Conn) ([]resp.Command, error)) (values []resp.Value, err error) {
	if len(keys) == 0 {
		return nil, &conn.Error{Op: "WATCH", Err: &refusedError{errNoKeys}}
	}
	for redirects := 0; ; {
		err = c.With(ctx, keys[0], func(c *conn.Conn) (err error) {
			values, err = c.Watch(ctx, keys, fn)
			return err
		})
		switch {
		case errors.Is(err, conn.ErrTxAborted):
			redirects = 0
		case errors.Is(err, resp.ErrMoved) && !isTransport(err) && redirects < c.policy.redirects:
			redirects++
		default:
			return values, err
		}
	}
}
