package resp

import (
	"io"
	"math"
	"strings"
)

// Reader reads values from a stream. Only one goroutine may use a Reader at a time.
//
// A Reader reads ahead into a buffer of 16 KiB, which grows up to 64 KiB while replies fill it.
//
// # Errors
//
// An error is final: every later call returns the same error. An error of the source that wraps
// os.ErrDeadlineExceeded is the exception; an expired deadline of a net.Conn returns one. The next
// call then continues at the same byte, even in the middle of a value. A deadline may therefore
// interrupt a blocked Read, and another goroutine may resume it.
type Reader struct {
	buffer
	reply
	lim    Limits
	err    error
	shared shared
}

// NewReader returns a Reader of src with the limits lim. It does not read.
func NewReader(src io.Reader, lim Limits) *Reader {
	return &Reader{buffer: buffer{src: src}, lim: lim.withDefaults()}
}

// Read returns the next value, a reply or a push, when all of it has arrived. It blocks as long as
// the source does. Read returns one of these errors:
//
//   - io.EOF: the source ended between two values
//   - io.ErrUnexpectedEOF: the source ended inside a value
//   - [*SyntaxError] or [*LimitError]
//   - the error of the source
func (r *Reader) Read() (Value, error) {
	if len(r.frames) == 0 && r.err == nil {
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return Value{}, r.fail(err)
			}
		}
		if v, n := r.readCommon(r.buf[r.r:r.w]); n > 0 {
			r.r += n
			return v, nil
		}
	}
	return r.readReply()
}

// ReadOf is Read for the replies to a batch. left is the number of replies still to come, including
// the present one.
//
// Small strings of the batch share memory in blocks of up to 4 KiB: keeping a string keeps its
// whole block. Use strings.Clone to keep a string alone.
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

// sharedText is the length of the longest string that shares a block with other replies.
const sharedText = 512

// shared is a block of memory for the strings of several replies.
type shared struct{ strings.Builder }

// add copies s into the block. If s does not fit, add starts a new block, sized for left strings of
// the same length. The last string of a batch releases the block.
func (p *shared) add(s []byte, left int) string {
	if p.Cap()-p.Len() < len(s) {
		p.Reset()
		p.Grow(min(len(s)*max(1, min(left, smallText)), smallText))
	}
	n := p.Len()
	p.Write(s)
	text := p.String()[n:]
	if left <= 1 {
		p.Reset()
	}
	return text
}

// readCommon decodes the most common replies from b, which is not empty, without the state that
// readReply needs. It returns the length of the reply, or 0 if the reply is incomplete or less
// common. It accepts nothing that readReply would refuse.
func (r *Reader) readCommon(b []byte) (Value, int) {
	switch b[0] {
	case '+':
		if len(b) >= 5 && string(b[:5]) == "+OK\r\n" && r.lim.Line >= 2 {
			return Value{num: uint64(SimpleString), str: "OK"}, 5
		}
	case ':':
		if n, next := shortNumber(b); next > 0 {
			return Value{node: &kindNodes[Integer], num: uint64(n)}, next
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

// readReply reads any value, or the rest of an interrupted value.
func (r *Reader) readReply() (Value, error) {
	if r.skipping { // a timeout interrupted Skip
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

// Skip reads the next value and discards it. Its errors are the errors of Read. After an
// interrupted Read or Skip, it skips the rest of the same value.
//
// Skip also skips a push. Use [Reader.Peek] first if pushes matter.
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

// Peek waits for the first byte of the next value and returns the value's kind without consuming
// anything. Its errors are the errors of Read. Special cases:
//
//   - Attributes come first: Map.
//   - The value is a null of RESP2: BulkString or Array.
//   - The byte is no valid type byte: Null.
//   - A timeout interrupted Read: the kind of the unfinished value.
func (r *Reader) Peek() (Kind, error) {
	if r.skipping {
		if err := r.Skip(); err != nil {
			return Null, err
		}
	}
	if err := r.begin(); err != nil {
		return Null, r.fail(err)
	}
	if r.mark == '|' {
		return Map, nil
	}
	return kindOf(r.mark), nil
}

// Buffered returns the number of bytes read from the source and not yet consumed.
func (r *Reader) Buffered() int { return r.w - r.r }

// begin waits for the first byte of the next value, unless a value is unfinished.
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

// advance reads until the reply is complete.
func (r *Reader) advance() error {
	if err := r.begin(); err != nil {
		return err
	}
	if len(r.frames) == 0 {
		r.elements = 0
		r.end = r.offset() + min(int64(r.lim.Total), math.MaxInt64-r.offset())
		r.frames = append(r.frames, frame{kind: root, want: 1})
	}
	for len(r.frames) > 0 {
		if err := r.step(); err != nil {
			return err
		}
	}
	return nil
}

// fail records err as the Reader's final error, unless err is a timeout.
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
