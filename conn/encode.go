package conn

import (
	"slices"
	"sync"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

// longBuffer is a pooled buffer for the encoding of a command that does not fit into the buffer on its caller's stack.
type longBuffer []byte

var longBuffers = sync.Pool{New: func() any { return new(longBuffer) }}

const (
	// largeText is the length from which a text is not copied into the pending commands, but written from its own memory.
	largeText = 64 << 10

	// longText is the total length of a command's texts from which the command is encoded in a longBuffer.
	longText = 480

	// perArgument limits the bytes that an argument takes beyond its text; a number takes no more in all.
	perArgument = 48
)

// longBufferFor returns a buffer for a command with texts of the given total length. It returns nil if the stack of the
// caller is enough, and for a command of largeText bytes or more, whose buffer would be too large to keep.
func longBufferFor(length, arguments int) *longBuffer {
	encoded := length + perArgument*(arguments+1)
	if length < longText || encoded >= largeText {
		return nil
	}
	r := longBuffers.Get().(*longBuffer)
	*r = slices.Grow((*r)[:0], encoded)
	return r
}

// release returns the buffer to the pool. The caller must not use it any more. A nil buffer is ignored.
func (r *longBuffer) release() {
	if r != nil {
		longBuffers.Put(r)
	}
}

// encode encodes a command and returns its rule. A large argument is left out of q and returned as x. The encoding is in
// buf, or in the longBuffer long, which the caller releases after the call, also after an error.
func encode(buf []byte, args []any) (q request, x pipeline.Text, r rule, long *longBuffer, err error) {
	length, large, x := measure(args)
	if long = longBufferFor(length, len(args)); long != nil {
		buf = *long
	}
	if x.Bytes != nil {
		q.Encoded, q.At, err = resp.AppendAround(buf, large, len(x.Bytes), args...)
	} else {
		q.Encoded, err = resp.AppendCommand(buf, args...)
	}
	if err == nil {
		r = ruleOfEncoded(q.Encoded)
	}
	return q, x, r, long, err
}

// measure returns the total length of a command's texts, and the first large argument with its index. It returns no large
// argument if ruleOfEncoded needs the arguments of the command.
func measure(args []any) (length, large int, x pipeline.Text) {
	for i, arg := range args {
		var text pipeline.Text
		switch a := arg.(type) {
		case string:
			text.Bytes = viewOf(a)
		case []byte:
			text = pipeline.Text{Bytes: a, Borrowed: true}
		}
		length += len(text.Bytes)
		if i == 0 || len(text.Bytes) < largeText || x.Bytes != nil {
			continue
		}
		if name, ok := args[0].(string); ok && ruleOf(viewOf(name)) == plain {
			large, x = i, text
		}
	}
	return length, large, x
}

// wholeText returns a large command as a text, with nothing around it.
func wholeText(cmd *resp.Command, r rule) pipeline.Text {
	if cmd.Size() < largeText || r != plain {
		return pipeline.Text{}
	}
	return pipeline.Text{Bytes: viewOf(cmd.Encoded())}
}
