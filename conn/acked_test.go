package conn_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// WAIT may be anywhere behind the first command of a batch, which is then repeated as a whole.
func TestAckedWithMoreBehind(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		refused, got := false, ""
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			got += cmd.Name + " "
			if cmd.Name == "INCR" && !refused {
				refused = true
				return fakeredis.Reply("-LOADING busy\r\n")
			}
			return fakeredis.Run()
		})
		values, err := p.SendBatch(t.Context(), cmds("INCR key", "WAIT 0 100", "INFO stats"))
		if err != nil || len(values) != 3 || values[0].Err() != nil || values[2].Kind() != resp.BulkString && values[2].Kind() != resp.VerbatimString {
			t.Errorf("SendBatch = %v, %v", values, err)
		}
		if want := "INCR WAIT INFO INCR WAIT INFO "; !strings.HasSuffix(got, want) {
			t.Errorf("the server got %s, want %s", got, want)
		}
	})
}

// The first repetition of a batch with WAIT comes at once, as the connection may have been idle too long, and the others after pauses.
func TestAckedPauses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		start := time.Now()
		var at []time.Duration
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name != "INCR" {
				return fakeredis.Run()
			}
			if at = append(at, time.Since(start)); len(at) > 100 {
				return fakeredis.Run()
			}
			return fakeredis.Reply("-LOADING busy\r\n")
		})
		values, err := p.SendBatch(t.Context(), cmds("INCR key", "WAIT 0 100"))
		if err != nil || len(values) != 2 || !errors.Is(values[0].Err(), resp.ErrLoading) {
			t.Errorf("SendBatch = %v, %v, want the refusal", values, err)
		}
		if len(at) < 5 || len(at) > 30 || at[1] != 0 || at[2] == 0 {
			t.Errorf("attempts at %v, want the first two at once and the others in the budget of 5s", at)
		}
		between(t, "gave up", time.Since(start), 4*time.Second, 5*time.Second)
	})
}
