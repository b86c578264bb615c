// Package lockotel traces and measures Lockwire with OpenTelemetry.
//
//	telemetry, err := lockotel.New(lockotel.Config{Group: group})
//	...
//	pool, err := conn.Open(ctx, conn.Config{Addr: addr, Trace: telemetry.Conn()})
//	locks, err := lock.New(pool, lock.Config{Trace: telemetry.Lock()})
//	stop, err := telemetry.Pool("locks", pool.Stats)
//
// # Spans
//
//   - lock.acquire, from the call of Lock or TryLock to its return. The span of a waiter links to the span lock.hold of the
//     holder, if a lock of the same process.
//   - lock.hold, from the grant to Unlock or to the loss, under the span of the caller of Lock
//   - lock.release, of Unlock; under lock.hold if the caller has no span, and then only if lock.hold is recorded
//   - a client span for each call of the connection, by the conventions for database clients; a call of Lock or Unlock is
//     its parent
//
// # Metrics
//
//   - db.client.operation.duration, db.client.connection.count, .pending_requests, .create_time, .wait_time and .timeouts, by the
//     conventions for database clients; beside them db.client.connection.losses
//   - lock.acquire.duration, lock.hold.duration, lock.held, lock.waiting, lock.standby, lock.losses, lock.handovers, lock.renewals,
//     lock.renewal.lateness, lock.releases.pending, lock.grants.unacknowledged
//
// A Multi counts as one lock of the kind multi, and each of its locks counts by its own kind too. A Redlock counts once.
//
// The SDK gets the durations and hand-overs of up to 64 calls at once, at the latest when a reader collects. A call under a sampled
// span is measured at once, and may become an exemplar. OPERATIONS.md of the root module has the price of all this.
//
// The name of a lock is an attribute of spans, unless Config.HideNames is set, and never of metrics. The attribute
// lock.group of spans and metrics is the result of Config.Group.
package lockotel

import (
	"strings"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// scope is the name of the instrumentation.
const scope = "github.com/lockwire/lockwire/contrib/otel"

// Config configures a [Telemetry]. The zero Config is ready to use.
type Config struct {
	TracerProvider trace.TracerProvider // nil is the global one
	MeterProvider  metric.MeterProvider // nil is the global one

	// Group returns the group of a lock by its name, for the attribute lock.group: "order:8731" may be in the group
	// "order". There must be few groups, because each makes time series of its own. Bytes that are not UTF-8 are
	// replaced, as in names. nil leaves the attribute out. Several goroutines may call Group at once.
	Group func(name string) string

	// HideNames keeps names of locks out of spans.
	HideNames bool

	// NoCommands leaves out the spans of single commands. Metrics have them nevertheless.
	NoCommands bool
}

// Telemetry makes the traces of connections and locks. Any number of clients may share a Telemetry, if a lock's name
// means the same lock in all of them.
type Telemetry struct {
	cfg    Config
	tracer trace.Tracer
	meter  metric.Meter
	m      instruments

	series     kept[series, options]
	calls      kept[[3]string, options]   // of calls without an error, by name, script and server
	operations kept[[2]string, operation] // by name and script

	queue queue

	lockMu sync.RWMutex // guards locks
	locks  map[lockKey]*lockSeries

	mu    sync.Mutex // guards the following
	holds map[*lock.Lease]*hold
	names map[string]*hold // the last hold of a lock by its name
}

// New returns a Telemetry.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Group == nil {
		cfg.Group = func(string) string { return "" }
	}
	group := cfg.Group
	cfg.Group = func(name string) string { return valid(group(name)) }
	t := &Telemetry{
		cfg:    cfg,
		tracer: cfg.TracerProvider.Tracer(scope),
		meter:  cfg.MeterProvider.Meter(scope),
		holds:  make(map[*lock.Lease]*hold),
		names:  make(map[string]*hold),
		locks:  make(map[lockKey]*lockSeries),
	}
	if err := t.m.create(t.meter); err != nil {
		return nil, err
	}
	_, err := t.meter.RegisterCallback(t.observeLocks, t.m.held, t.m.waiting, t.m.standby, t.m.pending)
	return t, err
}

// valid returns text as UTF-8. An exporter refuses a whole batch for one text that is not.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// Conn returns the Trace for conn.Config.Trace, also of the nodes of a cluster.
func (t *Telemetry) Conn() *conn.Trace {
	return &conn.Trace{
		CommandStart: t.commandStart,
		CommandEnd:   t.commandEnd,
		Wait:         t.connectionWait,
		Retry:        t.retry,
		Dial:         t.dial,
		Lost:         t.connectionLost,
	}
}

// Lock returns the Trace for lock.Config.Trace.
func (t *Telemetry) Lock() *lock.Trace {
	return &lock.Trace{
		AcquireStart: t.acquireStart,
		AcquireEnd:   t.acquireEnd,
		ReleaseStart: t.releaseStart,
		ReleaseEnd:   t.releaseEnd,
		Lost:         t.lost,
		Renewal:      t.renewal,
		Background:   t.background,
	}
}
