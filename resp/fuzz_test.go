package resp_test

import (
	"bytes"
	"strconv"
	"testing"
	"testing/iotest"

	"github.com/lockwire/lockwire/resp"
)

// FuzzReader checks the properties of the corpus on any stream:
//
//   - The size of the reads does not matter.
//   - Skip is as strict as Read.
//   - Encoding a value and decoding it yields an equal value.
//   - Memory is bounded by the bytes received.
func FuzzReader(f *testing.F) {
	for _, c := range corpus(f) {
		if len(c.input) < 1000 {
			f.Add([]byte(c.input))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lim := resp.Limits{Bulk: 1 << 20, Depth: 64, Elements: 1 << 12, Attributes: 8, Line: 100, Total: 2000}
		var values []resp.Value
		var end string
		got := allocated(func() {
			r := resp.NewReader(bytes.NewReader(data), lim)
			for end == "" {
				v, err := r.Read()
				if err != nil {
					end = outcome(err)
				} else {
					values = append(values, v)
				}
			}
		})
		if most := uint64(256<<10 + 300*len(data)); got > most {
			t.Errorf("%d bytes allocated for %d bytes, want at most %d", got, len(data), most)
		}
		slow := resp.NewReader(iotest.OneByteReader(bytes.NewReader(data)), lim)
		skipper := resp.NewReader(bytes.NewReader(data), lim)
		for i, v := range values {
			w, err := slow.Read()
			if err != nil || !v.Equal(w) {
				t.Fatalf("value %d is %v, and %v, %v byte by byte", i, v, w, err)
			}
			if err := skipper.Skip(); err != nil {
				t.Fatalf("value %d: Skip: %v", i, err)
			}
			wire := resp.AppendValue(nil, v)
			again, err := resp.NewReader(bytes.NewReader(wire), resp.Limits{}).Read()
			if err != nil || !v.Equal(again) {
				t.Fatalf("value %d is %v, encoded %q, and then %v, %v", i, v, wire, again, err)
			}
		}
		if _, err := slow.Read(); err == nil || outcome(err) != end {
			t.Errorf("ends with %s, and with %v byte by byte", end, err)
		}
		if err := skipper.Skip(); err == nil || outcome(err) != end {
			t.Errorf("ends with %s, and with %v when skipped", end, err)
		}
	})
}

// FuzzCommand encodes arguments of all types and decodes the command like a server.
func FuzzCommand(f *testing.F) {
	f.Add("SET", []byte("key"), int64(-1), uint32(7), 1.5, true)
	f.Add("", []byte("\r\n$1\r\n"), int64(1<<62), uint32(0), 1e300, false)
	f.Fuzz(func(t *testing.T, s string, b []byte, n int64, u uint32, x float64, yes bool) {
		want := []string{s, string(b), strconv.FormatInt(n, 10), strconv.FormatUint(uint64(u), 10), "", "0"}
		if yes {
			want[5] = "1"
		}
		wire, err := resp.AppendCommand(nil, s, b, n, u, x, yes)
		if err != nil {
			t.Fatal(err)
		}
		r := resp.NewReader(bytes.NewReader(wire), resp.Limits{})
		v, err := r.Read()
		if err != nil || v.Kind() != resp.Array || v.Len() != len(want) || r.Buffered() > 0 {
			t.Fatalf("%q is read as %v, %v", wire, v, err)
		}
		c := resp.Cmd(s, b, n, u, x, yes)
		if !bytes.Equal(c.AppendTo(nil), wire) || c.Size() != len(wire) || c.Len() != v.Len() {
			t.Errorf("Cmd makes %q of what AppendCommand makes %q of", c.AppendTo(nil), wire)
		}
		for i, w := range want {
			got, err := v.At(i).Text()
			if err != nil || c.Arg(i) != got {
				t.Errorf("argument %d is %q, read as %q, %v", i, c.Arg(i), got, err)
			}
			if i == 4 {
				if y, err := v.At(i).Float(); err != nil || y != x && x == x {
					t.Errorf("%v is read as %v, %v", x, y, err)
				}
			} else if got != w {
				t.Errorf("argument %d is read as %q, want %q", i, got, w)
			}
		}
		if key, ok := c.On(s).Key(); !ok || key != s {
			t.Errorf("key is %q, %v", key, ok)
		}
	})
}
