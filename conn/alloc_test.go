package conn_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
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

// A long command is encoded into the memory of earlier ones. The race detector makes a sync.Pool lose a quarter of that.
func TestAllocationsOfLongCommands(t *testing.T) {
	p := openPool(t, canned("+OK\r\n"))
	defer p.Close()
	const calls, size = 200, 16 << 10
	value := make([]byte, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if _, err := p.Do(t.Context(), "SET", "key", value); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / calls; each > size {
		t.Errorf("a SET of %d bytes takes %d bytes, want no copy of the value", size, each)
	}
}

// countedConn counts the writes on a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// counted makes cfg count the writes on all connections.
func counted(cfg conn.Config) (conn.Config, *atomic.Int64) {
	writes := new(atomic.Int64)
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return countedConn{nc, writes}, nil
	}
	return cfg, writes
}

// callers runs fn in n goroutines until b.N operations are done. fn does the given number of operations.
func callers(b *testing.B, n, operations int, fn func() error) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N / operations))
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := fn(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkDo measures single commands of callers on one connection, and the commands per write.
func BenchmarkDo(b *testing.B) {
	s := redistest.Start(b, redistest.Options{})
	value := strings.Repeat("x", 64)
	ctx := context.Background()
	for _, name := range []string{"GET", "SET"} {
		for _, n := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, n), func(b *testing.B) {
				cfg, writes := counted(s.Config())
				p := openPool(b, cfg)
				defer p.Close()
				want(b, p, "OK", "SET", "key", value)
				call := func() error { _, err := p.Do(ctx, "GET", "key"); return err }
				if name == "SET" {
					call = func() error { _, err := p.Do(ctx, "SET", "key", value); return err }
				}
				before := writes.Load()
				b.ReportAllocs()
				callers(b, n, 1, call)
				b.ReportMetric(float64(b.N)/float64(writes.Load()-before), "cmds/write")
			})
		}
	}
}

// BenchmarkContext measures single commands under a ctx without end, and under a cancellable ctx, as in a service's
// request.
func BenchmarkContext(b *testing.B) {
	s := redistest.Start(b, redistest.Options{})
	ending, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless": context.Background(), "ending": ending} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, n), func(b *testing.B) {
				p := openPool(b, s.Config())
				defer p.Close()
				want(b, p, "OK", "SET", "key", strings.Repeat("x", 64))
				callers(b, n, 1, func() error { _, err := p.Do(ctx, "GET", "key"); return err })
			})
		}
	}
}

// BenchmarkBatch measures batches of 100 commands; an operation is a command.
func BenchmarkBatch(b *testing.B) {
	s := redistest.Start(b, redistest.Options{})
	var batch []resp.Command
	for range 100 {
		batch = append(batch, resp.Cmd("GET", "key"))
	}
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			p := openPool(b, s.Config())
			defer p.Close()
			want(b, p, "OK", "SET", "key", strings.Repeat("x", 64))
			b.ReportAllocs()
			callers(b, n, len(batch), func() error { _, err := p.SendBatch(context.Background(), batch); return err })
		})
	}
}

// BenchmarkInMemory measures the cost of a call without the kernel.
func BenchmarkInMemory(b *testing.B) {
	for reply, kind := range map[string]string{":1\r\n": "integer", "$5\r\nvalue\r\n": "bulk"} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", kind, n), func(b *testing.B) {
				p := openPool(b, canned(reply))
				defer p.Close()
				b.ReportAllocs()
				callers(b, n, 1, func() error { _, err := p.Do(context.Background(), "GET", "key"); return err })
			})
		}
	}
}
