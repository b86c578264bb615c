package conn

import (
	"context"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// request is one encoded command, or a list of commands to encode.
type request pipeline.Request

// name returns a copy of the first command's name, for errors and traces.
func (q request) name() string {
	switch {
	case len(q.Commands) > 0:
		return netfail.Op(q.Commands[0].Name())
	case len(q.Encoded) > 0:
		return nameOf(q.Encoded)
	}
	return "dial"
}

// failure returns the error of a request that has failed on l.
func (q request) failure(l *pipeline.Link, sent bool, err error) error {
	return &Error{Op: q.name(), Addr: l.Addr, Sent: sent, Err: err}
}

// doBatch sends the commands of q over l in order, without other commands in between, and returns the replies. With an
// *Error, doBatch returns the replies received so far.
func (q request) doBatch(ctx context.Context, l *pipeline.Link) ([]resp.Value, error) {
	values, sent, err := l.DoBatch(ctx, pipeline.Request(q))
	if err != nil {
		return values, q.failure(l, sent, err)
	}
	return values, nil
}
