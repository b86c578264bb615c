package lock

import (
	"sync/atomic"
	"time"
)

// instant is a point in time on every clock that measures leases.
type instant struct {
	t    time.Time     // wall clock, and the monotonic clock of the runtime
	boot time.Duration // a clock that includes sleep; 0 if not available
}

func (c *Client) now() instant {
	t := time.Now()
	return instant{t, c.boot(t)}
}

// bootClock derives the clock that includes sleep from the runtime's clock, since a call to the kernel takes ten
// times as long. The difference between the two is the time asleep. Sleep also moves the wall clock against the
// runtime's clock: after such a move, or after a change of the wall clock, bootClock asks the kernel.
type bootClock struct {
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

func newBootClock() *bootClock {
	k := &bootClock{base: time.Now()}
	k.read = k.readAll
	return k
}

// at returns the boot clock at the recent time t, or 0 if not available.
func (k *bootClock) at(t time.Time) time.Duration { return k.since(k.split(t)) }

func (k *bootClock) split(t time.Time) (running, wall time.Duration) {
	return t.Sub(k.base), t.Round(0).Sub(k.base.Round(0))
}

func (k *bootClock) since(running, wall time.Duration) time.Duration {
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
func (k *bootClock) readAll() (running, wall, boot time.Duration) {
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

// elapsed returns the time from i to later by the clock with the largest difference: a lease is over as soon as any
// clock says so.
func (i instant) elapsed(later instant) time.Duration {
	return max(later.t.Sub(i.t), i.asleep(later))
}

// atLeast returns the time from i to later by the clock with the smallest difference.
func (i instant) atLeast(later instant) time.Duration {
	return min(later.t.Sub(i.t), i.asleep(later))
}

// asleep returns the time from i to later by the clock that includes sleep.
func (i instant) asleep(later instant) time.Duration {
	if i.boot == 0 || later.boot == 0 {
		return later.t.Round(0).Sub(i.t.Round(0))
	}
	return later.boot - i.boot
}
