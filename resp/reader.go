package resp

import (
	"io"
	"math"
	"strings"
)

// Reader reads values from a stream. It may be used by one goroutine at a time.
//
// It reads ahead into a buffer of its own, of 16 KiB, and of up to 64 KiB while
// replies fill that.
//
// An error is final: the same one is returned for ever after. The exception is
// an error of the source that wraps os.ErrDeadlineExceeded, as that of a net.Conn
// does whose deadline has passed. The next call then continues where this one
// stopped, even in the middle of a value, so that a blocked Read may be
// interrupted by a deadline and resumed by another goroutine.
type Reader struct {
	buffer
	reply
	lim    Limits
	err    error
	shared shared
}

// NewReader returns a Reader of src that holds its replies to lim. It reads nothing
// yet.
func NewReader(src io.Reader, lim Limits) *Reader {
	return &Reader{buffer: buffer{src: src}, lim: lim.withDefaults()}
}

// Read returns the next value, a reply or a push, once it has been read whole. It
// blocks as long as the source does.
//
// The error is io.EOF if the source ended between two values and
// io.ErrUnexpectedEOF if it ended inside of one, a [*SyntaxError], a
// [*LimitError], or that of the source.
func (r *Reader) Read() (Value, error) {
	if len(r.frames) == 0 && r.err == nil {
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return Value{}, r.fail(err)
			}
		}
		if v, n := r.simple(r.buf[r.r:r.w]); n > 0 {
			r.r += n
			return v, nil
		}
	}
	return r.readReply()
}

// ReadOf is Read for one of several replies that belong together, of which left are still
// to come, this one among them. Small strings of theirs share memory, up to 4 KiB at a
// time, as those within one reply do: keeping one keeps others, and strings.Clone parts
// them.
func (r *Reader) ReadOf(left int) (Value, error) {
	if len(r.frames) == 0 && r.err == nil && r.r < r.w && r.buf[r.r] == '$' {
		b := r.buf[r.r:r.w]
		from, to, next := shortBulk(b, min(sharedText, r.lim.Bulk))
		if next > 0 && next <= r.lim.Total {
			r.r += next
			return Value{num: uint64(BulkString), str: r.shared.add(b[from:to], left)}, nil
		}
	}
	return r.Read()
}

// sharedText is the longest string that shares its memory with those of other replies.
const sharedText = 512

// shared is a piece of memory that fills up with strings.
type shared struct{ strings.Builder }

// add returns s as a string in the piece, or in a new one, made for the left strings of its
// length that may follow. The last one lets the piece go.
func (p *shared) add(s []byte, left int) string {
	if p.Cap()-p.Len() < len(s) {
		p.Reset()
		p.Grow(min(len(s)*left, smallText))
	}
	n := p.Len()
	p.Write(s)
	text := p.String()[n:]
	if left <= 1 {
		p.Reset()
	}
	return text
}

// simple returns the reply at the beginning of b, which is not empty, and its length,
// or 0 if it is not whole or not one of the most common forms. It spares these the
// state that the others need, and accepts nothing that they do not.
func (r *Reader) simple(b []byte) (Value, int) {
	switch b[0] {
	case '+':
		if len(b) >= 5 && string(b[:5]) == "+OK\r\n" {
			return Value{num: uint64(SimpleString), str: "OK"}, 5
		}
	case ':':
		if n, next := shortNumber(b); next > 0 {
			return Value{node: &bare[Integer], num: uint64(n)}, next
		}
	case '$':
		if from, to, next := shortBulk(b, r.lim.Bulk); next > 0 && next <= r.lim.Total {
			return Value{num: uint64(BulkString), str: string(b[from:to])}, next
		}
		return Value{}, shortNull(b)
	case '_':
		return Value{}, shortNull(b)
	}
	return Value{}, 0
}

// readReply reads a value of any form, or the rest of one.
func (r *Reader) readReply() (Value, error) {
	if r.skipping { // a Skip that a timeout has interrupted
		if err := r.Skip(); err != nil {
			return Value{}, err
		}
	}
	if err := r.advance(); err != nil {
		return Value{}, r.fail(err)
	}
	v := r.value()
	r.reset()
	return v, nil
}

// Skip reads the next value as Read does and with the same errors, but does not
// build it. Called after a Read or a Skip that a timeout has interrupted, it skips
// the rest of the value that was begun. A push counts as a value: where none may be
// lost, ask [Reader.Peek] first.
func (r *Reader) Skip() error {
	if err := r.begin(); err != nil {
		return r.fail(err)
	}
	r.skipping = true
	r.discard()
	if err := r.advance(); err != nil {
		return r.fail(err)
	}
	r.reset()
	return nil
}

// Peek waits until the next value has begun to arrive and returns its kind, which
// for one with attributes is Map, and Null where the byte is not the beginning of a
// value. It consumes nothing; its errors are those of Read. After a Read that a
// timeout has interrupted it returns the kind of the value that was begun.
func (r *Reader) Peek() (Kind, error) {
	if r.skipping {
		if err := r.Skip(); err != nil {
			return Null, err
		}
	}
	if err := r.begin(); err != nil {
		return Null, r.fail(err)
	}
	return kindOf(r.mark), nil
}

// Buffered returns the number of bytes that have been read from the source and not
// yet been consumed.
func (r *Reader) Buffered() int { return r.w - r.r }

// begin waits for the first byte of the next value, unless one has been begun.
func (r *Reader) begin() error {
	if len(r.frames) > 0 || r.err != nil {
		return r.err
	}
	if err := r.need(1); err != nil {
		return err
	}
	r.mark = r.buf[r.r]
	return nil
}

// advance reads on until the reply is whole.
func (r *Reader) advance() error {
	if err := r.begin(); err != nil {
		return err
	}
	if len(r.frames) == 0 {
		r.elements = 0
		r.end = r.offset() + int64(r.lim.Total)
		if r.end < 0 { // the sum is too large
			r.end = math.MaxInt64
		}
		r.frames = append(r.frames, frame{kind: root, want: 1})
	}
	for len(r.frames) > 0 {
		if err := r.step(); err != nil {
			return err
		}
	}
	return nil
}

// fail makes err the error of the Reader for good, unless it is a timeout.
func (r *Reader) fail(err error) error {
	if r.err != nil {
		return r.err
	}
	if isTimeout(err) {
		return err
	}
	if err == io.EOF && len(r.frames) > 0 {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
	r.buffer = buffer{}
	r.reply = reply{}
	return err
}
