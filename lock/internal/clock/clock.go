// Package clock measures leases by the runtime's clock, the wall clock, and a clock that includes the machine's sleep.
package clock

import (
	"sync/atomic"
	"time"
)

// Instant is a point in time on every clock that measures leases.
type Instant struct {
	Time time.Time     // wall clock, and the monotonic clock of the runtime
	Boot time.Duration // a clock that includes sleep; 0 if not available
}

// Boot derives the clock that includes sleep from the runtime's clock, since a call to the kernel takes ten
// times as long. The difference between the two is the time asleep. Sleep also moves the wall clock against the
// runtime's clock: after such a move, or after a change of the wall clock, Boot asks the kernel.
type Boot struct {
	// read returns the three clocks at about the same time: the runtime's clock and the wall clock, both since base,
	// and the boot clock, or 0 if not available.
	read func() (running, wall, boot time.Duration)
	base time.Time // constant; the origin of the first two clocks
	mark atomic.Pointer[bootMark]
}

// bootMark is the lead of the wall clock and the boot clock over the runtime's clock at the last call to the kernel.
type bootMark struct{ wall, boot time.Duration }

// bootTolerance is the largest unnoticed move of the wall clock: a sleep of this length does no harm to a lease.
// Reading two clocks in a row takes less time, or does no harm either.
const bootTolerance = 500 * time.Microsecond

// NewBoot returns the clock of this machine. Any number of goroutines may use it at once.
func NewBoot() *Boot {
	k := &Boot{base: time.Now()}
	k.read = k.readAll
	return k
}

// At returns the boot clock at the recent time t, or 0 if not available.
func (k *Boot) At(t time.Time) time.Duration { return k.since(k.split(t)) }

func (k *Boot) split(t time.Time) (running, wall time.Duration) {
	return t.Sub(k.base), t.Round(0).Sub(k.base.Round(0))
}

func (k *Boot) since(running, wall time.Duration) time.Duration {
	m := k.mark.Load()
	if m == nil || (wall-running-m.wall).Abs() > bootTolerance {
		running, wall, boot := k.read()
		if boot == 0 {
			return 0
		}
		m = &bootMark{wall - running, boot - running}
		k.mark.Store(m)
	}
	return running + m.boot
}

// readAll repeats a reading that took too long for the clocks to match.
func (k *Boot) readAll() (running, wall, boot time.Duration) {
	for range 10 {
		t := time.Now()
		boot = sinceBoot()
		running, wall = k.split(t)
		if time.Since(t) < bootTolerance/10 {
			break
		}
	}
	return running, wall, boot
}

// Elapsed returns the time from i to later by the clock with the largest difference: a lease is over as soon as any
// clock says so.
func (i Instant) Elapsed(later Instant) time.Duration {
	return max(later.Time.Sub(i.Time), i.Asleep(later))
}

// AtLeast returns the time from i to later by the clock with the smallest difference.
func (i Instant) AtLeast(later Instant) time.Duration {
	return min(later.Time.Sub(i.Time), i.Asleep(later))
}

// Asleep returns the time from i to later by the clock that includes sleep.
func (i Instant) Asleep(later Instant) time.Duration {
	if i.Boot == 0 || later.Boot == 0 {
		return later.Time.Round(0).Sub(i.Time.Round(0))
	}
	return later.Boot - i.Boot
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
