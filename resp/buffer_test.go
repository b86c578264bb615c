package resp

import (
	"io"
	"strings"
	"testing"
)

// flow is a source. While busy, it fills every read with bulk strings; otherwise each read returns
// one short reply.
type flow struct {
	busy  bool
	reply string
	at    int
}

func (f *flow) Read(b []byte) (int, error) {
	if !f.busy && f.at == 0 {
		return copy(b, "+OK\r\n"), nil
	}
	n := 0
	for n < len(b) && (f.busy || f.at > 0) {
		k := copy(b[n:], f.reply[f.at:])
		n += k
		f.at = (f.at + k) % len(f.reply)
	}
	return n, nil
}

// The buffer grows while replies fill it, and shrinks afterwards.
func TestBufferSize(t *testing.T) {
	src := &flow{busy: true, reply: "$1000\r\n" + strings.Repeat("x", 1000) + "\r\n"}
	r := NewReader(src, Limits{})
	if len(r.buf) != 0 {
		t.Errorf("a new Reader has a buffer of %d bytes", len(r.buf))
	}
	read := func(n, most int) {
		t.Helper()
		for range n {
			if _, err := r.Read(); err != nil {
				t.Fatal(err)
			}
			if len(r.buf) > most {
				t.Fatalf("buffer of %d bytes, want at most %d", len(r.buf), most)
			}
		}
	}
	read(1, minBuffer)
	read(2000, maxBuffer)
	if len(r.buf) != maxBuffer {
		t.Errorf("buffer of %d bytes while replies fill it, want %d", len(r.buf), maxBuffer)
	}
	for range 5 { // a short lull keeps the size
		src.busy = false
		for r.Buffered() > 0 {
			read(1, maxBuffer)
		}
		read(shrinkReads/2, maxBuffer)
		if len(r.buf) != maxBuffer {
			t.Errorf("buffer of %d bytes after a lull, want %d", len(r.buf), maxBuffer)
		}
		src.busy = true
		read(200, maxBuffer)
	}
	src.busy = false
	read(100+2*shrinkReads, maxBuffer)
	if len(r.buf) != minBuffer {
		t.Errorf("buffer of %d bytes after many small replies, want %d", len(r.buf), minBuffer)
	}
}

// sourceFunc is a function as a source.
type sourceFunc func(p []byte) (int, error)

func (f sourceFunc) Read(p []byte) (int, error) { return f(p) }

// The buffer shrinks after a long line, even if the stream stays busy.
func TestBufferAfterLongLine(t *testing.T) {
	reply := "$1000\r\n" + strings.Repeat("y", 1000) + "\r\n"
	for name, rest := range map[string]io.Reader{
		"as much as fits": &flow{busy: true, reply: reply},
		"whole replies":   sourceFunc(func(p []byte) (int, error) { return copy(p, strings.Repeat(reply, 6)), nil }),
	} {
		line := "+" + strings.Repeat("x", 3<<20) + "\r\n"
		r := NewReader(io.MultiReader(strings.NewReader(line), rest), Limits{Line: 4 << 20})
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
		if len(r.buf) < len(line) {
			t.Errorf("%s: buffer of %d bytes after a line of %d", name, len(r.buf), len(line))
		}
		for range 5000 {
			if _, err := r.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.buf) > maxBuffer {
			t.Errorf("%s: buffer of %d bytes, want at most %d", name, len(r.buf), maxBuffer)
		}
	}
}

// The Reader releases the memory of a large reply.
func TestScratchIsReleased(t *testing.T) {
	for name, reply := range map[string]string{
		"small strings": "*10000\r\n" + strings.Repeat("$9\r\nabcdefghi\r\n", 10000),
		"nesting":       strings.Repeat("*2\r\n:1\r\n", 1024) + "_\r\n",
		"aggregates":    "*10000\r\n" + strings.Repeat("*1\r\n:1\r\n", 10000),
		"large strings": "*200\r\n" + strings.Repeat("$5000\r\n"+strings.Repeat("x", 5000)+"\r\n", 200),
		"streamed":      "$?\r\n" + strings.Repeat(";9\r\nabcdefghi\r\n", 10000) + ";0\r\n",
		"line":          "+" + strings.Repeat("x", 1<<20) + "\r\n",
	} {
		r := NewReader(strings.NewReader(reply+strings.Repeat("+OK\r\n", 100)), Limits{Line: 2 << 20})
		for skip := range 2 {
			if skip == 1 {
				r = NewReader(strings.NewReader(reply), Limits{Line: 2 << 20})
				if err := r.Skip(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			} else if _, err := r.Read(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p := &r.reply
			kept := cap(p.text) + itemBytes*(cap(p.items)+cap(p.done)+cap(p.spans)+cap(p.longTexts)) + 64*cap(p.frames)
			if kept > maxScratch || cap(p.body.text) > 0 {
				t.Errorf("%s: the Reader keeps %d bytes, want at most %d", name, kept, maxScratch)
			}
			for _, s := range p.longTexts[:cap(p.longTexts)] {
				if s != "" {
					t.Errorf("%s: the Reader keeps a string of %d bytes", name, len(s))
				}
			}
		}
	}
}

// An error releases the Reader's memory; the owner may keep the Reader for long.
func TestErrorFreesBuffers(t *testing.T) {
	r := NewReader(io.MultiReader(strings.NewReader("*2\r\n+a\r\n@"), strings.NewReader("more")), Limits{})
	if _, err := r.Read(); err == nil {
		t.Fatal("no error")
	}
	if r.buf != nil || r.items != nil || r.Buffered() != 0 {
		t.Errorf("the Reader keeps %d bytes and %d items", len(r.buf), cap(r.items))
	}
}

// The buffer moves a second long line to the front and does not grow for it.
func TestBufferOfLongLines(t *testing.T) {
	line := strings.Repeat("x", 3<<20)
	r := NewReader(strings.NewReader(strings.Repeat("+"+line+"\r\n", 5)), Limits{Line: 4 << 20})
	for i := range 5 {
		v, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := v.Text(); got != line {
			t.Fatalf("line %d differs from the line sent", i)
		}
		if len(r.buf) != 4<<20 {
			t.Errorf("buffer of %d bytes after line %d, want 4 MiB", len(r.buf), i)
		}
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("Read at the end = %v, want io.EOF", err)
	}
}
