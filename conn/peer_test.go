package conn_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// secret is the password of all scripted peers; no error may hold it.
const secret = "s3cr3t-Pa55"

// peer is the server's end of a scripted connection. Its methods are for the script, which fails the test when the
// client does not do as expected.
type peer struct {
	net.Conn
	t      testing.TB
	closed <-chan struct{} // closed when the client has closed; nil unless in memory
}

// clientEnd is the client's end of a connection in memory.
type clientEnd struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *clientEnd) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// expect reads one write of the client, the whole of it, which must be these commands, their words separated by
// spaces.
func (p *peer) expect(commands ...string) bool {
	p.t.Helper()
	want := ""
	for _, c := range commands {
		want += encode(c)
	}
	if got := p.written(); got != want {
		p.t.Errorf("client wrote %q, want %q", got, want)
		return false
	}
	return true
}

// written returns one write of the client, or "" when it has closed. The version of the library, which depends on how
// the test was built, is devel in it.
func (p *peer) written() string {
	b := make([]byte, 64<<10)
	n, _ := p.Read(b)
	return version.ReplaceAllString(string(b[:n]), "LIB-VER\r\n$$5\r\ndevel")
}

var version = regexp.MustCompile(`LIB-VER\r\n\$\d+\r\nv[^\r]+`)

// reply sends replies as they are on the wire, \r\n standing in them as |.
func (p *peer) reply(replies ...string) {
	for _, r := range replies {
		if _, err := p.Write([]byte(strings.ReplaceAll(r, "|", "\r\n"))); err != nil {
			return // the client has heard enough
		}
	}
}

// expectClose waits for the client to close without another write.
func (p *peer) expectClose() {
	p.t.Helper()
	if got := p.written(); got != "" {
		p.t.Errorf("client wrote %q, want the connection closed", got)
	}
}

// welcome leads the shortest handshake there is.
func (p *peer) welcome() bool {
	p.t.Helper()
	if !p.expect("HELLO 3", libName, libVersion) {
		return false
	}
	p.reply(hello3, "+OK|", "+OK|")
	return true
}

const (
	hello3     = "%2|$6|server|$5|redis|$5|proto|:3|"
	libName    = "CLIENT SETINFO LIB-NAME lockwire"
	libVersion = "CLIENT SETINFO LIB-VER devel"
)

func encode(command string) string {
	var args []any
	for w := range strings.SplitSeq(command, " ") {
		args = append(args, w)
	}
	return string(resp.Cmd(args...).AppendTo(nil))
}

// scripted returns a Config whose n-th dial gets an in-memory connection to the n-th script; a dial too many fails.
// The connection is synchronous: what the client writes at once its peer reads at once.
func scripted(t testing.TB, scripts ...func(p *peer)) conn.Config {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	t.Cleanup(func() {
		wg.Wait()
		if next != len(scripts) {
			t.Errorf("client dialled %d times, want %d", next, len(scripts))
		}
	})
	return conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(scripts) {
			t.Error("client dialled once too often")
			return nil, errors.New("no script for this dial")
		}
		script := scripts[next]
		next++
		client, server := net.Pipe()
		closed := make(chan struct{})
		wg.Go(func() {
			defer server.Close()
			script(&peer{Conn: server, t: t, closed: closed})
		})
		return &clientEnd{Conn: client, closed: closed}, nil
	}}
}

// open dials a Stream that must come to be, and closes it at the end of the test.
func open(t testing.TB, cfg conn.Config) *conn.Stream {
	t.Helper()
	s, err := conn.DialStream(t.Context(), cfg)
	if err != nil {
		t.Fatalf("DialStream = %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// refused dials a Stream that must not come to be, and checks what holds for the error of every dial.
func refused(t testing.TB, ctx context.Context, cfg conn.Config) error {
	t.Helper()
	s, err := conn.DialStream(ctx, cfg)
	if err == nil {
		s.Close()
		t.Fatal("DialStream succeeded, want an error")
	}
	checkDialError(t, err)
	return err
}

func checkDialError(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, conn.ErrNotSent) || errors.Is(err, conn.ErrUncertain) || !conn.SafeToRetry(err) {
		t.Errorf("error of a dial is not ErrNotSent: %v", err)
	}
	if e, ok := errors.AsType[*conn.Error](err); !ok || e.Op != "dial" {
		t.Errorf("error of a dial is not a *conn.Error with Op dial: %v", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("error holds the password: %v", err)
	}
}

func ping(t testing.TB, s *conn.Stream) {
	t.Helper()
	if err := s.Write(t.Context(), resp.Cmd("PING")); err != nil {
		t.Fatalf("Write = %v", err)
	}
	v, err := s.Read()
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	if text, err := v.Text(); text != "PONG" || err != nil {
		t.Fatalf("reply to PING = %q, %v; want PONG", text, err)
	}
}

// answerPing answers one ping and waits for the client to close.
func (p *peer) answerPing() {
	p.t.Helper()
	if p.expect("PING") {
		p.reply("+PONG|")
	}
	p.expectClose()
}
