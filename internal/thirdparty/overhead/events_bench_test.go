package overhead

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/locktest"
)

// pairEvents calls o as an uncontended pair of Lock and Unlock does: two calls of scripts inside of an acquire and a release.
func (o observer) pairEvents(ctx context.Context, lease *lock.Lease) {
	asked := lock.AcquireStart{Kind: "reentrant", Name: "job", Lease: 30 * time.Second, Renewed: true}
	gives := lock.ReleaseStart{Kind: "reentrant", Name: "job", Held: lease, Age: time.Millisecond}
	within := func(ctx context.Context, script string) {
		start := conn.CommandStart{Name: "EVALSHA", Script: script, Count: 1}
		if o.conn.CommandStart != nil {
			ctx = o.conn.CommandStart(ctx, start)
		}
		o.conn.CommandEnd(ctx, conn.CommandEnd{CommandStart: start, Server: "127.0.0.1:6379", Protocol: 3, Attempts: 1, Sent: true, Elapsed: time.Millisecond})
	}
	acquiring := o.lock.AcquireStart(ctx, asked)
	within(acquiring, "reentrant_acquire")
	o.lock.AcquireEnd(acquiring, lock.AcquireEnd{AcquireStart: asked, Outcome: lock.OutcomeAcquired, Elapsed: time.Millisecond, Attempts: 1, Held: lease})
	releasing := ctx
	if o.lock.ReleaseStart != nil {
		releasing = o.lock.ReleaseStart(ctx, gives)
	}
	within(releasing, "reentrant_release")
	o.lock.ReleaseEnd(releasing, lock.ReleaseEnd{ReleaseStart: gives, Outcome: lock.OutcomeReleased, Elapsed: time.Millisecond})
}

// newLease returns a lease for events to name.
func newLease(t testing.TB) *lock.Lease {
	lease, err := locktest.NewServer(t).Client(lock.Config{}).Reentrant("job").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.Unlock(context.Background()) })
	return lease
}

// The metrics of a pair need no memory. OpenTelemetry needs some to ask the sampler whether the pair is to have spans.
func TestEventsNeedNoMemory(t *testing.T) {
	lease := newLease(t)
	for _, test := range []struct {
		name    string
		observe observer
		most    float64
	}{
		{"prometheus", byPrometheus(), 0},
		{"otel", byOTel(t, 0, true), 3},
	} {
		for range 100 { // makes the time series, and the room for events to be measured later
			test.observe.pairEvents(t.Context(), lease)
		}
		if n := testing.AllocsPerRun(100, func() { test.observe.pairEvents(t.Context(), lease) }); n > test.most {
			t.Errorf("%s: %v allocations, want %v", test.name, n, test.most)
		}
	}
}

// BenchmarkEvents is an observer's part of a pair of Lock and Unlock, without the pair.
func BenchmarkEvents(b *testing.B) {
	lease := newLease(b)
	for _, test := range observers[1:] {
		b.Run(test.name, func(b *testing.B) {
			o := test.observe(b)
			b.ReportAllocs()
			for b.Loop() {
				o.pairEvents(b.Context(), lease)
			}
		})
	}
}

// BenchmarkSDK is the part of OpenTelemetry's SDK in BenchmarkEvents/otel-metrics: the same four measurements and the same question
// to the sampler, with attributes made before.
func BenchmarkSDK(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	histogram, err := meters.Meter("test").Float64Histogram("duration", metric.WithExplicitBucketBoundaries(0.001, 0.01, 0.1, 1, 10, 100))
	if err != nil {
		b.Fatal(err)
	}
	of := func(attributes ...attribute.KeyValue) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
	}
	command := of(attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", "EVALSHA"),
		attribute.String("db.stored_procedure.name", "reentrant_acquire"), attribute.String("db.namespace", "0"),
		attribute.String("server.address", "127.0.0.1"), attribute.Int("server.port", 6379))
	acquire := of(attribute.String("lock.kind", "reentrant"), attribute.String("lock.outcome", "acquired"))
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(0))).Tracer("test")
	b.ReportAllocs()
	for b.Loop() {
		ctx, span := tracer.Start(b.Context(), "lock.acquire")
		for range 2 {
			histogram.Record(ctx, 0.001, command...)
			histogram.Record(ctx, 0.001, acquire...)
		}
		span.End()
	}
}
