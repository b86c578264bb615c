package lockprom

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// maxKept limits the time series kept for reuse. Those beyond it are looked up each time.
const maxKept = 1024

// kept keeps time series by a key, because a lookup by labels costs more than a measurement. Readers need no lock.
type kept[K comparable, V any] struct {
	mu     sync.Mutex // held by who adds a value
	values atomic.Pointer[map[K]V]
}

// of returns the value for key, found by find if it is new.
func (s *kept[K, V]) of(key K, find func() V) V {
	if values := s.values.Load(); values != nil {
		if v, ok := (*values)[key]; ok {
			return v
		}
	}
	v := find()
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

// lockKey is a kind and a group.
type lockKey struct{ kind, group string }

// lockSeries are the time series of the locks of a kind and a group.
type lockSeries struct {
	held, waiting, standby, pending prometheus.Gauge
	handovers, unacknowledged       prometheus.Counter
	acquired, released              prometheus.Observer // of the common outcomes
}

// waits returns the gauge that counts a call of Lock.
func (s *lockSeries) waits(standby bool) prometheus.Gauge {
	if standby {
		return s.standby
	}
	return s.waiting
}

// commandKey is what tells the time series of calls apart.
type commandKey struct {
	server, name, script, failure string
	batch                         conn.Batch
}

// reasons are the reasons of losses.
var reasons = []lock.Reason{
	lock.Expired, lock.Taken, lock.Forced, lock.Unreachable, lock.ClockJump, lock.ClientClosed, lock.PartLost, lock.HeldTooLong, lock.Ending,
}

// of returns the time series of a lock. Its counters begin with 0, so that Prometheus sees the first loss as an increase.
func (m *Metrics) of(kind, name string) *lockSeries {
	key := lockKey{kind, m.group(name)}
	return m.locks.of(key, func() *lockSeries {
		for _, reason := range reasons {
			m.losses.WithLabelValues(kind, key.group, reason.Label())
		}
		return &lockSeries{
			held:           m.held.WithLabelValues(kind, key.group),
			waiting:        m.waiting.WithLabelValues(kind, key.group),
			standby:        m.standby.WithLabelValues(kind, key.group),
			pending:        m.pending.WithLabelValues(kind, key.group),
			handovers:      m.handovers.WithLabelValues(kind, key.group),
			unacknowledged: m.unacknowledged.WithLabelValues(kind, key.group),
			acquired:       m.acquires.WithLabelValues(kind, key.group, string(lock.OutcomeAcquired)),
			released:       m.holds.WithLabelValues(kind, key.group, string(lock.OutcomeReleased)),
		}
	})
}
