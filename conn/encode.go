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

// roomFor returns room for a command with texts of the given length and so many arguments; nil if the stack of the caller is enough,
// or if the command has a text of largeText, which is no part of an encoding.
func roomFor(length, arguments int) *longRoom {
	encoded := length + perArgument*(arguments+1)
	if length < longText || encoded >= largeText {
		return nil
	}
	r := longRooms.Get().(*longRoom)
	*r = slices.Grow((*r)[:0], encoded)
	return r
}

// leave leaves the room to later commands. The caller no longer uses it.
func (r *longRoom) leave() {
	if r != nil {
		longRooms.Put(r)
	}
}

// largeText is the length from which a text is not copied into the pending commands, but written from its own memory.
const largeText = 64 << 10

// encode encodes a command and returns its rule. A large argument is left out as x. The encoding is in buf, or in a room for the caller to
// leave.
func encode(buf []byte, args []any) (q request, x pipeline.Text, r rule, room *longRoom, err error) {
	length, large := measure(args)
	if room = roomFor(length, len(args)); room != nil {
		buf = *room
	}
	if large > 0 {
		x = textOf(args, large)
	}
	if x.Bytes != nil {
		q.Encoded, q.At, err = resp.AppendAround(buf, large, len(x.Bytes), args...)
	} else {
		q.Encoded, err = resp.AppendCommand(buf, args...)
	}
	if err == nil {
		r = ruleOfEncoded(q.Encoded)
	}
	return q, x, r, room, err
}

// measure returns the length of all texts of a command, and the position of the first large argument; 0 without one, because no name of a
// command is large.
func measure(args []any) (length, large int) {
	for i, arg := range args {
		n := 0
		switch a := arg.(type) {
		case string:
			n = len(a)
		case []byte:
			n = len(a)
		}
		if length += n; n >= largeText && large == 0 {
			large = i
		}
	}
	return length, large
}

// textOf returns the large argument i, unless the rule of the command depends on the arguments.
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
