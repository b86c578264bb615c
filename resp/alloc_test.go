package resp_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

func TestReadAllocs(t *testing.T) {
	big := strings.Repeat("b", 5000)
	for _, tt := range []struct {
		name, reply string
		want        float64
	}{
		{"OK", "+OK\r\n", 0},
		{"integer", ":12345678\r\n", 0},
		{"negative integer", ":-2\r\n", 0},
		{"large integer", ":9223372036854775807\r\n", 0},
		{"null", "_\r\n", 0},
		{"null bulk", "$-1\r\n", 0},
		{"null array", "*-1\r\n", 0},
		{"boolean", "#t\r\n", 0},
		{"double", ",1.5\r\n", 0},
		{"empty bulk", "$0\r\n\r\n", 0},
		{"empty array", "*0\r\n", 0},
		{"simple", "+QUEUED\r\n", 1},
		{"error", "-ERR no\r\n", 1},
		{"bulk of 64 B", replyBulk, 1},
		{"bulk of 16 KiB", replyLargeBulk, 1},
		{"array of 100 x 32 B", replyArray, 3},
		{"array of integers", "*3\r\n:1\r\n:2\r\n:3\r\n", 2},
		{"nested map", replyMap, 3},
		{"push", ">3\r\n+message\r\n$1\r\nc\r\n$1\r\n0\r\n", 3},
		{"attributes", "|1\r\n+ttl\r\n:5\r\n$1\r\nx\r\n", 3},
		{"streamed", "*?\r\n$?\r\n;3\r\nabc\r\n;0\r\n.\r\n", 3},
		{"one large string in an array", "*2\r\n+a\r\n$5000\r\n" + big + "\r\n", 4},
	} {
		r := resp.NewReader(&loop{data: strings.Repeat(tt.reply, 50)}, resp.Limits{})
		got := testing.AllocsPerRun(1000, func() {
			if _, err := r.Read(); err != nil {
				t.Fatal(err)
			}
		})
		if got > tt.want {
			t.Errorf("%s: %v allocations, want %v", tt.name, got, tt.want)
		}
		skip := testing.AllocsPerRun(1000, func() {
			if err := r.Skip(); err != nil {
				t.Fatal(err)
			}
		})
		if skip > 0 {
			t.Errorf("%s: %v allocations to skip it", tt.name, skip)
		}
	}
}

// A large string gets its memory at once, wherever a read ends. An additional 64 KiB for the beginning of a 1 MiB string, from
// time to time, made the heap of a small process grow and shrink, which was an eighth of the CPU.
func TestReadLargeAllocs(t *testing.T) {
	for _, size := range []int{100_000, 1 << 20, 2_000_000} {
		for _, piece := range []int{1000, 15_000, 1 << 20} {
			wire := bulk(size)
			src := &pieces{size: piece}
			r := resp.NewReader(src, resp.Limits{})
			read := func() {
				src.src = wire
				if v, err := r.Read(); err != nil || v.Kind() != resp.BulkString {
					t.Fatal(v.Kind(), err)
				}
			}
			read() // the buffer grows
			if got := testing.AllocsPerRun(3, read); got > 1 {
				t.Errorf("string of %d bytes in pieces of %d: %v allocations, want 1", size, piece, got)
			}
		}
	}
}

// doer encodes like a connection: in a concrete method, into a buffer on the stack.
type doer struct{ sent int }

func (d *doer) do(args ...any) error {
	var buf [512]byte
	wire, err := resp.AppendCommand(buf[:0], args...)
	d.sent += len(wire)
	return err
}

func TestCommandAllocs(t *testing.T) {
	var d doer
	key, value := strings.Repeat("k", 40), []byte(strings.Repeat("v", 60))
	n, f, ok, u := int64(1)<<40, 1.5, true, uint32(1)<<30
	mode := named("NX")
	for _, tt := range []struct {
		name string
		want float64
		run  func() error
	}{
		{"AppendCommand", 0, func() error { return d.do("SET", key, value, "PX", n) }},
		{"AppendCommand of other types", 0, func() error { return d.do("X", f, ok, u, mode, int(n), float32(f)) }},
		{"Cmd", 1, func() error { return resp.Cmd("SET", key, value, "PX", n).Err() }},
		{"CmdStrings", 1, func() error {
			words := [...]string{"EVALSHA", "sha", "1", key}
			return resp.CmdStrings(words[:], n, key).Err()
		}},
		{"On", 1, func() error { return resp.Cmd("SET", key, value, "PX", n).On(key).Err() }},
	} {
		got := testing.AllocsPerRun(1000, func() {
			if err := tt.run(); err != nil {
				t.Fatal(err)
			}
		})
		if got > tt.want {
			t.Errorf("%s: %v allocations, want %v", tt.name, got, tt.want)
		}
	}
	c := resp.Cmd("SET", key, value)
	buf := make([]byte, 0, 512)
	if got := testing.AllocsPerRun(1000, func() {
		k, _ := c.On(key).Key()
		buf = append(c.AppendTo(buf[:0]), c.Name()+c.Arg(2)+k...)
	}); got > 1 { // the concatenation allocates
		t.Errorf("views of a Command: %v allocations", got)
	}
}

func TestAppendAllocs(t *testing.T) {
	v := read(t, replyMap)
	numbers := read(t, "*4\r\n:-5\r\n,1.5\r\n#t\r\n$1\r\n7\r\n")
	dst := make([]byte, 0, 1024)
	if got := testing.AllocsPerRun(1000, func() {
		dst = resp.AppendValue(dst[:0], v)
		for e := range numbers.All() {
			dst, _ = e.Append(dst)
			if f, err := e.Float(); err != nil || f == 0 {
				t.Fatal(f, err)
			}
		}
	}); got > 0 {
		t.Errorf("AppendValue, Append and Float: %v allocations", got)
	}
}

// allocated returns the number of bytes allocated by fn.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Entries, Pairs and As walk a reply without a copy of it.
func TestPairsAreNotCopied(t *testing.T) {
	const n = 10000
	v := read(t, "*10000\r\n"+strings.Repeat("*2\r\n+1-1\r\n*2\r\n+a\r\n+b\r\n", n))
	if got := allocated(func() {
		for range resp.Entries(v, nil) {
			break
		}
	}); got > 1000 {
		t.Errorf("Entries up to the first of %d: %d bytes allocated", n, got)
	}
	if got := allocated(func() { _, _ = v.Pairs() }); got > 1000 {
		t.Errorf("Pairs of %d: %d bytes allocated", n, got)
	}
	w := read(t, "*10000\r\n"+strings.Repeat("*2\r\n+a\r\n+b\r\n", n))
	if got := allocated(func() { _, _ = resp.As[[]resp.Value](w, nil) }); got > n*32+20000 {
		t.Errorf("As[[]Value] of %d pairs: %d bytes allocated", n, got)
	}
}
