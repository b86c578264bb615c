package conn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

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
