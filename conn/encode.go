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
	i, x := largeArgument(args)
	if x.Bytes != nil {
		q.Encoded, q.At, err = resp.AppendAround((*b)[:0], i, len(x.Bytes), args...)
	} else {
		q.Encoded, err = resp.AppendCommand((*b)[:0], args...)
	}
	if err == nil {
		*b, r = q.Encoded, ruleOfEncoded(q.Encoded)
	}
	return q, x, r, b, err
}

// largeArgument returns the first large argument and its index. It returns nothing if ruleOfEncoded needs the arguments of
// the command.
func largeArgument(args []any) (i int, x pipeline.Text) {
	for i, arg := range args {
		switch a := arg.(type) {
		case string:
			x = pipeline.Text{Bytes: viewOf(a)}
		case []byte:
			x = pipeline.Text{Bytes: a, Borrowed: true}
		default:
			continue
		}
		if name, ok := args[0].(string); ok && i > 0 && len(x.Bytes) >= largeText && ruleOf(viewOf(name)) == plain {
			return i, x
		}
	}
	return 0, pipeline.Text{}
}

// wholeText returns a large command as a text, with nothing around it.
func wholeText(cmd *resp.Command, r rule) pipeline.Text {
	if cmd.Size() < largeText || r != plain {
		return pipeline.Text{}
	}
	return pipeline.Text{Bytes: viewOf(cmd.Encoded())}
}
