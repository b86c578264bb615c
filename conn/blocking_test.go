package conn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

func TestBlock(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for _, want := range []bool{false, true} {
			if want {
				srv.Do("RPUSH", "jobs", "one")
			}
			job, ok, err := resp.Maybe[[]string](p.Block(t.Context(), "BLPOP", "jobs", 1))
			if ok != want || err != nil || ok && !slices.Equal(job, []string{"jobs", "one"}) {
				t.Errorf("BLPOP = %q, %v, %v", job, ok, err)
			}
		}
		if n := p.Stats(); n.Open != 1 || n.Idle != 1 {
			t.Errorf("after two calls one by one: %+v", n)
		}
		if _, err := p.Block(t.Context(), "BLPOP", nil); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Block of an argument that cannot be encoded = %v", err)
		}
		if _, err := p.Block(t.Context(), "LPUSH", "jobs"); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Block of a command that fails = %v", err)
		}
		if _, err := p.Do(t.Context(), "BLPOP", "jobs", 1); err == nil || !strings.Contains(err.Error(), "use Block") {
			t.Errorf("Do of BLPOP = %v", err)
		}
	})
}
