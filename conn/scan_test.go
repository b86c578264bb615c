package conn_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

func TestScan(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		pages := map[string]string{
			"SCAN 0 COUNT 2": "*2|$2|17|*2|$1|a|$1|b|", "SCAN 17 COUNT 2": "*2|$1|4|*0|", "SCAN 4 COUNT 2": "*2|$1|0|*1|$1|c|",
			"SSCAN s 0": "*2|$1|9|*1|$1|x|", "SSCAN s 9": "*2|$1|0|*1|$1|y|", "SSCAN 0 0": "*2|$1|0|*1|$1|z|",
			"HSCAN h 0 MATCH *": "*2|$1|1|*2|$1|f|$1|1|", "HSCAN h 1 MATCH *": "*2|$1|0|*2|$1|g|$0||",
			"ZSCAN z 0": "*2|$1|0|*4|$1|m|$3|1.5|$1|n|$3|inf|", "ZSCAN odd 0": "*2|$1|0|*1|$1|m|", "ZSCAN text 0": "*2|$1|0|*2|$1|m|$1|x|",
			"SSCAN broken 0": "*2|$1|5|*1|$1|x|", "SSCAN broken 5": "-ERR gone|", "SSCAN none 0": "*0|", "SSCAN deep 0": "*2|$1|7|*2|*0|$1|x|",
		}
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if reply, ok := pages[cmd.String()]; ok {
				return fakeredis.Reply(strings.ReplaceAll(reply, "|", "\r\n"))
			}
			return fakeredis.Run()
		})
		ctx := t.Context()
		wantAll(t, conn.Scan(ctx, p, "COUNT", 2), nil, "a", "b", "c")
		wantAll(t, conn.SScan(ctx, p, "s"), nil, "x", "y")
		wantAll(t, conn.SScan(ctx, p, "0"), nil, "z")
		wantAll(t, conn.HScan(ctx, p, "h", "MATCH", "*"), nil, conn.Pair{"f", "1"}, conn.Pair{"g", ""})
		wantAll(t, conn.ZScan(ctx, p, "z"), nil, conn.Scored{"m", 1.5}, conn.Scored{"n", math.Inf(1)})
		wantAll(t, conn.SScan(ctx, p, "broken"), resp.ErrGeneral, "x", "")
		wantAll(t, conn.SScan(ctx, p, "none"), &resp.KindError{}, "")
		wantAll(t, conn.SScan(ctx, p, "deep"), &resp.KindError{}, "")
		wantAll(t, conn.ZScan(ctx, p, "odd"), &resp.KindError{}, conn.Scored{})
		wantAll(t, conn.ZScan(ctx, p, "text"), &resp.KindError{}, conn.Scored{Member: "m"})
		before := srv.Count("SCAN")
		for range conn.Scan(ctx, p, "COUNT", 2) {
			break
		}
		if n := srv.Count("SCAN") - before; n != 1 {
			t.Errorf("%d SCAN for a loop that ends with the first key", n)
		}
	})
}

// wantAll checks the steps of an iterator. The last step has an error if want is one: an error like it.
func wantAll[T comparable](t *testing.T, seq iter.Seq2[T, error], want error, steps ...T) {
	t.Helper()
	var got []T
	var failed error
	for v, err := range seq {
		if failed != nil {
			t.Errorf("a step after the error %v", failed)
		}
		got, failed = append(got, v), err
	}
	if _, kind := want.(*resp.KindError); kind {
		if e, ok := errors.AsType[*resp.KindError](failed); ok {
			want = e
		}
	}
	if !slices.Equal(got, steps) || !errors.Is(failed, want) {
		t.Errorf("steps %v, %v, want %v, %v", got, failed, steps, want)
	}
}

// servers is a Doer of two servers, like a cluster.
type servers struct {
	conn.Doer
	list []*conn.Pool
	err  error
}

func (s servers) Doers(context.Context) iter.Seq2[conn.Doer, error] {
	return func(yield func(conn.Doer, error) bool) {
		for _, p := range s.list {
			if !yield(p, nil) {
				return
			}
		}
		if s.err != nil {
			yield(nil, s.err)
		}
	}
}

func TestScanOfSeveralServers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		other := fakeredis.New()
		defer other.Close()
		a, b := openPool(t, conn.Config{Dial: srv.Dial}), openPool(t, conn.Config{Dial: other.Dial})
		defer a.Close()
		defer b.Close()
		srv.Do("SET", "a", "1")
		other.Do("SET", "b", "1")
		wantAll(t, conn.Scan(t.Context(), servers{list: []*conn.Pool{a, b}}), nil, "a", "b")
		wantAll(t, conn.Scan(t.Context(), servers{list: []*conn.Pool{a}, err: conn.ErrClosed}), conn.ErrClosed, "a", "")
		for range conn.Scan(t.Context(), servers{list: []*conn.Pool{a, b}}) {
			break
		}
		if n := other.Count("SCAN"); n != 1 {
			t.Errorf("%d SCAN to the second server, want 1", n)
		}
	})
}

// A reply without a list of elements is an error, and not an empty page.
func TestScanOfMalformedPages(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		ctx := t.Context()
		for reply, want := range map[string]error{
			"*1|$1|0|": &resp.KindError{}, "*2|$1|0|_|": &resp.KindError{}, "*2|$1|0|$-1|": &resp.KindError{}, "*2|$1|0|$3|abc|": &resp.KindError{},
			"*2|$1|0|:7|": &resp.KindError{}, "$1|0|": &resp.KindError{}, "*0|": &resp.KindError{}, "*3|$1|0|*0|*0|": &resp.KindError{},
			"*2|*0|*0|": &resp.KindError{}, "*2|$1|0|-ERR x|": resp.ErrGeneral, "*2|-ERR x|*0|": resp.ErrGeneral, "_|": &resp.KindError{},
		} {
			srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if strings.HasSuffix(cmd.Name, "SCAN") {
					return fakeredis.Reply(strings.ReplaceAll(reply, "|", "\r\n"))
				}
				return fakeredis.Run()
			})
			t.Log(reply)
			wantAll(t, conn.Scan(ctx, p), want, "")
			wantAll(t, conn.SScan(ctx, p, "s"), want, "")
			wantAll(t, conn.HScan(ctx, p, "h"), want, conn.Pair{})
			wantAll(t, conn.ZScan(ctx, p, "z"), want, conn.Scored{})
		}
	})
}

// HSCAN with NOVALUES has no pairs: HScan sends nothing.
func TestHScanWithoutValues(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "HSCAN" {
				return fakeredis.Reply("*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n")
			}
			return fakeredis.Run()
		})
		ctx := t.Context()
		for _, args := range [][]any{{"NOVALUES"}, {"novalues"}, {"MATCH", "*", "NoValues"}, {"COUNT", 10, []string{"NOVALUES"}}, {[]byte("NOVALUES")}} {
			wantAll(t, conn.HScan(ctx, p, "h", args...), conn.ErrRefused, conn.Pair{})
			for _, err := range conn.HScan(ctx, p, "h", args...) {
				if _, ok := errors.AsType[*conn.Error](err); !ok || !strings.Contains(err.Error(), "HSCAN") || !strings.Contains(err.Error(), "NOVALUES") {
					t.Errorf("HScan with %v: %v", args, err)
				}
			}
		}
		if n := srv.Count("HSCAN"); n != 0 {
			t.Errorf("%d HSCAN were sent", n)
		}
		wantAll(t, conn.HScan(ctx, p, "NOVALUES", "MATCH", "NOVALUES", "COUNT", "1"), nil, conn.Pair{"a", "b"})
	})
}

// XRange begins each page behind the last entry of the page before.
func TestXRangePages(t *testing.T) {
	page := func(from, n int, last string) string {
		text := fmt.Sprintf("*%d\r\n", n)
		for i := range n {
			id := fmt.Sprintf("%d-0", from+i)
			if i == n-1 && last != "" {
				id = last
			}
			text += "*2\r\n+" + id + "\r\n*2\r\n+f\r\n:" + fmt.Sprint(from+i) + "\r\n"
		}
		return text
	}
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		pages := map[string]string{
			"-":      page(1, 1000, "1000-7"),
			"1000-8": page(1001, 1000, "2000-18446744073709551615"),
			"2001-0": page(2001, 1, ""),
		}
		var asked []string
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name != "XRANGE" {
				return fakeredis.Run()
			}
			asked = append(asked, cmd.Args[2])
			if cmd.Args[1] == "broken" && len(asked) > 1 {
				return fakeredis.Reply("-ERR gone\r\n")
			}
			return fakeredis.Reply(pages[cmd.Args[2]])
		})
		n := 0
		for e, err := range conn.XRange(t.Context(), p, "s", "-", "+") {
			if n++; err != nil || e.Get("f") != fmt.Sprint(n) {
				t.Fatalf("entry %d is %v, %v", n, e, err)
			}
		}
		if want := []string{"-", "1000-8", "2001-0"}; n != 2001 || !slices.Equal(asked, want) {
			t.Errorf("%d entries, asked from %q, want %q", n, asked, want)
		}
		n, asked = 0, nil
		var failed error
		for _, err := range conn.XRange(t.Context(), p, "broken", "-", "+") {
			n++
			failed = err
		}
		if n != 1001 || failed == nil {
			t.Errorf("%d steps, the last with %v, want 1000 and the error", n, failed)
		}
		asked = nil
		for range conn.XRange(t.Context(), p, "s", "-", "+") {
			break
		}
		if len(asked) != 1 {
			t.Errorf("a loop that ends with the first entry asks %d times", len(asked))
		}
	})
}

// Behind the greatest ID there is no other: XRange does not begin again.
func TestXRangeToTheLastID(t *testing.T) {
	const last = "18446744073709551615-18446744073709551615"
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name != "XRANGE" {
				return fakeredis.Run()
			}
			return fakeredis.Reply("*1000\r\n" + strings.Repeat("*2\r\n+1-0\r\n*2\r\n+f\r\n+v\r\n", 999) + "*2\r\n+" + last + "\r\n*2\r\n+f\r\n+v\r\n")
		})
		n := 0
		for _, err := range conn.XRange(t.Context(), p, "s", "-", "+") {
			if n++; err != nil || n > 1000 {
				t.Fatalf("step %d: %v", n, err)
			}
		}
		if n != 1000 || srv.Count("XRANGE") != 1 {
			t.Errorf("%d entries by %d XRANGE", n, srv.Count("XRANGE"))
		}
	})
}
