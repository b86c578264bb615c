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

// secret is the password of all scripted peers. No error may contain it.
const secret = "s3cr3t-Pa55"

// peer is the server's end of a scripted connection. The script calls its methods, which fail the test on unexpected
// input.
type peer struct {
	net.Conn
	t      testing.TB
	closed <-chan struct{} // closes when the client closes; nil unless in memory
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

// expect reads one whole write of the client, which must consist of the given commands; spaces separate their words.
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

// written returns one write of the client, or "" after the client has closed. It replaces the library's version,
// which depends on the build, by devel.
func (p *peer) written() string {
	b := make([]byte, 64<<10)
	n, _ := p.Read(b)
	return version.ReplaceAllString(string(b[:n]), "LIB-VER\r\n$$5\r\ndevel")
}

var version = regexp.MustCompile(`LIB-VER\r\n\$\d+\r\nv[^\r]+`)

// reply sends replies in wire format, with | in place of \r\n.
func (p *peer) reply(replies ...string) {
	for _, r := range replies {
		if _, err := p.Write([]byte(strings.ReplaceAll(r, "|", "\r\n"))); err != nil {
			return // the client has closed
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

// welcome completes the shortest possible handshake.
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

// scripted returns a Config whose n-th dial gets an in-memory connection to the n-th script; an extra dial fails.
// Connections are synchronous: one write of the client is one read of the peer.
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
			t.Error("client dialled more often than scripted")
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

// open dials a Stream, fails the test on an error, and closes the Stream at the end of the test.
func open(t testing.TB, cfg conn.Config) *conn.Stream {
	t.Helper()
	s, err := conn.DialStream(t.Context(), cfg)
	if err != nil {
		t.Fatalf("DialStream = %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// refused dials a Stream, fails the test without an error, and checks the properties of every dial's error.
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
