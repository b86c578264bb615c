package conn_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
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

// callers runs fn b.N times in all, in n goroutines.
func callers(b *testing.B, n int, fn func()) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				fn()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func BenchmarkGet(b *testing.B) {
	s := redistest.Start(b, redistest.Options{})
	for _, n := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			cfg, writes := counted(s.Config())
			p, err := conn.Open(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			ctx := context.Background()
			if _, err := p.Do(ctx, "SET", "key", "0123456789012345678901234567890123456789012345678901234567890123"); err != nil {
				b.Fatal(err)
			}
			writes.Store(0)
			b.ReportAllocs()
			callers(b, n, func() {
				if _, err := p.Do(ctx, "GET", "key"); err != nil {
					b.Error(err)
				}
			})
			b.ReportMetric(float64(b.N)/float64(writes.Load()), "cmds/write")
		})
	}
}
