package lock

import (
	"sync/atomic"
	"time"
)

type counters struct {
	waiting                                           atomic.Int64
	acquired, released, lost, renewals, renewalErrors atomic.Uint64
	unacknowledged                                    atomic.Uint64
	lateness, maxLateness                             atomic.Int64
}

// late records the delay d of a round of renewals. Only the watchdog calls late.
func (n *counters) late(d time.Duration) {
	n.lateness.Store(int64(d))
	n.maxLateness.Store(max(n.maxLateness.Load(), int64(d)))
}
