package fakeredis_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// client is a raw client: it sends commands and reads whole replies as text.
type client struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func dial(t *testing.T, srv *fakeredis.Server) *client {
	t.Helper()
	nc, err := srv.Dial(t.Context(), "tcp", "fake:6379")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &client{t, nc, bufio.NewReader(nc)}
}

func encode(args ...string) []byte {
	buf := []byte("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, arg := range args {
		buf = append(buf, "$"+strconv.Itoa(len(arg))+"\r\n"+arg+"\r\n"...)
	}
	return buf
}

func (c *client) send(args ...string) {
	c.t.Helper()
	if _, err := c.nc.Write(encode(args...)); err != nil {
		c.t.Fatalf("write %q: %v", args, err)
	}
}

func (c *client) read() string {
	c.t.Helper()
	raw, err := readReply(c.r)
	if err != nil {
		c.t.Fatalf("read: %v after %q", err, raw)
	}
	return raw
}

func (c *client) do(args ...string) string {
	c.t.Helper()
	c.send(args...)
	return c.read()
}

func (c *client) expect(want string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); got != want {
		c.t.Errorf("%q = %q, want %q", args, got, want)
	}
}

// ended returns why nothing more can be read.
func (c *client) ended() error {
	c.t.Helper()
	raw, err := readReply(c.r)
	if err == nil {
		c.t.Fatalf("read %q, want the end", raw)
	}
	return err
}

// readReply reads one value of RESP2 or RESP3, as it is on the wire.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return line, err
	}
	n, _ := strconv.Atoi(line[1 : len(line)-2])
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line, nil
		}
		body := make([]byte, n+2)
		_, err := io.ReadFull(r, body)
		return line + string(body), err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return line, nil
	}
	for range n {
		part, err := readReply(r)
		line += part
		if err != nil {
			return line, err
		}
	}
	return line, nil
}

// run calls fn in a bubble of virtual time with a server of its own.
func run(t *testing.T, fn func(t *testing.T, srv *fakeredis.Server)) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		fn(t, srv)
	})
}

func TestExpiryIsVirtual(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.expect("+OK\r\n", "SET", "k", "v", "PX", "30000")
		time.Sleep(30 * time.Second)
		// As in Redis, a key is still there in the very millisecond of its deadline.
		c.expect(":0\r\n", "PTTL", "k")
		c.expect("$1\r\nv\r\n", "GET", "k")
		time.Sleep(time.Millisecond)
		c.expect(":-2\r\n", "PTTL", "k")
		c.expect("$-1\r\n", "GET", "k")
	})
}

func TestDroppedReply(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INCR" && cmd.N == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		c := dial(t, srv)
		c.send("INCR", "n")
		if err := c.ended(); !errors.Is(err, io.EOF) {
			t.Errorf("read = %v, want EOF", err)
		}
		dial(t, srv).expect(":2\r\n", "INCR", "n")
		if got := srv.Count("incr"); got != 2 {
			t.Errorf("Count = %d, want 2", got)
		}
	})
}
