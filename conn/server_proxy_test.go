package conn_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
)

// Twemproxy closes the connection of a client that sends HELLO or CLIENT.
func TestServerTwemproxy(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		addr := redistest.StartTwemproxy(t, s)
		for _, cfg := range []conn.Config{{}, {Protocol: 2}, {NoIdentity: true}, {Protocol: 2, NoIdentity: true}, {ClientName: "me"}} {
			t.Run(fmt.Sprintf("protocol %d, no identity %v", cfg.Protocol, cfg.NoIdentity), func(t *testing.T) {
				var dials []conn.DialInfo
				cfg.Addr = addr
				cfg.Trace = &conn.Trace{Dial: func(i conn.DialInfo) { dials = append(dials, i) }}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				p, err := conn.Open(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if len(dials) != 1 || dials[0].Err != nil || dials[0].Protocol != 2 {
					t.Errorf("dials: %+v, want one, in RESP2", dials)
				}
				want(t, p, "OK", "SET", "key", "value")
				want(t, p, "PONG", "PING") // like the Pool's own PINGs
				want(t, p, "value", "GET", "key")
				values, err := p.SendBatch(ctx, cmds("SET key 1", "INCR key", "GET key"))
				if got := texts(values); err != nil || got != "OK 2 2" {
					t.Errorf("SendBatch = %s, %v", got, err)
				}
				if n := p.Stats().Lost; n != 0 {
					t.Errorf("%d connections lost", n)
				}
				p.Close()
			})
		}
	})
}
