package conn_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// cannedConn answers each command with the same reply, without an allocation.
type cannedConn struct {
	reply []byte

	mu     sync.Mutex
	cond   *sync.Cond
	due    []byte // rest of the current reply
	count  int    // further replies due
	hello  bool   // the handshake is over
	closed bool
}

// canned returns a Config for a server that answers every command with reply.
func canned(reply string) conn.Config {
	return conn.Config{PingInterval: -1, Dial: func(context.Context, string, string) (net.Conn, error) {
		c := &cannedConn{reply: []byte(reply)}
		c.cond = sync.NewCond(&c.mu)
		return c, nil
	}}
}

func (c *cannedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hello {
		c.hello = true
		c.due = []byte("%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n")
	} else {
		c.count += bytes.Count(b, []byte("*"))
	}
	c.cond.Signal()
	return len(b), nil
}

func (c *cannedConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) == 0 && c.count == 0 && !c.closed {
		c.cond.Wait()
	}
	n := copy(b, c.due)
	c.due = c.due[n:]
	for len(c.due) == 0 && c.count > 0 && n < len(b) {
		c.count--
		i := copy(b[n:], c.reply)
		c.due = c.reply[i:]
		n += i
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *cannedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cond.Broadcast()
	return nil
}

func (c *cannedConn) LocalAddr() net.Addr              { return nil }
func (c *cannedConn) RemoteAddr() net.Addr             { return nil }
func (c *cannedConn) SetDeadline(time.Time) error      { return nil }
func (c *cannedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *cannedConn) SetWriteDeadline(time.Time) error { return nil }

// TestAllocations checks the number of allocations per call: only the memory of the reply.
func TestAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, time.Hour)
	defer cancelTimeout()
	var (
		key   = string([]byte("key"))
		value = []byte("value")
		ms    = int64(30_000)
		cmd   = resp.Cmd("SET", key, value).On(key)
		batch = []resp.Command{cmd, cmd, cmd, cmd, cmd, cmd, cmd, cmd, cmd, cmd}
	)
	for _, test := range []struct {
		name, reply string
		want        float64
		call        func(p *conn.Pool, ctx context.Context) error
	}{
		{"Do +OK", "+OK\r\n", 0, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "SET", key, value, "NX", "PX", ms)
			return err
		}},
		{"Do integer", ":123456789\r\n", 0, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "INCRBY", key, ms)
			return err
		}},
		{"Do null", "_\r\n", 0, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "GET", key)
			return err
		}},
		{"Do bulk", "$5\r\nvalue\r\n", 1, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "GET", key)
			return err
		}},
		{"Send +OK", "+OK\r\n", 0, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Send(ctx, cmd)
			return err
		}},
		{"SendBatch of 10", ":1\r\n", 1, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.SendBatch(ctx, batch)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := openPool(t, canned(test.reply))
			defer p.Close()
			for _, ctx := range []context.Context{ctx, context.Background()} {
				got := testing.AllocsPerRun(200, func() {
					if err := test.call(p, ctx); err != nil {
						t.Fatal(err)
					}
				})
				if got != test.want {
					t.Errorf("%v allocations, want %v (ctx with deadline: %v)", got, test.want, ctx.Done() != nil)
				}
			}
		})
	}
}
