package conn_test

import (
	"context"
	"errors"
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
