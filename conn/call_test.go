package conn_test

import (
	"context"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// tracedDoer is a Doer with a Trace, and sends nothing.
type tracedDoer struct{ trace *conn.Trace }

func (d tracedDoer) Trace() *conn.Trace { return d.trace }

func (tracedDoer) Send(context.Context, resp.Command) (resp.Value, error) { return resp.Value{}, nil }

func (tracedDoer) SendBatch(context.Context, []resp.Command) ([]resp.Value, error) { return nil, nil }

// A Call and the values that callers put into a context do not stand for each other.
func TestCallIsNoContextValue(t *testing.T) {
	d := tracedDoer{&conn.Trace{CommandEnd: func(context.Context, conn.CommandEnd) {}}}
	for _, key := range []any{conn.NoTryAgain, conn.Leaves, conn.EverySentinel, conn.NoRepeat} {
		if _, call := conn.StartCall(context.WithValue(t.Context(), key, true), d, conn.CommandStart{}); call == nil {
			t.Errorf("a context with the value %v counts as that of a Call", key)
		}
		ctx, call := conn.StartCall(t.Context(), d, conn.CommandStart{})
		if v := ctx.Value(key); call == nil || v != nil {
			t.Errorf("the value %v of a Call's context is a %T, want none", key, v)
		}
	}
}
