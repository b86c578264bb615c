package lock

import "sync/atomic"

// counters are the counters of Stats; the watchdog has its own.
type counters struct {
	waiting                                  atomic.Int64
	acquired, released, lost, unacknowledged atomic.Uint64
}
