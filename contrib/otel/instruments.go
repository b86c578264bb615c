package lockotel

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockwire/lockwire/conn"
)

// instruments are the metrics that events change.
type instruments struct {
	operations, creates, waits, acquires, holds, lateness            metric.Float64Histogram
	held, waiting, standby, pending                                  metric.Int64ObservableUpDownCounter
	timeouts, lostConns, losses, handovers, renewals, unacknowledged metric.Int64Counter
}

var (
	// commandBuckets are the boundaries that the conventions advise for db.client.operation.duration.
	commandBuckets = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
	// lockBuckets reach from a round trip to an hour, with a third of the default lease.
	lockBuckets = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 10, 15, 60, 300, 900, 3600)
)

// create makes the instruments, and returns the errors of those that cannot be made.
func (m *instruments) create(meter metric.Meter) error {
	var errs []error
	histogram := func(to *metric.Float64Histogram, buckets metric.HistogramOption, name, text string) {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), buckets)
		*to, errs = h, append(errs, err)
	}
	histogram(&m.operations, commandBuckets, "db.client.operation.duration", "Duration of database client operations.")
	histogram(&m.creates, commandBuckets, "db.client.connection.create_time", "The time it took to create a new connection.")
	histogram(&m.waits, commandBuckets, "db.client.connection.wait_time", "The time it took to obtain an open connection.")
	histogram(&m.acquires, lockBuckets, "lock.acquire.duration", "Duration of calls that want a lock, by their outcome.")
	histogram(&m.holds, lockBuckets, "lock.hold.duration", "Time from the grant of a lock to its release or loss.")
	histogram(&m.lateness, lockBuckets, "lock.renewal.lateness", "Delay of rounds of renewals.")
	gauge := func(to *metric.Int64ObservableUpDownCounter, name, unit, text string) {
		g, err := meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		*to, errs = g, append(errs, err)
	}
	gauge(&m.held, "lock.held", "{lock}", "Locks held by this process.")
	gauge(&m.waiting, "lock.waiting", "{call}", "Calls of Lock under way.")
	gauge(&m.standby, "lock.standby", "{call}", "Calls of Lock that wait to take over, for however long.")
	gauge(&m.pending, "lock.releases.pending", "{release}", "Unconfirmed releases that are repeated in the background.")
	counter := func(to *metric.Int64Counter, name, unit, text string) {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		*to, errs = c, append(errs, err)
	}
	counter(&m.timeouts, "db.client.connection.timeouts", "{timeout}", "Waits for a connection that have ended without one.")
	counter(&m.lostConns, "db.client.connection.losses", "{connection}", "Failed connections.")
	counter(&m.losses, "lock.losses", "{lock}", "Locks lost while held, by their reason.")
	counter(&m.handovers, "lock.handovers", "{lock}", "Locks passed on to the next caller of the process.")
	counter(&m.renewals, "lock.renewals", "{lease}", "Renewals of leases, by their outcome.")
	counter(&m.unacknowledged, "lock.grants.unacknowledged", "{lock}", "Grants without an acknowledgement, for lack of replicas.")
	return errors.Join(errs...)
}

// Pool observes the connections of a pool, whose Stats are stats, under a name; for a cluster stats returns Stats().Nodes. The
// observation ends with stop.
func (t *Telemetry) Pool(name string, stats func() conn.Stats) (stop func() error, err error) {
	count, err1 := t.meter.Int64ObservableUpDownCounter("db.client.connection.count", metric.WithUnit("{connection}"),
		metric.WithDescription("The number of connections that are currently in the state described by the attribute."))
	pending, err2 := t.meter.Int64ObservableUpDownCounter("db.client.connection.pending_requests", metric.WithUnit("{request}"),
		metric.WithDescription("The number of current pending requests for an open connection."))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	pool := attribute.String("db.client.connection.pool.name", name)
	state := func(state string) metric.ObserveOption {
		return metric.WithAttributes(pool, attribute.String("db.client.connection.state", state))
	}
	used, idle, named := state("used"), state("idle"), metric.WithAttributes(pool)
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := stats()
		o.ObserveInt64(count, int64(s.Shared+s.Lent), used)
		o.ObserveInt64(count, int64(s.Idle), idle)
		o.ObserveInt64(pending, int64(s.Waiting), named)
		return nil
	}, count, pending)
	if err != nil {
		return nil, err
	}
	return registration.Unregister, nil
}

// series are the values of the attributes of a time series.
type series [6]string

// options are the attributes of a time series, as the methods of instruments take them.
type options struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func newOptions(attributes []attribute.KeyValue) options {
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return options{[]metric.RecordOption{set}, []metric.AddOption{set}}
}

// maxKept limits the values kept for reuse. Those beyond it are made each time.
const maxKept = 1024

// kept keeps values by a key, because making one costs more than a measurement. Readers need no lock.
type kept[K comparable, V any] struct {
	mu     sync.Mutex // held by who adds a value
	values atomic.Pointer[map[K]V]
}

// of returns the value for key, made by make if it is new.
func (s *kept[K, V]) of(key K, make func() V) V {
	if values := s.values.Load(); values != nil {
		if v, ok := (*values)[key]; ok {
			return v
		}
	}
	v := make()
	s.mu.Lock()
	defer s.mu.Unlock()
	values := map[K]V{}
	if old := s.values.Load(); old != nil {
		if len(*old) >= maxKept {
			return v
		}
		maps.Copy(values, *old)
	}
	values[key] = v
	s.values.Store(&values)
	return v
}
