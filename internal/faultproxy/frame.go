package faultproxy

import (
	"errors"
	"io"

	"github.com/lockwire/lockwire/resp"
)

// framer cuts a stream into its values and keeps the bytes of each value.
type framer struct {
	tap    tap
	r      *resp.Reader
	err    error // of the stream
	opaque bool
}

func newFramer(src io.Reader) *framer {
	f := &framer{tap: tap{src: src}}
	f.r = resp.NewReader(&f.tap, resp.Limits{Bulk: -1, Line: -1, Depth: -1, Elements: -1, Attributes: -1, Total: -1})
	return f
}

// next returns the bytes of the next value. whole is false for bytes of a stream that is not RESP, and for the rest of a stream
// at its end.
func (f *framer) next() (raw []byte, v resp.Value, whole bool, err error) {
	if f.err == nil && !f.opaque {
		v, err := f.r.Read()
		if err == nil {
			return f.tap.take(len(f.tap.raw) - f.r.Buffered()), v, true, nil
		}
		var syntax *resp.SyntaxError
		var limit *resp.LimitError
		f.opaque = errors.As(err, &syntax) || errors.As(err, &limit)
		if !f.opaque {
			f.err = err
		}
	}
	if len(f.tap.raw) == 0 && f.err == nil {
		_, f.err = f.tap.Read(make([]byte, 32<<10))
	}
	if len(f.tap.raw) > 0 {
		return f.tap.take(len(f.tap.raw)), resp.Value{}, false, nil
	}
	return nil, resp.Value{}, false, f.err
}

// tap keeps the bytes read.
type tap struct {
	src io.Reader
	raw []byte
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.src.Read(p)
	t.raw = append(t.raw, p[:n]...)
	return n, err
}

// take returns and forgets the first n bytes kept.
func (t *tap) take(n int) []byte {
	raw := append([]byte(nil), t.raw[:n]...)
	t.raw = append(t.raw[:0], t.raw[n:]...)
	return raw
}

// command returns the arguments of a request, or nil if v is none.
func command(v resp.Value) []string {
	if v.Kind() != resp.Array {
		return nil
	}
	var cmd []string
	for arg := range v.All() {
		text, err := arg.Text()
		if err != nil {
			return nil
		}
		cmd = append(cmd, text)
	}
	return cmd
}
