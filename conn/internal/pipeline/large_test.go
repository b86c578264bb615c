package pipeline

import (
	"errors"
	"testing"
)

// Each piece of a large text that has been written counts as progress, except the last: after it the answer is due.
func TestPiecesOfALargeTextAreProgress(t *testing.T) {
	l, full := new(Link), errors.New("the socket is full")
	b := newBody(Text{Bytes: make([]byte, 10)}, nil)
	room := 7
	write := func(rest []byte) (int, error) {
		if room == 0 {
			return -1, full
		}
		n := min(3, room, len(rest))
		room -= n
		return n, nil
	}
	if err := b.writeSome(l, write); err != full || l.largeWritten.Load() != 7 || b.unwritten() != 3 {
		t.Errorf("writeSome = %v after %d bytes, %d left; want 7 and 3", err, l.largeWritten.Load(), b.unwritten())
	}
	room = 7
	if err := b.writeSome(l, write); err != nil || l.largeWritten.Load() != 7 || b.unwritten() != 0 {
		t.Errorf("writeSome = %v after %d bytes, %d left; want nil, 7 and 0", err, l.largeWritten.Load(), b.unwritten())
	}
}
