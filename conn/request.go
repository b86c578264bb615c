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

// nameOf returns a copy of the name of an encoded command, for errors and traces.
func nameOf(b []byte) string {
	word, _ := cutWord(afterLine(b))
	return netfail.Op(string(word))
}

func (q request) failure(l *pipeline.Link, sent bool, err error) error {
	return &Error{Op: q.name(), Addr: l.Addr, Sent: sent, Err: err}
}

// setWait sets q.Wait to the sum of the timeouts in the blocking commands of q, and q.Blocks if there are any. WAIT and
// WAITAOF with a timeout, in a batch, do not set q.Blocks: the connection soon becomes free by itself.
func (q *request) setWait() {
	note := func(encoded []byte) {
		if ruleOfEncoded(encoded) != blocks {
			return
		}
		d := blockTime(encoded)
		if len(q.Commands) < 2 || d == pipeline.Never || !isWait(nameOf(encoded)) {
			q.Blocks = true
		}
		if q.Wait += d; q.Wait < d || d == pipeline.Never {
			q.Wait = pipeline.Never
		}
	}
	if len(q.Commands) == 0 {
		note(q.Encoded)
	}
	for i := range q.Commands {
		note(viewOf(q.Commands[i].Encoded()))
	}
}

// do sends q, without the text x, over l and returns the reply. An error reply is an error.
func (q request) do(ctx context.Context, l *pipeline.Link, x pipeline.Text) (resp.Value, error) {
	v, sent, err := l.Do(ctx, pipeline.Request(q), x)
	if err != nil {
		return resp.Value{}, q.failure(l, sent, err)
	}
	if err := v.Err(); err != nil {
		return resp.Value{}, err
	}
	return v, nil
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
