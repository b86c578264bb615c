package lockotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockwire/lockwire/conn"
	lockotel "github.com/lockwire/lockwire/contrib/otel"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
)

// observed is a client of a server in virtual time, with all that its telemetry exports.
type observed struct {
	*lock.Client
	srv     *fakeredis.Server
	spans   *tracetest.InMemoryExporter
	metrics *sdkmetric.ManualReader
	tracer  *sdktrace.TracerProvider
}

func observe(t *testing.T, cfg lockotel.Config, fn func(t *testing.T, o *observed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &observed{srv: fakeredis.New(), spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
		defer o.srv.Close()
		o.srv.Interpret(lockscripts.Interpret)
		o.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(o.spans))
		cfg.TracerProvider = o.tracer
		cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.metrics))
		telemetry, err := lockotel.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		pool, err := conn.Open(t.Context(), conn.Config{Dial: o.srv.Dial, Trace: telemetry.Conn()})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		stop, err := telemetry.Pool("locks", pool.Stats)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if o.Client, err = lock.New(pool, lock.Config{Trace: telemetry.Lock(), HandOvers: -1}); err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		fn(t, o)
	})
}

// span returns the only span with the name that fits.
func (o *observed) span(t *testing.T, name string, fits func(tracetest.SpanStub) bool) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range o.spans.GetSpans() {
		if s.Name == name && (fits == nil || fits(s)) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %s", len(found), name)
	}
	return found[0]
}

// has returns a condition: the span has the attribute.
func has(kv attribute.KeyValue) func(tracetest.SpanStub) bool {
	return func(s tracetest.SpanStub) bool { return slices.Contains(s.Attributes, kv) }
}

// value returns the value of a metric at the attributes, which are all it has: a count for a histogram.
func (o *observed) value(t *testing.T, name string, attributes ...attribute.KeyValue) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	want, known := attribute.NewSet(attributes...), false
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			known = true
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if p.Attributes.Equals(&want) {
						n += int64(p.Count)
					}
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if p.Attributes.Equals(&want) {
						n += p.Value
					}
				}
			}
		}
	}
	if !known {
		t.Errorf("no metric %s", name)
	}
	return n
}

// One trace tells why a job waits: its span links to the hold of another job.
func TestSpans(t *testing.T) {
	observe(t, lockotel.Config{Group: func(string) string { return "jobs" }}, func(t *testing.T, o *observed) {
		tracer := o.tracer.Tracer("test")
		first, root := tracer.Start(t.Context(), "first job")
		lease, err := o.Fenced("job:1").Lock(first)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			second, other := tracer.Start(t.Context(), "second job")
			defer other.End()
			if err := o.Fenced("job:1").Do(second, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		if err := lease.Unlock(first); err != nil {
			t.Error(err)
		}
		wg.Wait()
		root.End()

		named := attribute.String("lock.name", "job:1")
		hold := o.span(t, "lock.hold", has(attribute.Int64("lock.token", lease.Token())))
		wait := o.span(t, "lock.acquire", func(s tracetest.SpanStub) bool { return s.EndTime.Sub(s.StartTime) >= time.Second })
		if len(wait.Links) != 1 || wait.Links[0].SpanContext.SpanID() != hold.SpanContext.SpanID() || !has(named)(wait) {
			t.Errorf("links of the waiter: %+v, want the hold %v", wait.Links, hold.SpanContext.SpanID())
		}
		caller := o.span(t, "first job", nil)
		if hold.Parent.SpanID() != caller.SpanContext.SpanID() || hold.EndTime.Sub(hold.StartTime) < time.Second {
			t.Errorf("the hold is under %v and took %v", hold.Parent.SpanID(), hold.EndTime.Sub(hold.StartTime))
		}
		command := o.span(t, "EVALSHA fenced_acquire", func(s tracetest.SpanStub) bool {
			return s.SpanContext.TraceID() == caller.SpanContext.TraceID()
		})
		acquire := o.span(t, "lock.acquire", func(s tracetest.SpanStub) bool {
			return s.Parent.SpanID() == caller.SpanContext.SpanID()
		})
		if command.Parent.SpanID() != acquire.SpanContext.SpanID() || command.Status.Code == codes.Error {
			t.Errorf("command %+v under %v", command.Status, command.Parent.SpanID())
		}
		for _, kv := range []attribute.KeyValue{
			attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", "EVALSHA"),
			attribute.String("db.stored_procedure.name", "fenced_acquire"), attribute.String("db.namespace", "0"),
			attribute.String("server.address", "127.0.0.1"), attribute.Int("server.port", 6379),
		} {
			if !has(kv)(command) {
				t.Errorf("the span of the command has no %v: %v", kv, command.Attributes)
			}
		}
		group := []attribute.KeyValue{attribute.String("lock.kind", "fenced"), attribute.String("lock.group", "jobs")}
		if n := o.value(t, "lock.acquire.duration", append(group, attribute.String("lock.outcome", "acquired"))...); n != 2 {
			t.Errorf("%d acquires", n)
		}
		if n := o.value(t, "lock.hold.duration", append(group, attribute.String("lock.outcome", "released"))...); n != 2 {
			t.Errorf("%d holds", n)
		}
		for _, name := range []string{"lock.held", "lock.waiting"} {
			if n := o.value(t, name, group...); n != 0 {
				t.Errorf("%s = %d", name, n)
			}
		}
		server := []attribute.KeyValue{
			attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", "EVALSHA"),
			attribute.String("db.stored_procedure.name", "fenced_acquire"), attribute.String("db.namespace", "0"),
			attribute.String("server.address", "127.0.0.1"), attribute.Int("server.port", 6379),
		}
		if n := o.value(t, "db.client.operation.duration", server...); n < 2 {
			t.Errorf("%d operations", n)
		}
		pool := attribute.String("db.client.connection.pool.name", "locks")
		if n := o.value(t, "db.client.connection.count", pool, attribute.String("db.client.connection.state", "used")); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// A call that stands by is counted apart.
func TestStandby(t *testing.T) {
	observe(t, lockotel.Config{}, func(t *testing.T, o *observed) {
		lease, err := o.Fenced("billing").Lock(t.Context(), lock.Standby())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := o.Fenced("billing").Do(t.Context(), func(context.Context) error { return nil }, lock.Standby()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		kind := attribute.String("lock.kind", "fenced")
		if waiting, standby := o.value(t, "lock.waiting", kind), o.value(t, "lock.standby", kind); waiting != 0 || standby != 1 {
			t.Errorf("lock.waiting = %d, lock.standby = %d, want 0 and 1", waiting, standby)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if n := o.value(t, "lock.standby", kind); n != 0 {
			t.Errorf("lock.standby = %d after the call", n)
		}
	})
}

// A loss ends the span of the hold, and the hold is counted once.
func TestLoss(t *testing.T) {
	observe(t, lockotel.Config{HideNames: true}, func(t *testing.T, o *observed) {
		lease, err := o.Reentrant("secret").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kind := attribute.String("lock.kind", "reentrant")
		if n := o.value(t, "lock.held", kind); n != 1 {
			t.Errorf("lock.held = %d", n)
		}
		time.Sleep(11 * time.Second)
		o.srv.Do("DEL", "secret")
		time.Sleep(11 * time.Second)
		if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatalf("Unlock() = %v", err)
		}
		hold := o.span(t, "lock.hold", nil)
		if hold.Status.Code != codes.Error || !has(attribute.String("lock.loss.reason", "forced"))(hold) {
			t.Errorf("%+v", hold)
		}
		for name, want := range map[string]int64{"lock.held": 0, "lock.losses": 1, "lock.renewals": 1} {
			label := []attribute.KeyValue{kind}
			switch name {
			case "lock.losses":
				label = append(label, attribute.String("lock.loss.reason", "forced"))
			case "lock.renewals":
				label = []attribute.KeyValue{attribute.String("lock.outcome", "gone")}
			}
			if n := o.value(t, name, label...); n != want {
				t.Errorf("%s = %d, want %d", name, n, want)
			}
		}
		if n := o.value(t, "lock.renewal.lateness"); n < 2 {
			t.Errorf("%d rounds of renewals", n)
		}
		for _, s := range o.spans.GetSpans() {
			for _, kv := range s.Attributes {
				if kv.Value.String() == "secret" {
					t.Errorf("%s has the name of the lock in %s", s.Name, kv.Key)
				}
			}
		}
	})
}

// The error of a span has a class, and its text does not name a lock whose name is hidden.
func TestErrorsOfSpans(t *testing.T) {
	observe(t, lockotel.Config{HideNames: true}, func(t *testing.T, o *observed) {
		o.srv.Do("RPUSH", "secret:list", "x")
		if _, err := o.Reentrant("secret:list").TryLock(t.Context()); !errors.Is(err, lock.ErrWrongType) {
			t.Fatalf("TryLock() = %v", err)
		}
		lease, err := o.Reentrant("secret:held").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := o.Reentrant("secret:held").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Lock() = %v", err)
		}
		o.srv.Do("DEL", "secret:held")
		if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatalf("Unlock() = %v", err)
		}
		for _, class := range []string{"WRONGTYPE", "cancelled"} {
			o.span(t, "lock.acquire", has(attribute.String("error.type", class)))
		}
		o.span(t, "lock.release", has(attribute.String("error.type", "not_held")))
		for _, s := range o.spans.GetSpans() {
			if strings.Contains(s.Status.Description, "secret") {
				t.Errorf("%s: %s", s.Name, s.Status.Description)
			}
		}
	})
}

// A release without an answer is pending until the server confirms it.
func TestPendingRelease(t *testing.T) {
	observe(t, lockotel.Config{}, func(t *testing.T, o *observed) {
		lease, err := o.Reentrant("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.srv.Latency(time.Minute)
		if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrUncertain) {
			t.Fatalf("Unlock() = %v", err)
		}
		kind := attribute.String("lock.kind", "reentrant")
		if n := o.value(t, "lock.releases.pending", kind); n != 1 {
			t.Errorf("lock.releases.pending = %d", n)
		}
		if command := o.spans.GetSpans(); !slices.ContainsFunc(command, func(s tracetest.SpanStub) bool {
			return s.Name == "EVALSHA reentrant_single" && has(attribute.String("error.type", "timeout"))(s)
		}) {
			t.Error("no span of a command that has timed out")
		}
		o.srv.Latency(0)
		time.Sleep(2 * time.Minute)
		if n := o.value(t, "lock.releases.pending", kind); n != 0 {
			t.Errorf("lock.releases.pending = %d after the answer", n)
		}
	})
}

// An exporter refuses a whole batch of spans for one text that is not UTF-8.
func TestNamesThatAreNotUTF8(t *testing.T) {
	cut := func(name string) string { return name[:4] }
	observe(t, lockotel.Config{Group: cut}, func(t *testing.T, o *observed) {
		lease, err := o.Reentrant("订单\xff").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		group := attribute.String("lock.group", "订\ufffd")
		for _, name := range []string{"lock.acquire", "lock.hold", "lock.release"} {
			span := o.span(t, name, nil)
			if !has(attribute.String("lock.name", "订单\ufffd"))(span) || !has(group)(span) {
				t.Errorf("%s has %v", name, span.Attributes)
			}
		}
		if n := o.value(t, "lock.acquire.duration", attribute.String("lock.kind", "reentrant"), group,
			attribute.String("lock.outcome", "acquired")); n != 1 {
			t.Errorf("%d acquires, want 1", n)
		}
	})
}
