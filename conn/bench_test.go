package conn_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

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
