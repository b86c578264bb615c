package sentinel

import (
	"context"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

// rateLimiter allows 15 events per second after an initial burst, and at most 20 in any second.
type rateLimiter struct {
	mu   sync.Mutex
	next time.Time // time of the next event without any burst
}

const (
	eventInterval = time.Second / 15
	eventBurst    = 4
)

// take reserves the next event and returns the wait before it.
func (p *rateLimiter) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-eventBurst * eventInterval); p.next.Before(earliest) {
		p.next = earliest
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(eventInterval)
	return max(wait, 0)
}

func (p *rateLimiter) wait(ctx context.Context) error {
	return netfail.Sleep(ctx, p.take(time.Now()))
}

// pause is the time between attempts, which grows with the failures in a row.
type pause struct {
	failed int
	until  time.Time // the earliest time of the next attempt
}

// extend counts a failure.
func (p *pause) extend() {
	p.until = time.Now().Add(netfail.Backoff(p.failed, minRoundPause, maxRoundPause))
	p.failed++
}
