package conn

import (
	"slices"
	"sync"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

// longRoom is memory for the encoding of a command that does not fit on the stack of its caller, used again by later commands; nil for
// a short command, and from largeText on.
type longRoom []byte

var longRooms = sync.Pool{New: func() any { return new(longRoom) }}

const (
	// longText is the length of all texts of a command from which it has a longRoom.
	longText = 480

	// perArgument is the most that the encoding of an argument adds to it, or takes if the argument is a number.
	perArgument = 48
)

// roomFor returns room for a command. A text of largeText is no part of an encoding.
func roomFor(args []any) *longRoom {
	size := 0
	for _, arg := range args {
		switch a := arg.(type) {
		case string:
			size += len(a)
		case []byte:
			size += len(a)
		}
	}
	encoded := size + perArgument*(len(args)+1)
	if size < longText || encoded >= largeText {
		return nil
	}
	r := longRooms.Get().(*longRoom)
	*r = slices.Grow((*r)[:0], encoded)
	return r
}

// or returns the room, or short for a short command.
func (r *longRoom) or(short []byte) []byte {
	if r == nil {
		return short
	}
	return *r
}

// leave leaves the room to later commands. The caller no longer uses it.
func (r *longRoom) leave() {
	if r != nil {
		longRooms.Put(r)
	}
}

// largeText is the length from which a text is not copied into the pending commands, but written from its own memory.
const largeText = 64 << 10

// encode encodes a command into buf and returns its rule. A large argument is left out as x.
func encode(buf []byte, args []any) (q request, x pipeline.Text, r rule, err error) {
	i := 0
	if i, x = largeArgument(args); i > 0 {
		q.Encoded, q.At, err = resp.AppendAround(buf, i, len(x.Bytes), args...)
	} else {
		q.Encoded, err = resp.AppendCommand(buf, args...)
	}
	if err == nil {
		r = ruleOfEncoded(q.Encoded)
	}
	return q, x, r, err
}

// largeArgument returns the first large argument and its position, or 0 without one. It finds none in a command whose
// rule depends on the arguments.
func largeArgument(args []any) (int, pipeline.Text) {
	for i, arg := range args {
		var x pipeline.Text
		switch a := arg.(type) {
		case string:
			if len(a) >= largeText {
				x = pipeline.Text{Bytes: viewOf(a)}
			}
		case []byte:
			if len(a) >= largeText {
				x = pipeline.Text{Bytes: a, Borrowed: true}
			}
		}
		if x.Bytes == nil {
			continue
		}
		if name, ok := args[0].(string); i > 0 && ok && ruleOf(viewOf(name)) == plain {
			return i, x
		}
		return 0, pipeline.Text{}
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
