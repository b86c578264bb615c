package conn_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// places are the four ways of sending a command.
var places = []string{"Do", "SendBatch", "Tx", "With"}

// special lists commands that some kinds of connection refuse. Each other place sends the command.
func special() []struct{ line, places, hint string } {
	return []struct{ line, places, hint string }{
		{"BLPOP l 1", "Do SendBatch", "With"},
		{"blpop l 1", "Do SendBatch", "With"},
		{"BRPOP l 1", "Do SendBatch", "With"},
		{"BLMOVE a b LEFT LEFT 1", "Do SendBatch", "With"},
		{"BLMPOP 1 1 l LEFT", "Do SendBatch", "With"},
		{"BRPOPLPUSH a b 1", "Do SendBatch", "With"},
		{"BZPOPMIN z 1", "Do SendBatch", "With"},
		{"BZPOPMAX z 1", "Do SendBatch", "With"},
		{"BZMPOP 1 1 z MIN", "Do SendBatch", "With"},
		{"WAIT 1 1", "Do SendBatch", "With"},
		{"WAITAOF 1 1 1", "Do SendBatch", "With"},
		{"XREAD COUNT 1 block 1 STREAMS s 0", "Do SendBatch", "With"},
		{"XREAD COUNT 1 STREAMS block 0", "", ""},
		{"XREADGROUP GROUP g c BLOCK 1 STREAMS s >", "Do SendBatch", "With"},
		{"XREADGROUP GROUP g c STREAMS s >", "", ""},
		{"XREADGROUP GROUP g streams BLOCK 1 STREAMS s >", "Do SendBatch", "With"},
		{"XREADGROUP COUNT 1 GROUP block c STREAMS s >", "", ""},
		{"XREADGROUP GROUP", "", ""},
		{"MULTI", "Do SendBatch Tx", "Tx"},
		{"EXEC", "Do SendBatch Tx", "Tx"},
		{"DISCARD", "Do SendBatch Tx", "Tx"},
		{"WATCH k", "Do SendBatch Tx", "With"},
		{"UNWATCH", "Do SendBatch Tx", "With"},
		{"SELECT 1", "Do SendBatch Tx", "Config.DB"},
		{"AUTH secret", "Do SendBatch Tx", "Config"},
		{"HELLO 2", "Do SendBatch Tx", "Config"},
		{"READONLY", "Do SendBatch Tx", "Extra"},
		{"READWRITE", "Do SendBatch Tx", "Extra"},
		{"RESET", "Do SendBatch Tx", "handshake"},
		{"QUIT", "Do SendBatch Tx", "Close"},
		{"ASKING", "Do SendBatch Tx", "in front of its command"},
		{"CLIENT SETNAME x", "Do SendBatch Tx", "Config"},
		{"client tracking on", "Do SendBatch Tx", "Config"},
		{"SCRIPT DEBUG YES", "Do SendBatch Tx With", "Stream"},
		{"script debug no", "Do SendBatch Tx With", "Stream"},
		{"SCRIPT EXISTS debug", "", ""},
		{"SCRIPT", "", ""},
		{"CLIENT ID", "", ""},
		{"CLIENT", "", ""},
		{"CLIENT REPLY OFF", "Do SendBatch Tx With", "pubsub"},
		{"SUBSCRIBE c", "Do SendBatch Tx With", "pubsub"},
		{"PSUBSCRIBE c", "Do SendBatch Tx With", "pubsub"},
		{"SSUBSCRIBE c", "Do SendBatch Tx With", "pubsub"},
		{"UNSUBSCRIBE c", "Do SendBatch Tx With", "pubsub"},
		{"PUNSUBSCRIBE c", "Do SendBatch Tx With", "pubsub"},
		{"SUNSUBSCRIBE c", "Do SendBatch Tx With", "pubsub"},
		{"MONITOR", "Do SendBatch Tx With", "Stream"},
		{"SYNC", "Do SendBatch Tx With", "Stream"},
		{"PSYNC ? -1", "Do SendBatch Tx With", "Stream"},
		{"REPLCONF ACK 1", "Do SendBatch Tx With", "Stream"},
		{"EVALSHA x 0", "", ""},
		{"LPOP l", "", ""},
		{"PUNSUBSCRIBED c", "", ""},
		{"\x02LPOP l", "", ""},
	}
}

func TestRefused(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch cmd.Name {
			case "HELLO":
				return fakeredis.Run()
			case "EXEC":
				return fakeredis.Reply("*1\r\n+OK\r\n")
			}
			return fakeredis.Reply("+OK\r\n")
		})
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
		defer p.Close()
		for _, test := range special() {
			for _, place := range places {
				srv.ClearLog()
				err := sendIn(t, p, place, cmds(test.line)[0])
				if !strings.Contains(test.places, place) {
					if err != nil {
						t.Errorf("%s of %q = %v, want it sent", place, test.line, err)
					}
					continue
				}
				wantNotSent(t, err, err)
				hinted := err != nil && strings.Contains(err.Error(), test.hint) || place == "Tx"
				if err == nil || !hinted || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s of %q = %v, want it refused with a hint at %s", place, test.line, err, test.hint)
				}
				if n := srv.Count(strings.Fields(test.line)[0]); n != 0 && place != "Tx" {
					t.Errorf("%s of %q was sent although refused", place, test.line)
				}
			}
		}
	})
}

func sendIn(t *testing.T, p *conn.Pool, place string, cmd resp.Command) error {
	t.Helper()
	var err error
	switch place {
	case "Do":
		var args []any
		for i := range cmd.Len() {
			args = append(args, []byte(cmd.Arg(i)))
		}
		_, err = p.Do(t.Context(), args...)
		if _, sent := p.Send(t.Context(), cmd); (err == nil) != (sent == nil) {
			t.Errorf("Do(%s) = %v, but Send = %v", cmd.Name(), err, sent)
		}
	case "SendBatch":
		_, err = p.SendBatch(t.Context(), []resp.Command{cmd})
	case "Tx":
		_, err = p.Tx(t.Context(), []resp.Command{cmd})
	case "With":
		err = p.With(t.Context(), func(c *conn.Conn) error { _, err := c.Send(t.Context(), cmd); return err })
	}
	return err
}

// TestAskingInBatch: ASKING is allowed where it only affects the caller's own command.
func TestAskingInBatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("ASKING", 1, fakeredis.Reply("+OK\r\n")))
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		if _, err := p.SendBatch(t.Context(), cmds("ASKING", "GET k")); err != nil {
			t.Errorf("SendBatch = %v", err)
		}
		if _, err := p.SendBatch(t.Context(), cmds("GET k", "ASKING")); !conn.SafeToRetry(err) {
			t.Errorf("ASKING at the end = %v, want it refused", err)
		}
	})
}

// TestNamesInErrors: an argument in place of the name does not appear in the error.
func TestNamesInErrors(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dialConn(t, conn.Config{Dial: srv.Dial})
		c.Close()
		for name, op := range map[string]string{
			"GET":                   "GET",
			"json.get":              "json.get",
			"SET key secret":        "command",
			strings.Repeat("x", 50): "command",
			"":                      "command",
			"\r\n":                  "command",
		} {
			_, err := c.Do(t.Context(), name, "secret")
			e, ok := errors.AsType[*conn.Error](err)
			if !ok || e.Op != op || strings.Contains(err.Error(), "secret") {
				t.Errorf("Do(%q) = %v, want Op %q", name, err, op)
			}
		}
		_, err := c.Do(t.Context(), "SET", "secret", time.Second) // cannot be encoded
		if e, ok := errors.AsType[*conn.Error](err); !ok || e.Op != "command" {
			t.Errorf("Do(SET) with a duration = %v, want Op command", err)
		}
	})
}

func TestRefusalsAreRecognized(t *testing.T) {
	bad := [][]resp.Command{{resp.Cmd("BLPOP", "k", 0)}, {resp.Cmd("PING"), resp.Cmd("MULTI")}, {{}}}
	for _, cmds := range bad {
		err := conn.CheckBatch(cmds)
		if !errors.Is(err, conn.ErrRefused) || !errors.Is(err, conn.ErrNotSent) || !conn.SafeToRetry(err) {
			t.Errorf("CheckBatch(%v) = %v, want ErrRefused", cmds, err)
		}
	}
	if err := conn.CheckBatch([]resp.Command{resp.Cmd("PING"), resp.Cmd("GET", "k")}); err != nil {
		t.Errorf("CheckBatch = %v", err)
	}
	pool, err := conn.New(conn.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("dialled")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Do(t.Context(), "SUBSCRIBE", "c"); !errors.Is(err, conn.ErrRefused) {
		t.Errorf("SUBSCRIBE: %v, want ErrRefused", err)
	}
	if n := pool.Stats().Dials; n != 0 {
		t.Errorf("New dialled %d times", n)
	}
	if _, err := pool.Do(t.Context(), "PING"); err == nil || errors.Is(err, conn.ErrRefused) || !conn.SafeToRetry(err) {
		t.Errorf("PING: %v, want the failure of the dial", err)
	}
	if _, err := conn.New(conn.Config{Protocol: 7}); err == nil {
		t.Error("New accepted an invalid Config")
	}
}
