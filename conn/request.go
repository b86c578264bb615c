package conn

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

// request is one encoded command, or a list of commands to encode.
type request pipeline.Request

// name returns a copy of the first command's name, for errors and traces.
func (q request) name() string {
	switch {
	case len(q.Commands) > 0:
		return printable(q.Commands[0].Name())
	case len(q.Encoded) > 0:
		return nameOf(q.Encoded)
	}
	return "dial"
}

// do sends one command over l and returns its reply. x is a part left out of q. The error is an *Error.
func (q request) do(ctx context.Context, l *pipeline.Link, x pipeline.Text, limit time.Duration) (resp.Value, error) {
	v, sent, err := l.Do(ctx, pipeline.Request(q), x, limit)
	if err != nil {
		return resp.Value{}, &Error{Op: q.name(), Addr: l.Addr, Sent: sent, Err: err}
	}
	return v, nil
}

// doBatch sends the commands of q over l in order, without other commands in between, and returns the replies. With an
// *Error, doBatch returns the replies received so far.
func (q request) doBatch(ctx context.Context, l *pipeline.Link, limit time.Duration) ([]resp.Value, error) {
	values, sent, err := l.DoBatch(ctx, pipeline.Request(q), limit)
	if err != nil {
		return values, &Error{Op: q.name(), Addr: l.Addr, Sent: sent, Err: err}
	}
	return values, nil
}
