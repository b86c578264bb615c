package conn_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// stalls is more than the buffers of a socket take, so that its write waits for the peer.
const stalls = 48 << 20

// largePeer reads large commands at the pace of a test.
type largePeer struct {
	*peer
	br *bufio.Reader
}

// listenLarge returns the Config for a server on a kernel socket that runs script after the handshake.
func listenLarge(t *testing.T, script func(p *largePeer)) conn.Config {
	t.Helper()
	ln := listen(t, "tcp", "127.0.0.1:0", func(p *peer) {
		if p.welcome() {
			script(&largePeer{p, bufio.NewReader(p)})
		}
	})
	return conn.Config{Addr: ln.Addr().String(), PingInterval: -1, Timeout: -1}
}

// head reads the beginning of a SET with a value of n bytes.
func (p *largePeer) head(key string, n int) {
	want := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(key), key, n)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.br, got); err != nil || string(got) != want {
		p.t.Errorf("client wrote %q, %v; want %q", got, err, want)
	}
}

// body reads a value of n bytes, which must all be c.
func (p *largePeer) body(c byte, n int) {
	got := make([]byte, n+2)
	if _, err := io.ReadFull(p.br, got); err != nil {
		p.t.Errorf("value of %d bytes: %v", n, err)
		return
	}
	if same := bytes.Count(got[:n], []byte{c}); same != n || string(got[n:]) != "\r\n" {
		p.t.Errorf("%d of %d bytes of the value have changed, and it ends in %q", n-same, n, got[n:])
	}
}

// rest reads the commands that are left, one for each reply, and the end of the connection.
func (p *largePeer) rest(want ...string) {
	for _, w := range want {
		got := make([]byte, len(encode(w)))
		if _, err := io.ReadFull(p.br, got); err != nil || string(got) != encode(w) {
			p.t.Errorf("client wrote %q, %v; want %q", got, err, w)
		}
		p.reply("+" + strings.ReplaceAll(w, " ", "-") + "|")
	}
	if n, _ := p.br.Read(make([]byte, 1)); n > 0 {
		p.t.Error("client wrote more than was asked for")
	}
}

// A caller that leaves in the middle of its write may use its memory again: the server gets the value as it was, and
// the replies of others stay in order.
func TestLargeValueGivenUp(t *testing.T) {
	begun, left := make(chan struct{}), make(chan struct{})
	cfg := listenLarge(t, func(p *largePeer) {
		p.head("key", stalls)
		close(begun)
		<-left
		p.body('a', stalls)
		p.reply("+LATE|")
		p.rest("PING")
	})
	p := openPool(t, cfg)
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	value := bytes.Repeat([]byte("a"), stalls)
	_, err := p.Do(ctx, "SET", "key", value)
	clear(value)
	close(left)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, conn.ErrUncertain) {
		t.Errorf("Do = %v, want canceled and uncertain", err)
	}
	want(t, p, "PING", "PING")
}

// A caller whose reply comes before the server has read its value may use its memory again too.
func TestLargeValueAnsweredEarly(t *testing.T) {
	answered := make(chan struct{})
	cfg := listenLarge(t, func(p *largePeer) {
		p.head("key", stalls)
		p.reply("-OOM|")
		<-answered
		p.body('a', stalls)
		p.rest("PING")
	})
	p := openPool(t, cfg)
	defer p.Close()
	value := bytes.Repeat([]byte("a"), stalls)
	_, err := p.Do(t.Context(), "SET", "key", value)
	clear(value)
	close(answered)
	if err == nil || err.Error() != "OOM" {
		t.Errorf("Do = %v, want OOM", err)
	}
	want(t, p, "PING", "PING")
}

// While a link writes one large value, others can be withdrawn: they were not sent.
func TestLargeValueWithdrawn(t *testing.T) {
	begun, withdrawn := make(chan struct{}), make(chan struct{})
	cfg := listenLarge(t, func(p *largePeer) {
		p.head("one", stalls)
		close(begun)
		<-withdrawn
		p.body('a', stalls)
		p.reply("+OK|")
		p.rest("PING")
	})
	c := dialConn(t, cfg)
	defer c.Close()
	first := make(chan error, 1)
	go func() {
		_, err := c.Do(context.Background(), "SET", "one", bytes.Repeat([]byte("a"), stalls))
		first <- err
	}()
	<-begun
	for _, value := range []any{strings.Repeat("b", 1<<20), bytes.Repeat([]byte("b"), 1<<20)} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.Do(ctx, "SET", "two", value)
			ended <- err
		}()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, conn.ErrNotSent) {
			t.Errorf("Do = %v, want canceled and not sent", err)
		}
	}
	close(withdrawn)
	if err := <-first; err != nil {
		t.Errorf("the first Do = %v", err)
	}
	want(t, c, "PING", "PING")
}

// TestLargeValuesOfManyCallers: while a link writes one large value, the values behind it are not copied. All wait
// until they are sent.
func TestLargeValuesOfManyCallers(t *testing.T) {
	const callers, size = 200, 64 << 10
	var before, after runtime.MemStats
	begun, waiting := make(chan struct{}), make(chan struct{})
	cfg := listenLarge(t, func(p *largePeer) {
		p.head("one", stalls)
		close(begun)
		<-waiting
		if _, err := p.br.Discard(stalls + 2 + callers*resp.Cmd("SET", "key", make([]byte, size)).Size()); err != nil {
			t.Error(err)
		}
		for range callers + 1 {
			p.reply("+OK|")
		}
		p.rest()
	})
	p := openPool(t, cfg)
	defer p.Close()
	var wg sync.WaitGroup
	set := func(key string, value []byte) {
		wg.Go(func() {
			if _, err := p.Do(context.Background(), "SET", key, value); err != nil {
				t.Error(err)
			}
		})
	}
	set("one", make([]byte, stalls))
	<-begun
	value := make([]byte, size)
	for range callers {
		set("key", value)
	}
	for p.Stats().InFlight <= callers {
		runtime.Gosched()
	}
	runtime.ReadMemStats(&before)
	close(waiting)
	wg.Wait()
	runtime.ReadMemStats(&after)
	if got := float64(after.TotalAlloc-before.TotalAlloc) / (callers * size); got > 1 {
		t.Errorf("%.1f bytes allocated for each byte of the values, want 1 at most", got)
	}
}

// A connection that breaks in the middle of a value: the value is uncertain, what waits behind it was not sent.
func TestLargeValueCutOff(t *testing.T) {
	begun, cut := make(chan struct{}), make(chan struct{})
	cfg := listenLarge(t, func(p *largePeer) {
		p.head("one", stalls)
		close(begun)
		<-cut
		p.Conn.(*net.TCPConn).SetLinger(0)
	})
	c := dialConn(t, cfg)
	defer c.Close()
	errs := make(chan error, 2)
	go func() {
		_, err := c.Do(context.Background(), "SET", "one", bytes.Repeat([]byte("a"), stalls))
		errs <- err
	}()
	<-begun
	go func() {
		_, err := c.Do(context.Background(), "SET", "two", strings.Repeat("b", 1<<20))
		errs <- err
	}()
	close(cut)
	var uncertain, unsent int
	for range 2 {
		err := <-errs
		if errors.Is(err, conn.ErrUncertain) {
			uncertain++
		}
		if errors.Is(err, conn.ErrNotSent) {
			unsent++
		}
	}
	if uncertain != 1 || unsent != 1 {
		t.Errorf("%d uncertain and %d not sent, want one of each", uncertain, unsent)
	}
}

// sinkServer takes values of one size and answers, without an allocation for each.
func sinkServer(t *testing.T, request, reply []byte) conn.Config {
	return listenLarge(t, func(p *largePeer) {
		var buf [64 << 10]byte
		for {
			for left := len(request); left > 0; {
				n, err := p.br.Read(buf[:min(left, len(buf))])
				if err != nil {
					return
				}
				left -= n
			}
			if _, err := p.Write(reply); err != nil {
				return
			}
		}
	})
}

// TestLargeValuesAllocate: a value that is sent needs no memory, one that is received its own only.
func TestLargeValuesAllocate(t *testing.T) {
	const size, rounds = 1 << 20, 20
	value := bytes.Repeat([]byte("v"), size)
	bulk := fmt.Appendf(nil, "$%d\r\n%s\r\n", size, value)
	set, get := resp.Cmd("SET", "key", value), resp.Cmd("GET", "key")
	for _, test := range []struct {
		name           string
		request, reply []byte
		most           float64 // bytes for each byte of the value
		call           func(p *conn.Pool, ctx context.Context) error
	}{
		{"Do SET []byte", set.AppendTo(nil), []byte("+OK\r\n"), 0.1, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "SET", "key", value)
			return err
		}},
		{"Do SET string", set.AppendTo(nil), []byte("+OK\r\n"), 0.1, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "SET", "key", set.Arg(2))
			return err
		}},
		{"Send SET", set.AppendTo(nil), []byte("+OK\r\n"), 1.1, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Send(ctx, resp.Cmd("SET", "key", value))
			return err
		}},
		{"Do GET", get.AppendTo(nil), bulk, 1.1, func(p *conn.Pool, ctx context.Context) error {
			_, err := p.Do(ctx, "GET", "key")
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := openPool(t, sinkServer(t, test.request, test.reply))
			defer p.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var before, after runtime.MemStats
			for i := range rounds + 1 {
				if i == 1 {
					runtime.ReadMemStats(&before)
				}
				if err := test.call(p, ctx); err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			if got := float64(after.TotalAlloc-before.TotalAlloc) / rounds / size; got > test.most {
				t.Errorf("%.3f bytes allocated for each byte, want %v at most", got, test.most)
			}
		})
	}
}
