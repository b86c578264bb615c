package resp_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/lockwire/lockwire/resp"
)

func TestReaderLimits(t *testing.T) {
	attr := "|1\r\n+a\r\n:1\r\n"
	for _, tt := range []struct {
		lim   resp.Limits
		input string
		want  string
	}{
		{resp.Limits{Bulk: 5}, "$5\r\nhello\r\n", "EOF"},
		{resp.Limits{Bulk: 5}, "$6\r\nhello!\r\n", "limit bulk 0"},
		{resp.Limits{Bulk: 5}, "*1\r\n$6\r\nhello!\r\n", "limit bulk 4"},
		{resp.Limits{Bulk: 5}, "*1\r\n!6\r\nhello!\r\n", "limit bulk 4"},
		{resp.Limits{Bulk: 5}, "=6\r\ntxt:ab\r\n", "limit bulk 0"},
		{resp.Limits{Bulk: 5}, "$?\r\n;2\r\nab\r\n;3\r\ncde\r\n;0\r\n", "EOF"},
		{resp.Limits{Bulk: 5}, "$?\r\n;2\r\nab\r\n;4\r\ncdef\r\n;0\r\n", "limit bulk 12"},
		{resp.Limits{Bulk: 5}, "+more than five\r\n", "EOF"},
		{resp.Limits{Line: 5}, "+hello\r\n-hello\r\n(12345\r\n*1\r\n+hello\r\n", "EOF"},
		{resp.Limits{Line: 5}, "+hello!\r\n", "limit line 0"},
		{resp.Limits{Line: 5}, "*1\r\n+hello!\r\n", "limit line 4"},
		{resp.Limits{Line: 5}, "(123456\r\n", "limit line 0"},
		{resp.Limits{Line: 5}, "+hello!!", "limit line 0"},
		{resp.Limits{Line: 5}, "+hello!", "unexpected EOF"},
		{resp.Limits{Line: 5}, ":1234567\r\n$7\r\nhello!!\r\n", "EOF"},
		{resp.Limits{Depth: 2}, "*1\r\n%1\r\n:1\r\n:2\r\n", "EOF"},
		{resp.Limits{Depth: 2}, "*1\r\n%1\r\n:1\r\n*0\r\n", "limit depth 12"},
		{resp.Limits{Depth: 2}, "|1\r\n:1\r\n|1\r\n:2\r\n:3\r\n:4\r\n:5\r\n", "EOF"},
		{resp.Limits{Depth: 1}, "|1\r\n:1\r\n|1\r\n:2\r\n:3\r\n:4\r\n:5\r\n", "limit depth 8"},
		{resp.Limits{Depth: 1}, "*1\r\n$?\r\n;0\r\n*?\r\n.\r\n", "EOF"},
		{resp.Limits{Elements: 4}, "*2\r\n:1\r\n*2\r\n:1\r\n:2\r\n", "EOF"},
		{resp.Limits{Elements: 4}, "*2\r\n:1\r\n*3\r\n:1\r\n:2\r\n:3\r\n", "limit elements 8"},
		{resp.Limits{Elements: 4}, "%2\r\n:1\r\n:2\r\n:3\r\n:4\r\n%3\r\n", "limit elements 20"},
		{resp.Limits{Elements: 4}, "*?\r\n:1\r\n:2\r\n:3\r\n:4\r\n.\r\n", "EOF"},
		{resp.Limits{Elements: 4}, "*?\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n.\r\n", "limit elements 20"},
		{resp.Limits{Elements: 3}, "*?\r\n*2\r\n:1\r\n:2\r\n.\r\n*?\r\n*?\r\n%1\r\n", "limit elements 27"},
		{resp.Limits{Elements: 2}, "*?\r\n*2\r\n:1\r\n:2\r\n.\r\n", "limit elements 4"},
		{resp.Limits{Elements: 2}, "*?\r\n*?\r\n*?\r\n.\r\n.\r\n.\r\n~?\r\n~0\r\n$?\r\n;0\r\n.\r\n", "EOF"},
		{resp.Limits{Elements: 1}, "*?\r\n*?\r\n:1\r\n.\r\n.\r\n", "limit elements 8"},
		{resp.Limits{Elements: 4}, attr + "*2\r\n:1\r\n:2\r\n" + attr + ":1\r\n", "EOF"},
		{resp.Limits{Elements: 4}, attr + "*3\r\n:1\r\n:2\r\n:3\r\n", "limit elements 12"},
		{resp.Limits{Attributes: 2}, attr + attr + ":1\r\n*1\r\n" + attr + "|0\r\n:1\r\n", "EOF"},
		{resp.Limits{Attributes: 2}, attr + attr + attr + ":1\r\n", "limit attributes 24"},
		{resp.Limits{Attributes: 2}, attr + "|0\r\n|0\r\n:1\r\n", "limit attributes 16"},
		{resp.Limits{Attributes: 2}, "|3\r\n:1\r\n", "limit attributes 0"},
		{resp.Limits{Total: 64}, bulk(57), "EOF"},
		{resp.Limits{Total: 64}, bulk(57) + bulk(58), "limit total 64"},
		{resp.Limits{Total: 64}, "*2\r\n" + bulk(49) + ":1\r\n", "EOF"},
		{resp.Limits{Total: 64}, "*2\r\n" + bulk(49) + ":12\r\n", "limit total 60"},
		{resp.Limits{Total: 64}, "*2\r\n" + bulk(49) + "+12\r\n", "limit total 60"},
		{resp.Limits{Total: 64}, "*2\r\n" + bulk(48) + "_\r\n_\r\n_\r\n*2\r\n" + bulk(54), "limit total 72"},
		{resp.Limits{Total: 64}, "+" + strings.Repeat("x", 61) + "\r\n", "EOF"},
		{resp.Limits{Total: 64}, "+" + strings.Repeat("x", 62) + "\r\n", "limit total 0"},
		{resp.Limits{Total: 1}, bulk(57), "EOF"},
		{resp.Limits{Bulk: -1, Line: -1, Elements: -1, Attributes: -1, Total: -1}, attr + "*1\r\n" + bulk(9) + "$9223372036854775807\r\n", "limit bulk 31"},
		{resp.Limits{Bulk: -1, Total: -1}, fmt.Sprintf("$%d\r\n", math.MaxInt-1), "limit total 0"},
		{resp.Limits{Elements: -1}, "*1073741824\r\n", "unexpected EOF"},
		{resp.Limits{Elements: -1}, "*1073741825\r\n", "limit elements 0"},
		{resp.Limits{Elements: -1}, "*2147483648\r\n", "limit elements 0"},
		{resp.Limits{Elements: -1}, "%2147483647\r\n", "limit elements 0"},
		{resp.Limits{Depth: -1}, strings.Repeat("*1\r\n", 65536) + "+OK\r\n", "EOF"},
		{resp.Limits{Depth: math.MaxInt}, strings.Repeat("*1\r\n", 65537), "limit depth 262144"},
	} {
		for _, src := range []io.Reader{strings.NewReader(tt.input), iotest.OneByteReader(strings.NewReader(tt.input))} {
			r := resp.NewReader(src, tt.lim)
			var err error
			for err == nil {
				_, err = r.Read()
			}
			if got := outcome(err); got != tt.want {
				t.Errorf("%+v: %.60q ends with %s, want %s", tt.lim, tt.input, got, tt.want)
			}
		}
	}
}

// Memory grows with the bytes received, not with the announced lengths.
func TestReaderMemoryFollowsInput(t *testing.T) {
	for _, input := range []string{
		"$536870912\r\nx", "*1\r\n$536870912\r\nx", "!536870912\r\n", "=536870912\r\ntxt:", "$?\r\n;536870912\r\nx",
		"*16777216\r\n:1\r\n", "%8388608\r\n+a\r\n", "~16777216\r\n", ">16777216\r\n+a\r\n", "|1024\r\n+a\r\n",
		strings.Repeat("*1000\r\n", 1000),
	} {
		got := allocated(func() {
			if _, err := resp.NewReader(strings.NewReader(input), resp.Limits{}).Read(); err != io.ErrUnexpectedEOF {
				t.Errorf("Read of %.30q: %v", input, err)
			}
		})
		if got > 256<<10 {
			t.Errorf("%d bytes allocated for %.30q", got, input)
		}
	}
}

func TestReaderLongStrings(t *testing.T) {
	for _, n := range []int{4095, 4096, 4097, 16 << 10, 64<<10 - 10, 64 << 10, 64<<10 + 1, 200_000, 1 << 20} {
		s := strings.Repeat("0123456789", n/10+1)[:n]
		for _, wire := range []string{
			fmt.Sprintf("$%d\r\n%s\r\n", n, s),
			fmt.Sprintf("!%d\r\n%s\r\n", n, s),
			fmt.Sprintf("=%d\r\ntxt:%s\r\n", n+4, s),
			fmt.Sprintf("*1\r\n$%d\r\n%s\r\n", n, s),
			fmt.Sprintf("$?\r\n;%d\r\n%s\r\n;%d\r\n%s\r\n;0\r\n", n/2, s[:n/2], n-n/2, s[n/2:]),
		} {
			for _, piece := range []int{1 << 20, 1000, 7777} {
				r := resp.NewReader(&pieces{src: wire + "+next\r\n", size: piece}, resp.Limits{})
				v, err := r.Read()
				if err != nil {
					t.Fatalf("%.10q of %d bytes: %v", wire, n, err)
				}
				if v.Kind() == resp.Array {
					v = v.At(0)
				}
				got, err := v.Text()
				if e, ok := err.(resp.Error); ok && v.Kind() == resp.BlobError {
					got = string(e)
				}
				next, err := r.Read()
				if got != s || err != nil || render(next) != `simple "next"` {
					t.Fatalf("%.10q of %d bytes: got %d bytes, then %v, %v", wire, n, len(got), next, err)
				}
			}
		}
	}
}

// pieces is a source that returns at most size bytes per read.
type pieces struct {
	src  string
	size int
}

func (s *pieces) Read(p []byte) (int, error) {
	if s.src == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.size)], s.src)
	s.src = s.src[n:]
	return n, nil
}

// Reading a long string allocates at most a quarter more than its length; skipping allocates
// nothing.
func TestReaderLongStringMemory(t *testing.T) {
	const n = 5 << 20
	wire := bulk(n)
	got := allocated(func() {
		if v, err := resp.NewReader(strings.NewReader(wire), resp.Limits{}).Read(); err != nil || v.IsNull() {
			t.Error(v.Kind(), err)
		}
	})
	if got > n+n/4 {
		t.Errorf("%d bytes allocated for a string of %d", got, n)
	}
	for _, wire := range []string{wire, "*1\r\n" + wire, "$?\r\n;" + wire[1:] + ";0\r\n"} {
		got := allocated(func() {
			if err := resp.NewReader(strings.NewReader(wire), resp.Limits{}).Skip(); err != nil {
				t.Error(err)
			}
		})
		if got > 256<<10 {
			t.Errorf("%d bytes allocated to skip %.10q", got, wire)
		}
	}
}

// Offsets count from the beginning of the stream, whatever the size of the reads.
func TestErrorOffset(t *testing.T) {
	good := strings.Repeat(bulk(999)+"+line\r\n*2\r\n:1\r\n_\r\n", 300)
	for _, piece := range []int{1, 777, 9973, 1 << 20} {
		r := resp.NewReader(&pieces{src: good + "*2\r\n_\r\n@", size: piece}, resp.Limits{})
		var err error
		for err == nil {
			_, err = r.Read()
		}
		if got, want := outcome(err), fmt.Sprintf("syntax %d", len(good)+7); got != want {
			t.Errorf("in pieces of %d: %s, want %s", piece, got, want)
		}
	}
}

// Keeping a small string of a reply does not keep the large strings.
func TestReaderLargeStringsAreFreed(t *testing.T) {
	const n = 32 << 20
	wire := "*2\r\n+small\r\n" + bulk(n)
	r := resp.NewReader(strings.NewReader(wire), resp.Limits{})
	v, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	small, err := v.At(0).Text()
	if err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	runtime.KeepAlive(v)
	v = resp.Value{}
	if freed := before - heap(); freed < n/2 {
		t.Errorf("%d bytes freed of a string of %d", freed, n)
	}
	runtime.KeepAlive(small)
	runtime.KeepAlive(r)
}

func TestReaderSourceErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name  string
		src   io.Reader
		want  string
		reads int
	}{
		{"error at once", iotest.ErrReader(broken), "broken", 0},
		{"error between replies", io.MultiReader(strings.NewReader("+OK\r\n"), iotest.ErrReader(broken)), "broken", 1},
		{"error in a reply", io.MultiReader(strings.NewReader("+OK\r\n*2\r\n"), iotest.ErrReader(broken)), "broken", 1},
		{"error in a string", io.MultiReader(strings.NewReader("$9000\r\n"), iotest.ErrReader(broken)), "broken", 0},
		{"error with data", iotest.DataErrReader(io.MultiReader(strings.NewReader("+OK\r\n+OK\r\n"), iotest.ErrReader(broken))), "broken", 2},
		{"nothing for ever", sourceFunc(func([]byte) (int, error) { return 0, nil }), io.ErrNoProgress.Error(), 0},
		{"too many", sourceFunc(func(p []byte) (int, error) { return len(p) + 1, nil }), "resp: the source returned an impossible count", 0},
		{"too few", sourceFunc(func([]byte) (int, error) { return -1, nil }), "resp: the source returned an impossible count", 0},
	} {
		r := resp.NewReader(tt.src, resp.Limits{})
		reads := 0
		_, err := r.Read()
		for ; err == nil; reads++ {
			_, err = r.Read()
		}
		if err.Error() != tt.want || reads != tt.reads {
			t.Errorf("%s: %v after %d replies, want %s after %d", tt.name, err, reads, tt.want, tt.reads)
		}
		if _, again := r.Read(); again != err {
			t.Errorf("%s: then %v", tt.name, again)
		}
	}
}

// Bytes that arrive together with an error are read first. The error follows; a timeout is dropped.
func TestReaderDataWithError(t *testing.T) {
	broken := errors.New("broken")
	parts := []struct {
		data string
		err  error
	}{{"+a\r\n+", os.ErrDeadlineExceeded}, {"b\r\n", nil}, {"+c\r\n+d\r\n", broken}}
	r := resp.NewReader(sourceFunc(func(p []byte) (int, error) {
		if len(parts) == 0 {
			t.Error("the source is read after its error")
			return 0, io.EOF
		}
		part := parts[0]
		parts = parts[1:]
		return copy(p, part.data), part.err
	}), resp.Limits{})
	want := []string{`simple "a"`, `simple "b"`, `simple "c"`, `simple "d"`, "broken"}
	if got := readAll(r); !same(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// ETIMEDOUT calls itself a timeout, but is not an expired deadline: the connection is closed.
func TestReaderConnectionTimedOut(t *testing.T) {
	for _, before := range []string{"", "+O", "*2\r\n:1\r\n", "$9000\r\nxxx"} {
		dead := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
		if !dead.Timeout() {
			t.Fatalf("%v does not call itself a timeout", dead)
		}
		errs := []error{dead, io.EOF}
		src := io.MultiReader(strings.NewReader(before), sourceFunc(func([]byte) (int, error) {
			err := errs[0]
			errs = errs[len(errs)-1:]
			return 0, err
		}))
		r := resp.NewReader(src, resp.Limits{})
		for range 2 {
			if v, err := r.Read(); err != error(dead) {
				t.Errorf("after %q: Read = %v, %v, want %v", before, v, err, dead)
			}
		}
	}
}

type sourceFunc func(p []byte) (int, error)

func (f sourceFunc) Read(p []byte) (int, error) { return f(p) }

// timeouts is a source that returns each of its parts, with a timeout after each.
type timeouts struct {
	parts []string
	due   bool
}

func (s *timeouts) Read(p []byte) (int, error) {
	if s.due {
		s.due = false
		return 0, os.ErrDeadlineExceeded
	}
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts, s.due = s.parts[1:], true
	}
	return n, nil
}

// Skip can finish a value that a timeout interrupted.
func TestSkipAfterTimeout(t *testing.T) {
	for _, parts := range [][]string{
		{"*3\r\n:1\r\n|1\r\n+a\r\n", ":1\r\n:2\r\n%1\r\n+k\r\n", "*0\r\n+next\r\n"},
		{"$9000\r\nxxx", strings.Repeat("x", 8990), "xxxxxxx\r\n+next\r\n"},
		{"*2\r\n$?\r\n;5\r\nab", "cde\r\n;1\r\nf\r\n", ";0\r\n:1\r\n+next\r\n"},
		{"+not ", "ye", "t\r\n+next\r\n"},
		{"*2\r\n$9000\r\nxxx", strings.Repeat("x", 8990), "xxxxxxx\r\n:1\r\n+next\r\n"},
	} {
		r := resp.NewReader(&timeouts{parts: parts}, resp.Limits{})
		if v, err := r.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%q: Read = %v, %v", parts, v, err)
		}
		if err := r.Skip(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%q: Skip = %v", parts, err)
		}
		// Skip has begun: the next value is the following one.
		if v, err := r.Read(); err != nil || render(v) != `simple "next"` {
			t.Errorf("%q: after Skip, Read = %v, %v", parts, v, err)
		}
	}
}

// Read and Peek first finish an interrupted Skip, over any number of timeouts.
func TestReadDuringSkip(t *testing.T) {
	r := resp.NewReader(&timeouts{parts: []string{"*2\r\n", ":1\r\n", "_\r", "\n+next\r\n"}}, resp.Limits{})
	if err := r.Skip(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Skip = %v", err)
	}
	if v, err := r.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %v, %v, want a timeout", v, err)
	}
	if k, err := r.Peek(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Peek = %v, %v, want a timeout", k, err)
	}
	if v, err := r.Read(); err != nil || render(v) != `simple "next"` {
		t.Errorf("Read = %v, %v, want the next value", v, err)
	}
}

// A Skip that received no byte has not begun.
func TestSkipTimeoutBeforeValue(t *testing.T) {
	r := resp.NewReader(&timeouts{parts: []string{"+a\r\n+b\r\n"}, due: true}, resp.Limits{})
	if err := r.Skip(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Skip = %v", err)
	}
	if v, err := r.Read(); err != nil || render(v) != `simple "a"` {
		t.Errorf("Read = %v, %v", v, err)
	}
}

func TestPeek(t *testing.T) {
	wire := ">2\r\n+a\r\n:1\r\n$1\r\nx\r\n|1\r\n+a\r\n:1\r\n:5\r\n"
	r := resp.NewReader(strings.NewReader(wire), resp.Limits{})
	for _, want := range []resp.Kind{resp.Push, resp.BulkString, resp.Map} {
		for range 2 {
			if got, err := r.Peek(); got != want || err != nil {
				t.Errorf("Peek = %v, %v, want %v", got, err, want)
			}
		}
		if err := r.Skip(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.Peek(); err != io.EOF {
		t.Errorf("Peek at the end = %v, %v", got, err)
	}

	r = resp.NewReader(&timeouts{parts: []string{"~2\r\n:1\r\n", ":2\r\n*2\r\n:3\r\n", ":4\r\n_\r\n"}, due: true}, resp.Limits{})
	if got, err := r.Peek(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Peek = %v, %v, want a timeout", got, err)
	}
	if v, err := r.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %v, %v, want a timeout", v, err)
	}
	if got, err := r.Peek(); got != resp.Set || err != nil {
		t.Errorf("Peek in a value = %v, %v, want its kind", got, err)
	}
	if v, err := r.Read(); err != nil || render(v) != "set[integer 1, integer 2]" {
		t.Errorf("Read = %v, %v", v, err)
	}
	if err := r.Skip(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Skip = %v, want a timeout", err)
	}
	if got, err := r.Peek(); got != resp.Null || err != nil {
		t.Errorf("Peek after a Skip under way = %v, %v, want null", got, err)
	}
}

// Errors name the protocol of a server that does not speak RESP.
func TestSyntaxErrorHints(t *testing.T) {
	for input, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n": "HTTP", "\x15\x03\x03\x00\x02\x02\x46": "TLS", "\x16\x03\x01": "TLS",
		"@secret\r\n": "unknown type byte", ":secret\r\n": "malformed integer", "$secret\r\n": "malformed length",
	} {
		_, err := resp.NewReader(strings.NewReader(input), resp.Limits{}).Read()
		if e, ok := errors.AsType[*resp.SyntaxError](err); !ok || !strings.Contains(e.Error(), want) || strings.Contains(e.Error(), "secret") {
			t.Errorf("%q gives %v, want %q in it and nothing of what was read", input, err, want)
		}
	}
}

// A verbatim string without a format is refused with its first bytes, whatever its length.
func TestLongVerbatimStringWithoutAFormat(t *testing.T) {
	src := io.MultiReader(strings.NewReader("=5000\r\nabcdefgh"), iotest.ErrReader(errors.New("a read beyond")))
	if _, err := resp.NewReader(src, resp.Limits{}).Read(); err == nil || !strings.Contains(err.Error(), "no format") {
		t.Errorf("Read = %v", err)
	}
}

// A limit holds for the most common reply as for others.
func TestLineLimitOfOK(t *testing.T) {
	for _, wire := range []string{"+OK\r\n", "*1\r\n+OK\r\n", "+ab\r\n"} {
		_, err := resp.NewReader(strings.NewReader(wire), resp.Limits{Line: 1}).Read()
		if err == nil {
			t.Errorf("%q is read with a limit of 1", wire)
		}
	}
}
