//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package pipeline

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// busyYield is the duration of a yield from which the process counts as busy: other goroutines have computed meanwhile.
	// It is multiplied by the number of readers that yield at the time, because their reads take time too: otherwise the
	// readers of hundreds of connections would keep each other polling.
	busyYield = 20 * time.Microsecond

	// pollFor is the time for which a reader polls after a read that found nothing. The runtime of a busy process polls
	// after the same time.
	pollFor = 10 * time.Millisecond
)

// poller decides whether a reader that found nothing polls, or waits until the runtime wakes it. The runtime polls the
// network when a processor has nothing else to run. While goroutines compute on all processors, the runtime polls every
// 10 ms only: with four goroutines on two processors that compute for 200 µs at a time, a single caller made 100 GETs/s, and
// makes 2,000 since its reader polls.
type poller struct {
	since time.Time // the first read that found nothing; zero before
}

// yielding is the number of readers in again, of all connections.
var yielding atomic.Int64

// again lets other goroutines run, and reports whether to poll.
func (p *poller) again() bool {
	start := time.Now()
	if p.since.IsZero() {
		p.since = start
	}
	readers := yielding.Add(1)
	runtime.Gosched()
	yielding.Add(-1)
	now := time.Now()
	return now.Sub(start) >= time.Duration(readers)*busyYield && now.Sub(p.since) < pollFor
}
