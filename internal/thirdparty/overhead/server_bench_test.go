// Package overhead measures the price of traces and metrics on a lock. OPERATIONS.md has the results.
package overhead

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockwire/lockwire/conn"
	lockotel "github.com/lockwire/lockwire/contrib/otel"
	lockprom "github.com/lockwire/lockwire/contrib/prometheus"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// observer is a way to observe locks. The zero observer does not.
type observer struct {
	conn *conn.Trace
	lock *lock.Trace
}

// and returns an observer that does what o and other do. other has no contexts of its own.
func (o observer) and(other observer) observer {
	both, locks := *o.conn, *o.lock
	both.CommandEnd = func(ctx context.Context, e conn.CommandEnd) { other.conn.CommandEnd(ctx, e); o.conn.CommandEnd(ctx, e) }
	locks.AcquireStart = func(ctx context.Context, s lock.AcquireStart) context.Context {
		return o.lock.AcquireStart(other.lock.AcquireStart(ctx, s), s)
	}
	locks.AcquireEnd = func(ctx context.Context, e lock.AcquireEnd) { other.lock.AcquireEnd(ctx, e); o.lock.AcquireEnd(ctx, e) }
	locks.ReleaseEnd = func(ctx context.Context, e lock.ReleaseEnd) { other.lock.ReleaseEnd(ctx, e); o.lock.ReleaseEnd(ctx, e) }
	return observer{&both, &locks}
}

func byPrometheus() observer {
	m := lockprom.New(lockprom.Config{})
	prometheus.NewRegistry().MustRegister(m)
	return observer{m.Conn(), m.Lock()}
}

// byOTel measures, and samples a share of the spans, which are dropped.
func byOTel(b testing.TB, share float64, metrics bool) observer {
	cfg := lockotel.Config{
		MeterProvider:  noop.NewMeterProvider(),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share))),
	}
	if metrics {
		cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	}
	t, err := lockotel.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return observer{t.Conn(), t.Lock()}
}

// idle returns callbacks that do nothing: what remains is the price of calling them.
func idle() observer {
	return observer{
		&conn.Trace{CommandEnd: func(context.Context, conn.CommandEnd) {}},
		&lock.Trace{
			AcquireStart: func(ctx context.Context, _ lock.AcquireStart) context.Context { return ctx },
			AcquireEnd:   func(context.Context, lock.AcquireEnd) {},
			ReleaseEnd:   func(context.Context, lock.ReleaseEnd) {},
		},
	}
}

// observers are the ways to observe locks, "nothing" first.
var observers = []struct {
	name    string
	observe func(b *testing.B) observer
}{
	{"nothing", func(*testing.B) observer { return observer{} }},
	{"callbacks", func(*testing.B) observer { return idle() }},
	{"prometheus", func(*testing.B) observer { return byPrometheus() }},
	{"otel-metrics", func(b *testing.B) observer { return byOTel(b, 0, true) }},
	{"otel-spans-1%", func(b *testing.B) observer { return byOTel(b, 0.01, false) }},
	{"otel-spans-all", func(b *testing.B) observer { return byOTel(b, 1, false) }},
	{"both-spans-1%", func(b *testing.B) observer { return byOTel(b, 0.01, true).and(byPrometheus()) }},
	{"both-spans-all", func(b *testing.B) observer { return byOTel(b, 1, true).and(byPrometheus()) }},
}

// client returns a client of the server of cfg.
func (o observer) client(b *testing.B, cfg conn.Config) *lock.Client {
	cfg.Trace = o.conn
	pool, err := conn.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { pool.Close() })
	c, err := lock.New(pool, lock.Config{Trace: o.lock})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// pairs locks and unlocks job as long as next wants.
func pairs(b *testing.B, job *lock.Reentrant, next func() bool) {
	for next() {
		lease, err := job.Lock(b.Context())
		if err == nil {
			err = lease.Unlock(b.Context())
		}
		if err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkLockUnlock is Lock and Unlock with a server in memory: its difference to "nothing" is the price of an observer.
func BenchmarkLockUnlock(b *testing.B) {
	for _, test := range observers {
		b.Run(test.name, func(b *testing.B) {
			srv := fakeredis.New()
			b.Cleanup(srv.Close) // after the client
			srv.Interpret(lockscripts.Interpret)
			c := test.observe(b).client(b, conn.Config{Dial: srv.Dial})
			b.ReportAllocs()
			pairs(b, c.Reentrant("job"), b.Loop)
		})
	}
}

// BenchmarkServerLockUnlock is Lock and Unlock on a server, by one caller and by 32 at the same time.
func BenchmarkServerLockUnlock(b *testing.B) {
	for _, test := range observers {
		for _, callers := range []int{1, 32} {
			b.Run(test.name+"/"+strconv.Itoa(callers), func(b *testing.B) {
				c := test.observe(b).client(b, redistest.Start(b, redistest.Options{}).Config())
				b.ReportAllocs()
				if callers == 1 {
					pairs(b, c.Reentrant("job"), b.Loop)
					return
				}
				var names atomic.Int64
				b.SetParallelism(max(1, callers/2))
				b.RunParallel(func(pb *testing.PB) { pairs(b, c.Reentrant("job"+strconv.FormatInt(names.Add(1), 10)), pb.Next) })
			})
		}
	}
}
