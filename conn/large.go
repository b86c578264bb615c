package conn

import (
	"bytes"
	"sync"

	"github.com/lockwire/lockwire/resp"
)

// largeText is the length from which a text is not copied into the pending commands, but written from its own memory.
const largeText = 64 << 10

// textAhead is the length of the part of a large text that is copied nevertheless, and written together with what is
// before the text. With a first packet of some bytes a receiver chooses a small window: a SET of 1 MiB took 370 µs instead
// of 210 µs.
const textAhead = 4 << 10

// text is a large argument, or a whole large command, that is left out of its request.
type text struct {
	bytes    []byte
	borrowed bool // the caller may change bytes after the call; otherwise they are a string's
}

// encode encodes a command into buf and returns its rule. A large argument is left out as x.
func encode(buf []byte, args []any) (q request, x text, r rule, err error) {
	i := 0
	if i, x = largeArgument(args); i > 0 {
		q.encoded, q.at, err = resp.AppendAround(buf, i, len(x.bytes), args...)
	} else {
		q.encoded, err = resp.AppendCommand(buf, args...)
	}
	if err == nil {
		r = ruleOfEncoded(q.encoded)
	}
	return q, x, r, err
}

// largeArgument returns the first large argument and its position, or 0 without one. It finds none in a command whose
// rule depends on the arguments.
func largeArgument(args []any) (int, text) {
	for i, arg := range args {
		var x text
		switch a := arg.(type) {
		case string:
			if len(a) >= largeText {
				x = text{bytes: viewOf(a)}
			}
		case []byte:
			if len(a) >= largeText {
				x = text{bytes: a, borrowed: true}
			}
		}
		if x.bytes == nil {
			continue
		}
		if name, ok := args[0].(string); i > 0 && ok && ruleOf(name) == plain {
			return i, x
		}
		return 0, text{}
	}
	return 0, text{}
}

// wholeText returns a large command as a text, with nothing around it.
func wholeText(cmd *resp.Command, r rule) text {
	if cmd.Size() < largeText || r != plain {
		return text{}
	}
	return text{bytes: viewOf(cmd.Encoded())}
}

// body is a large text on its way to the socket. The text stays where it is, in the memory of the caller, who waits for
// the reply meanwhile. A caller that leaves earlier calls release, which copies what is not written yet: afterwards
// nothing refers to the caller's memory.
//
// A writer reads the text only under mu, during system calls that do not block. So release does not block either.
type body struct {
	// Constant after cut.
	tail     []byte // the end of the command, after the text
	size     int    // bytes of the text and tail
	borrowed bool

	mu   sync.Mutex // guards the following
	rest []byte     // not written yet
}

func newBody(x text, tail []byte) *body {
	return &body{rest: x.bytes, borrowed: x.borrowed, size: len(x.bytes) + len(tail), tail: bytes.Clone(tail)}
}

// cut returns the first n bytes of the text and takes them off the body, which nobody else knows yet.
func (b *body) cut(n int) []byte {
	first := b.rest[:n]
	b.rest = b.rest[n:]
	b.size -= n
	return first
}

// length returns the bytes of the text and tail, 0 without a body.
func (b *body) length() int {
	if b == nil {
		return 0
	}
	return b.size
}

// release ends the use of the caller's memory.
func (b *body) release() {
	if b == nil || !b.borrowed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rest) > 0 {
		b.rest = bytes.Clone(b.rest)
	}
}

// drop gives up what is not written.
func (b *body) drop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = nil
}

// left returns the number of bytes of the text that are not written.
func (b *body) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rest)
}

// writeSome calls write with the next bytes of the text, and again until all are written or write returns an error. It
// adds the bytes to l.wrote, except the last ones.
func (b *body) writeSome(l *link, write func([]byte) (int, error)) error {
	for {
		b.mu.Lock()
		n, err := write(b.rest)
		b.rest = b.rest[max(n, 0):]
		left := len(b.rest)
		b.mu.Unlock()
		if err != nil || left == 0 {
			return err
		}
		l.wrote.Add(int64(n))
	}
}

// writeBody writes b and returns the number of bytes not written.
func (l *link) writeBody(b *body) (unsent int, err error) {
	defer b.drop()
	if err := l.sock.write(l, b); err != nil {
		return b.left() + len(b.tail), err
	}
	if len(b.tail) == 0 {
		return 0, nil
	}
	n, err := l.nc.Write(b.tail)
	return len(b.tail) - n, err
}
