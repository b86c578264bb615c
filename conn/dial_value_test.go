package conn_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// metered is a connection that a user's Dial returns by value. It is not comparable.
type metered struct {
	net.Conn
	count func(n int)
}

func (c metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.count(n)
	return n, err
}

// The connections of Config.Dial may be values of any type.
func TestUncomparableConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := srv.Dial(ctx, network, addr)
			return metered{nc, func(int) {}}, err
		}
		p, err := conn.Open(t.Context(), conn.Config{Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := p.Do(t.Context(), "PING"); err != nil {
			t.Error(err)
		}
		if err := p.With(t.Context(), func(c *conn.Conn) error { _, err := c.Do(t.Context(), "PING"); return err }); err != nil {
			t.Error(err)
		}
		s, err := p.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	})
}
