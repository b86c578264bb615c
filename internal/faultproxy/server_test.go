package faultproxy_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestLostReplyOfRealServer(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		p := start(t, s.Network(), s.Addr())
		c := dial(t, p)
		if proto == 3 {
			c.send("HELLO 3")
			if _, err := c.r.Read(); err != nil {
				t.Fatal(err)
			}
		}
		script := "return redis.call('incr',KEYS[1])"
		digest, err := s.Do("SCRIPT", "LOAD", script).Text()
		if err != nil {
			t.Fatal(err)
		}
		p.DropReply("EVALSHA", 2)
		call := fmt.Sprintf("EVALSHA %s 1 n", digest)
		c.send(call, call, "GET n", call, "PING")
		c.expect("1", "2", "3", "PONG")
		lost(t, p, 1)
	})
}

func TestMessagesOfRealServer(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		p := start(t, s.Network(), s.Addr())
		c := dial(t, p)
		if proto == 3 {
			c.send("HELLO 3")
			if _, err := c.r.Read(); err != nil {
				t.Fatal(err)
			}
		}
		c.send("SUBSCRIBE a b")
		c.expect("[subscribe a 1]", "[subscribe b 2]")
		s.Do("PUBLISH", "a", "one")
		p.DropReply("UNSUBSCRIBE", 1)
		p.DropReply("SUBSCRIBE", 1)
		c.send("SUBSCRIBE c", "UNSUBSCRIBE a", "UNSUBSCRIBE", "PING x")
		c.expect("[message a one]")
		// The order in which a server leaves several channels is its own.
		for range 2 {
			if v, err := c.r.Read(); err != nil || v.Len() != 3 {
				t.Fatalf("read %s, %v, want a confirmation", text(v), err)
			}
		}
		c.expect("x")
		lost(t, p, 2)
	})
}

func TestUnixSocket(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Unix: true})
	p := start(t, s.Network(), s.Addr())
	c := dial(t, p)
	c.send("PING")
	c.expect("PONG")
}

func TestTLSIsHandedOn(t *testing.T) {
	s := redistest.Start(t, redistest.Options{TLS: true})
	p := start(t, s.Network(), s.Addr())
	p.Slice(100, 0)
	nc, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.TLSConfig()
	cfg.ServerName = "127.0.0.1"
	secure := tls.Client(nc, cfg)
	t.Cleanup(func() { _ = secure.Close() })
	_ = secure.SetDeadline(time.Now().Add(patience))
	c := &client{t, secure, resp.NewReader(secure, resp.Limits{})}
	c.send("PING", "ECHO hi")
	c.expect("PONG", "hi")
	p.Cut()
	if v, err := c.r.Read(); err == nil {
		t.Errorf("read %s after the cut", text(v))
	}
}
