// Package lockprom measures Lockwire with Prometheus.
//
//	metrics := lockprom.New(lockprom.Config{Group: group})
//	prometheus.MustRegister(metrics)
//	pool, err := conn.Open(ctx, conn.Config{Addr: addr, Trace: metrics.Conn()})
//	locks, err := lock.New(pool, lock.Config{Trace: metrics.Lock()})
//	metrics.Pool("locks", pool.Stats)
//
// # Locks
//
//   - lockwire_lock_acquire_duration_seconds{kind,group,outcome}, a histogram; outcome: acquired, refused, cancelled, lost, error
//   - lockwire_lock_hold_duration_seconds{kind,group,outcome}, a histogram; outcome: released, lost, not_held, unconfirmed, error
//   - lockwire_locks_held{kind,group} and lockwire_lock_waiting{kind,group}: locks held, and calls of Lock under way
//   - lockwire_lock_standby{kind,group}: calls under way with lock.Standby, such as candidates of package leader
//   - lockwire_lock_losses_total{kind,group,reason}, 0 from the first acquire on
//   - lockwire_lock_handovers_total{kind,group}: locks passed on within the process
//   - lockwire_lock_releases_pending{kind,group}: unconfirmed releases that are repeated in the background
//   - lockwire_lock_grants_unacknowledged_total{kind,group}: grants without acknowledgement, for lack of replicas
//   - lockwire_lock_renewals_total{outcome}; outcome: renewed, failed, gone
//   - lockwire_lock_renewal_lateness_seconds, a histogram, and lockwire_lock_lease_seconds, to compare with
//
// A Multi counts as one lock of the kind multi, and each of its locks counts by its own kind too. A Redlock counts once.
//
// # Connections
//
//   - lockwire_command_duration_seconds{server,command,script,error}, a histogram
//   - lockwire_command_retries_total{server}
//   - lockwire_dial_duration_seconds{server,error} and lockwire_connection_wait_seconds{server,error}, histograms
//   - lockwire_connections_lost_total{server}
//   - lockwire_master_changes_total: changes of the master by sentinels, or of a cluster's slots
//   - lockwire_connections{pool,state}, lockwire_connection_requests_pending{pool}
//
// The events of a dozen pairs of Lock and Unlock are measured together, at the latest for a scrape. A pair needs no memory.
// OPERATIONS.md of the root module has the price.
//
// The name of a lock is no label. The label group is the result of Config.Group.
//
// Beside this file are dashboard.json, a dashboard for Grafana, and alerts.yml, rules for Prometheus.
package lockprom

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// Config configures [Metrics]. The zero Config is ready to use.
type Config struct {
	// Group returns the group of a lock by its name, for the label group: "order:8731" may be in the group "order".
	// There must be few groups, because each makes time series of its own. Bytes that are not UTF-8 are replaced. nil
	// leaves the label empty. Several goroutines may call Group at once.
	Group func(name string) string

	// LockBuckets are the boundaries of the histograms of locks, in seconds. nil reaches from 1 ms to an hour.
	LockBuckets []float64

	// CommandBuckets are the boundaries of the histograms of commands and connections, in seconds. nil reaches from
	// 0.1 ms to 10 s.
	CommandBuckets []float64
}

// Metrics is a prometheus.Collector of the metrics of any number of clients.
type Metrics struct {
	group func(name string) string

	commands, dials, waits, acquires, holds                         *prometheus.HistogramVec
	held, waiting, standby, pending                                 *prometheus.GaugeVec
	retries, lostConns, losses, handovers, unacknowledged, renewals *prometheus.CounterVec
	lateness                                                        prometheus.Histogram
	lease                                                           prometheus.Gauge
	masters                                                         prometheus.Counter
	connections, requests                                           *prometheus.Desc
	all                                                             []prometheus.Collector

	locks kept[lockKey, *lockSeries]
	calls kept[commandKey, prometheus.Observer]
	queue queue

	mu    sync.Mutex // guards pools
	pools map[string]func() conn.Stats
}

// New returns Metrics, to be registered by the caller.
func New(cfg Config) *Metrics {
	if cfg.Group == nil {
		cfg.Group = func(string) string { return "" }
	}
	if cfg.LockBuckets == nil {
		cfg.LockBuckets = []float64{0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 10, 15, 60, 300, 900, 3600}
	}
	if cfg.CommandBuckets == nil {
		cfg.CommandBuckets = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}
	}
	// The client library panics at a label that is not UTF-8.
	group := func(name string) string { return strings.ToValidUTF8(cfg.Group(name), "\ufffd") }
	m := &Metrics{group: group, pools: make(map[string]func() conn.Stats)}
	m.createLocks(cfg.LockBuckets)
	m.createConnections(cfg.CommandBuckets)
	return m
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Metrics) createLocks(buckets []float64) {
	const kind, group = "kind", "group"
	m.acquires = m.histogram("lockwire_lock_acquire_duration_seconds", "Duration of calls that want a lock.", buckets, kind, group, "outcome")
	m.holds = m.histogram("lockwire_lock_hold_duration_seconds", "Time from the grant of a lock to its end.", buckets, kind, group, "outcome")
	m.held = m.gauge("lockwire_locks_held", "Locks held by this process.", kind, group)
	m.waiting = m.gauge("lockwire_lock_waiting", "Calls of Lock under way.", kind, group)
	m.standby = m.gauge("lockwire_lock_standby", "Calls of Lock that wait to take over, for however long.", kind, group)
	m.pending = m.gauge("lockwire_lock_releases_pending", "Unconfirmed releases that are repeated in the background.", kind, group)
	m.losses = m.counter("lockwire_lock_losses_total", "Locks lost while held.", kind, group, "reason")
	m.handovers = m.counter("lockwire_lock_handovers_total", "Locks passed on within the process.", kind, group)
	m.unacknowledged = m.counter("lockwire_lock_grants_unacknowledged_total", "Grants without acknowledgement, for lack of replicas.", kind, group)
	m.renewals = m.counter("lockwire_lock_renewals_total", "Renewals of leases.", "outcome")
	m.lateness = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "lockwire_lock_renewal_lateness_seconds", Help: "Delay of rounds of renewals.", Buckets: buckets,
	})
	m.lease = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lockwire_lock_lease_seconds", Help: "Lease of locks under the watchdog, of the client that renewed last.",
	})
	m.all = append(m.all, m.lateness, m.lease)
}

func (m *Metrics) createConnections(buckets []float64) {
	const server, failure = "server", "error"
	m.commands = m.histogram("lockwire_command_duration_seconds", "Duration of calls.", buckets, server, "command", "script", failure)
	m.dials = m.histogram("lockwire_dial_duration_seconds", "Duration of dials.", buckets, server, failure)
	m.waits = m.histogram("lockwire_connection_wait_seconds", "Waits of calls for a connection.", buckets, server, failure)
	m.retries = m.counter("lockwire_command_retries_total", "Attempts after the first of a call.", server)
	m.lostConns = m.counter("lockwire_connections_lost_total", "Failed connections.", server)
	m.masters = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lockwire_master_changes_total", Help: "Changes of the master by sentinels, or of a cluster's slots.",
	})
	m.all = append(m.all, m.masters)
	m.connections = prometheus.NewDesc("lockwire_connections", "Open connections.", []string{"pool", "state"}, nil)
	m.requests = prometheus.NewDesc("lockwire_connection_requests_pending", "Calls that wait for an exclusive connection.", []string{"pool"}, nil)
}

// Pool adds the connections of a pool, whose Stats are stats, under a name; for a cluster stats returns Stats().Nodes.
// A nil stats removes the pool.
func (m *Metrics) Pool(name string, stats func() conn.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if stats == nil {
		delete(m.pools, name)
		return
	}
	m.pools[name] = stats
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
	to <- m.connections
	to <- m.requests
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.queue.flush(m.measure)
	for _, c := range m.all {
		c.Collect(to)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, stats := range m.pools {
		s := stats()
		to <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(s.Shared+s.Lent), name, "used")
		to <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(s.Idle), name, "idle")
		to <- prometheus.MustNewConstMetric(m.requests, prometheus.GaugeValue, float64(s.Waiting), name)
	}
}

// Conn returns the Trace for conn.Config.Trace, also of the nodes of a cluster.
func (m *Metrics) Conn() *conn.Trace {
	return &conn.Trace{
		CommandEnd: m.command,
		Wait:       m.wait,
		Retry:      m.retry,
		Dial:       m.dial,
		Lost:       func(l conn.LostInfo) { m.lostConns.WithLabelValues(l.Addr).Inc() },
		Switch:     func(conn.SwitchInfo) { m.masters.Inc() },
		Topology:   func(conn.TopologyInfo) { m.masters.Inc() },
	}
}

// Lock returns the Trace for lock.Config.Trace.
func (m *Metrics) Lock() *lock.Trace {
	return &lock.Trace{
		AcquireStart: m.acquireStart,
		AcquireEnd:   m.acquireEnd,
		ReleaseEnd:   m.releaseEnd,
		Lost:         m.lost,
		Renewal:      m.renewal,
		Background:   m.background,
	}
}
