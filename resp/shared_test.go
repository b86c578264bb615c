package resp_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

// ReadOf returns the same replies as Read, with fewer allocations.
func TestReadOf(t *testing.T) {
	var wire strings.Builder
	var want []string
	for i := range 300 {
		text := strings.Repeat(fmt.Sprint(i%10), i*3%700)
		want = append(want, text)
		fmt.Fprintf(&wire, "$%d\r\n%s\r\n", len(text), text)
	}
	wire.WriteString(":1\r\n_\r\n$-1\r\n-ERR no\r\n*1\r\n$1\r\na\r\n")
	for _, split := range []int{1, 7, 1 << 20} {
		src := strings.NewReader(wire.String())
		r := resp.NewReader(readerFunc(func(b []byte) (int, error) { return src.Read(b[:min(len(b), split)]) }), resp.Limits{})
		var got []resp.Value
		for i := range len(want) + 5 {
			v, err := r.ReadOf(len(want) + 5 - i)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, v)
		}
		for i, text := range want {
			if s, err := got[i].Text(); s != text || err != nil || got[i].Kind() != resp.BulkString {
				t.Fatalf("in pieces of %d: reply %d is %q, %v, want %q", split, i, s, err, text)
			}
		}
		for i, kind := range []resp.Kind{resp.Integer, resp.Null, resp.Null, resp.SimpleError, resp.Array} {
			if v := got[len(want)+i]; v.Kind() != kind {
				t.Errorf("in pieces of %d: a %v, want %v", split, v.Kind(), kind)
			}
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestReadOfKeepsLimits(t *testing.T) {
	r := resp.NewReader(strings.NewReader("$9\r\n123456789\r\n"), resp.Limits{Bulk: 8})
	if v, err := r.ReadOf(2); err == nil {
		t.Errorf("ReadOf = %v, want an error", v)
	}
}

// A program that does not know how many replies are to come may pass any number.
func TestReadOfAnyNumber(t *testing.T) {
	for _, left := range []int{math.MaxInt, math.MaxInt/2 + 1, 1, 0, -1, math.MinInt} {
		r := resp.NewReader(strings.NewReader("+first\r\n"+bulk(2)), resp.Limits{})
		if _, err := r.Read(); err != nil { // fills the buffer
			t.Fatal(err)
		}
		if v, err := r.ReadOf(left); err != nil || v.Kind() != resp.BulkString {
			t.Errorf("ReadOf(%d) = %v, %v", left, v, err)
		}
	}
}

func TestReadOfAllocations(t *testing.T) {
	const n = 100
	r := resp.NewReader(&loop{data: strings.Repeat(bulk(64), n)}, resp.Limits{})
	got := testing.AllocsPerRun(100, func() {
		for i := range n {
			if _, err := r.ReadOf(n - i); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got > 2 {
		t.Errorf("%v allocations for %d replies of 64 B, want 2", got, n)
	}
}
