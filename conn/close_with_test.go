package conn_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// slowToClose is a network connection whose Close takes until gate closes.
type slowToClose struct {
	net.Conn
	gate chan struct{}
}

func (s slowToClose) Close() error {
	<-s.gate
	return s.Conn.Close()
}

// Close of a lent connection holds up no other use of it, however long the network connection takes.
func TestSlowCloseOfALentConn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		gate := make(chan struct{})
		p := openPool(t, conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := srv.Dial(ctx, network, addr)
			return slowToClose{nc, gate}, err
		}})
		defer p.Close()
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_ = p.With(t.Context(), func(c *conn.Conn) error {
				go c.Close()
				<-c.Done()
				_, err := c.Do(t.Context(), "PING")
				return err
			})
		}()
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Error("With waits for the network connection")
		}
		close(gate)
		<-returned
	})
}
