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
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
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
