package resp_test

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lockwire/lockwire/resp"
)

//go:embed testdata/resp-cases.tsv
var corpusText string

// A corpusCase is a stream and the expected results of reading it to the end: the values in the
// notation of render, then "EOF" or the error in the notation of outcome.
type corpusCase struct {
	id, input string
	want      []string
}

// corpus returns the cases of testdata/resp-cases.tsv.
func corpus(t testing.TB) []corpusCase {
	t.Helper()
	var cases []corpusCase
	for line := range strings.Lines(corpusText) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			t.Fatalf("line %q: want three columns", line)
		}
		c := corpusCase{id: f[0], want: strings.Split(f[2], "; ")}
		if _, long := strings.CutPrefix(f[1], "LONG:"); long {
			c.input = longInput(t, c.id)
			if got := fmt.Sprintf("LONG:%d", len(c.input)); got != f[1] {
				t.Fatalf("%s: input is %s, want %s", c.id, got, f[1])
			}
		} else if s, err := strconv.Unquote(f[1]); err != nil {
			t.Fatalf("%s: %v", c.id, err)
		} else {
			c.input = s
		}
		cases = append(cases, c)
	}
	return cases
}

// longInput returns the input of a case too long for the table.
func longInput(t testing.TB, id string) string {
	switch id {
	case "H09":
		return strings.Repeat("*1\r\n", 1025) + "+OK\r\n"
	case "H10":
		return strings.Repeat("*1\r\n", 1024) + "+OK\r\n"
	case "H11":
		return strings.Repeat("|1\r\n+a\r\n:1\r\n", 20000) + "+OK\r\n"
	case "H12":
		return strings.Repeat("|1\r\n", 20000) + "+OK\r\n"
	case "H13":
		return "+" + strings.Repeat("a", 70000) + "\r\n"
	case "H14":
		return "(" + strings.Repeat("1", 70000) + "\r\n"
	case "H16":
		return strings.Repeat("~?\r\n", 1025)
	case "H17":
		return "-" + strings.Repeat("e", 64<<10) + "\r\n"
	case "H27", "H28":
		return "$5000\r\n" + strings.Repeat("b", 5000) + map[string]string{"H27": "\n\n", "H28": "\r\r"}[id]
	case "H18":
		return "$70000\r\n" + strings.Repeat("b", 70000) + "\r\n"
	}
	t.Fatalf("no input for %s", id)
	return ""
}

// readAll reads r to the end and returns the values and the error in notation.
func readAll(r *resp.Reader) []string {
	var got []string
	for {
		v, err := r.Read()
		if err != nil {
			return append(got, outcome(err))
		}
		got = append(got, render(v))
	}
}

// outcome returns the notation of an error.
func outcome(err error) string {
	if e, ok := errors.AsType[*resp.SyntaxError](err); ok {
		return fmt.Sprintf("syntax %d", e.Offset)
	}
	if e, ok := errors.AsType[*resp.LimitError](err); ok {
		return fmt.Sprintf("limit %s %d", e.Limit, e.Offset)
	}
	return err.Error()
}

// render returns the notation of a value.
func render(v resp.Value) string {
	var b strings.Builder
	for k, e := range v.Attrs() {
		fmt.Fprintf(&b, "|%s:%s| ", render(k), render(e))
	}
	text, _ := v.Text()
	switch v.Kind() {
	case resp.Null:
		b.WriteString("null")
	case resp.SimpleError, resp.BlobError:
		fmt.Fprintf(&b, "%s %s", v.Kind(), quote(v.Err().Error()))
	case resp.Integer, resp.Double, resp.BigNumber:
		fmt.Fprintf(&b, "%s %s", v.Kind(), text)
	case resp.Boolean:
		yes, _ := v.Bool()
		fmt.Fprint(&b, yes)
	case resp.VerbatimString:
		fmt.Fprintf(&b, "verbatim %s %s", v.Format(), quote(text))
	case resp.SimpleString, resp.BulkString:
		fmt.Fprintf(&b, "%s %s", strings.TrimSuffix(v.Kind().String(), " string"), quote(text))
	case resp.Map:
		b.WriteString("map{")
		sep := ""
		pairs, _ := v.Pairs()
		for k, e := range pairs {
			b.WriteString(sep + render(k) + ": " + render(e))
			sep = ", "
		}
		b.WriteString("}")
	default:
		if n := nesting(v); n > 8 {
			for range n - 1 {
				v = v.At(0)
			}
			fmt.Fprintf(&b, "%d levels of ", n)
		}
		b.WriteString(v.Kind().String() + "[")
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(render(v.At(i)))
		}
		b.WriteString("]")
	}
	return b.String()
}

// nesting returns the depth of nested arrays that contain only the next array.
func nesting(v resp.Value) int {
	n := 0
	for v.Kind() == resp.Array {
		n++
		if v.Len() != 1 {
			break
		}
		v = v.At(0)
	}
	return n
}

func quote(s string) string {
	if len(s) > 1000 {
		return fmt.Sprintf("%q... %d", s[:1], len(s))
	}
	return strconv.Quote(s)
}

// same reports whether two lists are equal.
func same(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }

// cuts returns the positions at which to cut an input of n bytes: every position, or a sample if n
// is large.
func cuts(n int) []int {
	step := 1
	if n > 1000 {
		step = n/100 + 1 // most cuts are inside a line
	}
	var at []int
	for i := 0; i < n; i += step {
		at = append(at, i)
	}
	return at
}

func TestCorpus(t *testing.T) {
	for _, c := range corpus(t) {
		t.Run(c.id, func(t *testing.T) {
			check := func(how string, src io.Reader) {
				t.Helper()
				if got := readAll(resp.NewReader(src, resp.Limits{})); !same(got, c.want) {
					t.Fatalf("%s: %.200q gives\n%.1000q, want\n%.1000q", how, c.input, got, c.want)
				}
			}
			check("whole", strings.NewReader(c.input))
			check("byte by byte", iotest.OneByteReader(strings.NewReader(c.input)))
			check("with the error at once", iotest.DataErrReader(strings.NewReader(c.input)))
			for _, at := range cuts(len(c.input)) {
				check(fmt.Sprintf("cut at %d", at),
					io.MultiReader(strings.NewReader(c.input[:at]), strings.NewReader(c.input[at:])))
			}
		})
	}
}

// A reply behind a value is intact; an error repeats, whatever follows.
func TestCorpusFollowed(t *testing.T) {
	for _, c := range corpus(t) {
		last := c.want[len(c.want)-1]
		want := append(c.want[:len(c.want)-1:len(c.want)-1], `simple "next"`, "EOF")
		switch last {
		case "unexpected EOF": // the next bytes would belong to the value
			continue
		case "EOF":
		default:
			want = c.want
		}
		r := resp.NewReader(strings.NewReader(c.input+"+next\r\n"), resp.Limits{})
		if got := readAll(r); !same(got, want) {
			t.Errorf("%s: followed by another gives\n%.1000q, want\n%.1000q", c.id, got, want)
		}
		_, first := r.Read()
		_, second := r.Read()
		if first == nil || first != second || outcome(first) != want[len(want)-1] {
			t.Errorf("%s: error repeats as %v and %v, want %s", c.id, first, second, want[len(want)-1])
		}
		if err := r.Skip(); err != first {
			t.Errorf("%s: Skip after the error = %v, want %v", c.id, err, first)
		}
		if _, err := r.Peek(); err != first {
			t.Errorf("%s: Peek after the error = %v, want %v", c.id, err, first)
		}
	}
}

// A truncated stream returns its complete values and then an error.
func TestCorpusTruncated(t *testing.T) {
	for _, c := range corpus(t) {
		ends := valueEnds(c.input, len(c.want)-1)
		for _, at := range cuts(len(c.input)) {
			whole := 0
			for whole < len(ends) && ends[whole] <= at {
				whole++
			}
			want := append(c.want[:whole:whole], "unexpected EOF")
			if at == 0 || whole > 0 && ends[whole-1] == at {
				want[whole] = "EOF"
			}
			got := readAll(resp.NewReader(strings.NewReader(c.input[:at]), resp.Limits{}))
			if last := len(got) - 1; !same(got, want) && !(same(got, c.want) && c.want[last] != "EOF") {
				t.Fatalf("%s: cut off at %d gives\n%.1000q, want\n%.1000q", c.id, at, got, want)
			}
		}
	}
}

// valueEnds returns the offset of the end of each of the first n values.
func valueEnds(input string, n int) []int {
	src := &counted{src: strings.NewReader(input)}
	r := resp.NewReader(src, resp.Limits{})
	var ends []int
	for range n {
		if r.Skip() != nil {
			break
		}
		ends = append(ends, src.n-r.Buffered())
	}
	return ends
}

// counted is a source that counts the bytes read.
type counted struct {
	src io.Reader
	n   int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.n += n
	return n, err
}

// Encoding and decoding a value yields an equal value.
func TestCorpusEncoded(t *testing.T) {
	for _, c := range corpus(t) {
		r := resp.NewReader(strings.NewReader(c.input), resp.Limits{})
		for {
			v, err := r.Read()
			if err != nil {
				break
			}
			wire := resp.AppendValue([]byte("before"), v)
			if !bytes.HasPrefix(wire, []byte("before")) {
				t.Fatalf("%s: AppendValue has changed what was in dst", c.id)
			}
			wire = wire[len("before"):]
			again := resp.NewReader(bytes.NewReader(wire), resp.Limits{})
			w, err := again.Read()
			if err != nil || !v.Equal(w) || !w.Equal(v) || render(v) != render(w) {
				t.Fatalf("%s: %.500s is encoded as %.500q, which gives %.500s, %v", c.id, render(v), wire, render(w), err)
			}
			if more := again.Buffered(); more != 0 {
				t.Errorf("%s: %d bytes too many in %.500q", c.id, more, wire)
			}
			if twice := resp.AppendValue(nil, w); !bytes.Equal(wire, twice) {
				t.Errorf("%s: encoded as %.500q, and then as %.500q", c.id, wire, twice)
			}
		}
	}
}

// Skip finds the same value boundaries and the same errors as Read.
func TestCorpusSkipped(t *testing.T) {
	for _, c := range corpus(t) {
		for _, src := range []io.Reader{
			strings.NewReader(c.input + "+next\r\n"),
			iotest.OneByteReader(strings.NewReader(c.input + "+next\r\n")),
		} {
			r := resp.NewReader(src, resp.Limits{})
			for range len(c.want) - 1 {
				if err := r.Skip(); err != nil {
					t.Fatalf("%s: Skip: %v", c.id, err)
				}
			}
			last := c.want[len(c.want)-1]
			switch v, err := r.Read(); {
			case last == "unexpected EOF":
			case last == "EOF" && (err != nil || render(v) != `simple "next"`):
				t.Errorf("%s: after Skip, Read gives %s, %v", c.id, render(v), err)
			case last != "EOF" && (err == nil || outcome(err) != last):
				t.Errorf("%s: after Skip, Read gives %v, want %s", c.id, err, last)
			}
		}
		r := resp.NewReader(strings.NewReader(c.input), resp.Limits{})
		var err error
		for err == nil {
			err = r.Skip()
		}
		if last := c.want[len(c.want)-1]; outcome(err) != last {
			t.Errorf("%s: Skip ends with %v, want %s", c.id, err, last)
		}
	}
}

// A deadline that expires before each byte does not change the result.
func TestCorpusInterrupted(t *testing.T) {
	for _, c := range corpus(t) {
		if len(c.input) > 10000 {
			continue
		}
		r := resp.NewReader(&interrupted{src: c.input}, resp.Limits{})
		var got []string
		for len(got) == 0 || len(got) < len(c.want) {
			v, err := r.Read()
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				continue
			case err != nil:
				got = append(got, outcome(err))
			default:
				got = append(got, render(v))
			}
		}
		if !same(got, c.want) {
			t.Errorf("%s: interrupted at each byte gives\n%.1000q, want\n%.1000q", c.id, got, c.want)
		}
	}
}

// interrupted is a source that returns a timeout before each byte.
type interrupted struct {
	src   string
	ready bool
}

func (s *interrupted) Read(p []byte) (int, error) {
	if s.ready = !s.ready; s.ready {
		return 0, &os.PathError{Op: "read", Err: os.ErrDeadlineExceeded}
	}
	if s.src == "" {
		return 0, io.EOF
	}
	n := copy(p[:1], s.src)
	s.src = s.src[n:]
	return n, nil
}
