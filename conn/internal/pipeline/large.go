package pipeline

import (
	"bytes"
	"sync"
)

// textAhead is the length of the part of a large text that is copied nevertheless, and written together with what is
// before the text. With a first packet of some bytes a receiver chooses a small window: a SET of 1 MiB took 370 µs instead
// of 210 µs.
const textAhead = 4 << 10

// Text is a large argument, or a whole large command, left out of its Request. Where the system allows, the Link writes
// the Text from the caller's memory in place of copying it to the pending commands.
type Text struct {
	Bytes    []byte
	Borrowed bool // the caller may change Bytes after the call; false for the memory of a string
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

func newBody(x Text, tail []byte) *body {
	return &body{rest: x.Bytes, borrowed: x.Borrowed, size: len(x.Bytes) + len(tail), tail: bytes.Clone(tail)}
}

// cut removes the first n bytes from the text and returns them. No other goroutine may use the body yet.
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

// drop forgets the unwritten text: the command will not be sent, or is sent completely.
func (b *body) drop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = nil
}

func (b *body) unwritten() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rest)
}

// writeSome calls write with the next bytes of the text, and again until all are written or write returns an error. It
// adds the bytes to l.largeWritten, except the last ones.
func (b *body) writeSome(l *Link, write func([]byte) (int, error)) error {
	for {
		b.mu.Lock()
		n, err := write(b.rest)
		b.rest = b.rest[max(n, 0):]
		left := len(b.rest)
		b.mu.Unlock()
		if err != nil || left == 0 {
			return err
		}
		l.largeWritten.Add(int64(n))
	}
}

func (l *Link) writeBody(b *body) (unsent int, err error) {
	defer b.drop()
	if err := l.sock.write(l, b); err != nil {
		return b.unwritten() + len(b.tail), err
	}
	if len(b.tail) == 0 {
		return 0, nil
	}
	n, err := l.Conn.Write(b.tail)
	return len(b.tail) - n, err
}
