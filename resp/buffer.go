package resp

import (
	"errors"
	"io"
	"os"
)

const (
	minBuffer = 16 << 10
	maxBuffer = 64 << 10 // exceeded only by a line that Limits.Line allows to be longer

	// A grown buffer shrinks after shrinkReads reads in a row of at most shrinkBytes bytes each.
	shrinkReads = 16
	shrinkBytes = 4 << 10

	// maxEmptyReads bounds the reads in a row that return neither bytes nor an error.
	maxEmptyReads = 100
)

var errImpossibleRead = errors.New("resp: the source returned an impossible count")

// buffer holds buf[r:w], the bytes read from the source and not yet consumed.
type buffer struct {
	src        io.Reader
	buf        []byte
	r, w       int
	base       int64 // offset in the stream of buf[0]
	pendingErr error // came together with the last bytes; the next read returns it
	smallReads int   // reads in a row of at most shrinkBytes
}

// offset returns the position of the next byte in the stream.
func (b *buffer) offset() int64 { return b.base + int64(b.r) }

// fill reads at least one more byte. After an error the buffered bytes are still available.
func (b *buffer) fill() error {
	b.makeRoom()
	n, err := b.read(b.buf[b.w:])
	b.w += n
	return err
}

// readInto is fill for memory of the caller, past the buffer, which must be empty.
func (b *buffer) readInto(p []byte) (n int, err error) {
	n, err = b.read(p)
	b.base += int64(n)
	return n, err
}

// read reads at least one byte, or returns an error.
func (b *buffer) read(p []byte) (int, error) {
	if err := b.pendingErr; err != nil {
		b.pendingErr = nil
		return 0, err
	}
	for range maxEmptyReads {
		n, err := b.src.Read(p)
		if n < 0 || n > len(p) {
			return 0, errImpossibleRead
		}
		if b.smallReads++; n > shrinkBytes {
			b.smallReads = 0
		}
		if n > 0 {
			if err != nil && !isTimeout(err) {
				b.pendingErr = err
			}
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

func (b *buffer) makeRoom() {
	if b.r < b.w {
		switch {
		case b.w < len(b.buf):
		case b.r == 0 || len(b.buf) < maxBuffer:
			b.resize(2 * len(b.buf))
		case b.w-b.r < maxBuffer: // only a consumed long line needed more than maxBuffer
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
	case len(b.buf) < minBuffer || len(b.buf) > maxBuffer || len(b.buf) > minBuffer && b.smallReads >= shrinkReads:
		b.buf = make([]byte, minBuffer)
	case last == len(b.buf) && last < maxBuffer:
		b.buf = make([]byte, 2*last)
	}
}

// resize moves the buffered bytes to the beginning of a buffer of the given size. It reuses the
// present buffer if the size is the same.
func (b *buffer) resize(size int) {
	to := b.buf
	if size != len(to) {
		to = make([]byte, size)
	}
	b.base += int64(b.r)
	b.w = copy(to, b.buf[b.r:b.w])
	b.r, b.buf = 0, to
}

// need reads until n bytes are buffered. n must be less than minBuffer.
func (b *buffer) need(n int) error {
	for b.w-b.r < n {
		if err := b.fill(); err != nil {
			return err
		}
	}
	return nil
}

// isTimeout reports whether err comes from an expired deadline, so that reading can continue. A
// connection closed by the operating system (ETIMEDOUT) also calls itself a timeout, but delivers
// nothing more.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
