package lockotel_test

import (
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockwire/lockwire/conn"
	lockotel "github.com/lockwire/lockwire/contrib/otel"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/locktest"
)

// sampler decides as told, and counts the questions.
type sampler struct {
	record bool
	asked  *atomic.Int64
}

func (s sampler) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.asked.Add(1)
	if s.record {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (sampler) Description() string { return "sampler" }

// Of a caller without a span: the release belongs to the trace of the hold, and the sampler decides once about both.
func TestReleaseWithoutCaller(t *testing.T) {
	for _, record := range []bool{false, true} {
		srv := locktest.NewServer(t)
		spans, asked := tracetest.NewInMemoryExporter(), new(atomic.Int64)
		telemetry, err := lockotel.New(lockotel.Config{
			MeterProvider:  noop.NewMeterProvider(),
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sampler{record, asked})),
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := srv.Config()
		cfg.Trace = telemetry.Conn()
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		locks, err := lock.New(pool, lock.Config{Trace: telemetry.Lock()})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		before := asked.Load() // of connecting
		lease, err := locks.Reentrant("job").Lock(t.Context())
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if !record {
			if n := asked.Load() - before; n != 1 {
				t.Errorf("%d questions to the sampler, want 1", n)
			}
			continue
		}
		o := observed{spans: spans}
		hold, release := o.span(t, "lock.hold", nil), o.span(t, "lock.release", nil)
		if release.Parent.SpanID() != hold.SpanContext.SpanID() {
			t.Errorf("lock.release is under %v, want %v", release.Parent.SpanID(), hold.SpanContext.SpanID())
		}
	}
}
