package resp

import (
	"bytes"
	"errors"
	"io"
	"os"
)

const (
	minBuffer = 16 << 10
	maxBuffer = 64 << 10 // more only for a line that Limits.Line lets be longer

	// A buffer that has grown is shrunk when so many reads in a row have brought
	// no more than so few bytes.
	calmReads = 16
	calmBytes = 4 << 10

	// maxEmptyReads is how often in a row a source may return nothing and no error.
	maxEmptyReads = 100
)

var errImpossibleRead = errors.New("resp: the source returned an impossible count")

// buffer holds what has been read from the source and not yet consumed, buf[r:w].
type buffer struct {
	src  io.Reader
	buf  []byte
	r, w int
	base int64 // offset in the stream of buf[0]
	late error // came together with the last bytes
	calm int   // reads in a row that brought little
}

// offset returns the offset in the stream of the next byte.
func (b *buffer) offset() int64 { return b.base + int64(b.r) }

// fill reads at least one more byte. After an error of the source that is not
// io.EOF what is buffered is still there.
func (b *buffer) fill() error {
	if err := b.late; err != nil {
		b.late = nil
		return err
	}
	b.room()
	for range maxEmptyReads {
		n, err := b.src.Read(b.buf[b.w:])
		if n < 0 || n > len(b.buf)-b.w {
			return errImpossibleRead
		}
		b.w += n
		if b.calm++; n > calmBytes {
			b.calm = 0
		}
		if n > 0 {
			if err != nil && !isTimeout(err) {
				b.late = err
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// room makes room behind what is buffered.
func (b *buffer) room() {
	if b.r < b.w {
		switch {
		case b.w < len(b.buf):
		case b.r == 0 || len(b.buf) < maxBuffer:
			b.resize(2 * len(b.buf))
		case b.w-b.r < maxBuffer: // of a buffer that was made larger for a line, no more is needed
			b.resize(maxBuffer)
		default:
			b.resize(len(b.buf))
		}
		return
	}
	last := b.w
	b.base += int64(b.r)
	b.r, b.w = 0, 0
	switch {
	case len(b.buf) < minBuffer || len(b.buf) > maxBuffer || len(b.buf) > minBuffer && b.calm >= calmReads:
		b.buf = make([]byte, minBuffer)
	case last == len(b.buf) && last < maxBuffer:
		b.buf = make([]byte, 2*last)
	}
}

// resize moves what is buffered to the beginning of a buffer of the given size,
// which is the same one if it has that size.
func (b *buffer) resize(size int) {
	to := b.buf
	if size != len(to) {
		to = make([]byte, size)
	}
	b.base += int64(b.r)
	b.w = copy(to, b.buf[b.r:b.w])
	b.r, b.buf = 0, to
}

// need reads until n bytes are buffered, which must be fewer than minBuffer.
func (b *buffer) need(n int) error {
	for b.w-b.r < n {
		if err := b.fill(); err != nil {
			return err
		}
	}
	return nil
}

// The two ways in which a line can be wrong, told by scan.
var (
	errLineTooLong = errors.New("line too long")
	errLineEnd     = errors.New("CR or LF alone in a line")
)

// scan reads until the line that begins with the next byte is buffered, and
// returns the index of its CR counted from there. The line begins with a type
// byte, which does not count towards most. Nothing is consumed.
func (b *buffer) scan(most int) (end int, err error) {
	done := 0
	for {
		line := b.buf[b.r:b.w]
		if i := bytes.IndexByte(line[done:], '\n'); i >= 0 {
			end = done + i - 1
			switch {
			case end-1 > most:
				return 0, errLineTooLong
			case end < 1 || bytes.IndexByte(line[:end+1], '\r') != end:
				return 0, errLineEnd
			}
			return end, nil
		}
		if done = len(line); done-2 > most {
			return 0, errLineTooLong
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
}

// isTimeout reports whether err is that of a deadline that has passed, after
// which reading can go on. A connection that the system has given up calls
// itself a timeout too, but there is nothing more to come from it.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
