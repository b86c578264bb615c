package conn

import (
	"sync"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

// largeText is the length from which a text is not copied into the pending commands, but written from its own memory.
const largeText = 64 << 10

// buffer holds the encoding of a command during a call.
type buffer []byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// release returns b to the pool, unless it is too large to keep. The caller must not use the encoding any more.
func (b *buffer) release() {
	if cap(*b) < largeText {
		buffers.Put(b)
	}
}

// encode encodes a command and returns its rule. A large argument is left out of q and returned as x. The encoding is in
// b, which the caller releases after the call, also after an error.
func encode(args []any) (q request, x pipeline.Text, r rule, b *buffer, err error) {
	b = buffers.Get().(*buffer)
	large := largeArgument(args)
	if large > 0 {
		x = textOf(args, large)
	}
	if x.Bytes != nil {
		q.Encoded, q.At, err = resp.AppendAround((*b)[:0], large, len(x.Bytes), args...)
	} else {
		q.Encoded, err = resp.AppendCommand((*b)[:0], args...)
	}
	if err == nil {
		*b, r = q.Encoded, ruleOfEncoded(q.Encoded)
	}
	return q, x, r, b, err
}

// largeArgument returns the index of the first large argument, or 0 without one, since argument 0, the name, is never large.
func largeArgument(args []any) int {
	for i, arg := range args {
		switch a := arg.(type) {
		case string:
			if len(a) >= largeText {
				return i
			}
		case []byte:
			if len(a) >= largeText {
				return i
			}
		}
	}
	return 0
}

// textOf returns the large argument i, or nothing if ruleOfEncoded needs the arguments of the command.
func textOf(args []any, i int) pipeline.Text {
	if name, ok := args[0].(string); !ok || ruleOf(viewOf(name)) != plain {
		return pipeline.Text{}
	}
	if text, ok := args[i].(string); ok {
		return pipeline.Text{Bytes: viewOf(text)}
	}
	return pipeline.Text{Bytes: args[i].([]byte), Borrowed: true}
}

// wholeText returns a large command as a text, with nothing around it.
func wholeText(cmd *resp.Command, r rule) pipeline.Text {
	if cmd.Size() < largeText || r != plain {
		return pipeline.Text{}
	}
	return pipeline.Text{Bytes: viewOf(cmd.Encoded())}
}
