package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/system"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

var background = context.Background()

// bench is a server and the clients of a measurement.
type bench struct {
	redis   *system.Redis
	settle  time.Duration
	clients []*lock.Client
	pools   []*conn.Pool
}

// open opens n clients, each with separate connections like a process.
func (b *bench) open(n int, cfg lock.Config) error {
	for range n {
		pool, err := conn.Open(background, conn.Config{Addr: b.redis.TCP})
		if err != nil {
			return err
		}
		b.pools = append(b.pools, pool)
		c, err := lock.New(pool, cfg)
		if err != nil {
			return err
		}
		b.clients = append(b.clients, c)
	}
	return nil
}

func (b *bench) close() {
	var wg sync.WaitGroup
	for _, c := range b.clients {
		wg.Go(func() { _ = c.Close() })
	}
	wg.Wait()
	for _, p := range b.pools {
		_ = p.Close()
	}
}

// look is the resources of server and client at a time.
type look struct {
	at     time.Time
	server system.Usage
	cpu    float64 // of the client, in seconds
	memory float64 // of the client
}

// look looks after the time in which the server gives back the buffers of connections at rest.
func (b *bench) look() (look, error) {
	time.Sleep(b.settle)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l := look{memory: float64(m.HeapInuse + m.StackInuse)}
	err := b.now(&l)
	return l, err
}

// now sets the time and the CPU of l.
func (b *bench) now(l *look) (err error) {
	l.server, err = b.redis.Usage()
	l.cpu, l.at = measure.CPU(), time.Now()
	return err
}

// each calls fn for 0 to n-1 from many goroutines and returns the first error.
func each(n int, fn func(i int) error) error {
	const callers = 64
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				if err := fn(i); err != nil {
					once.Do(func() { first = err })
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// bytes prints the share of each of n.
func bytes(b float64, n int) string {
	switch b /= float64(n); {
	case b < 100:
		return fmt.Sprintf("%.0f bytes", max(0, b))
	case b < 1000:
		return fmt.Sprintf("%.0f bytes", 10*float64(int(b/10+0.5)))
	}
	return fmt.Sprintf("%.1f KiB", b/1024)
}

func micros(seconds float64, n int) string {
	return fmt.Sprintf("%.1f µs of CPU", 1e6*seconds/float64(n))
}
