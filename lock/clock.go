package lock

import (
	"sync/atomic"
	"time"
)

// instant is a point in time on every clock that a lease is measured by.
type instant struct {
	t    time.Time     // wall clock, and the monotonic clock of the runtime
	boot time.Duration // a clock that goes on while the machine sleeps; 0 where there is none
}

func (c *Client) now() instant {
	t := time.Now()
	return instant{t, c.boot(t)}
}

// bootClock tells the clock that goes on while the machine sleeps by the runtime's, as asking the kernel takes ten times as
// long. The two are apart by how long the machine has slept. Whenever it sleeps, the wall clock moves against the runtime's
// too: then, and when somebody sets the wall clock, the kernel is asked.
type bootClock struct {
	// read returns what all three clocks say at about the same time: the runtime's, the wall clock, both since anything, and the
	// boot clock, or 0 if there is none.
	read func() (running, wall, boot time.Duration)
	base time.Time // constant; what the former two are counted from
	mark atomic.Pointer[bootMark]
}

// bootMark is by how much the wall clock and the boot clock were ahead of the runtime's when the kernel was asked.
type bootMark struct{ wall, boot time.Duration }

// bootTolerance is by how much the wall clock may move unnoticed: a sleep of that length does no harm to a lease. Reading
// two clocks one after the other takes less, or does no harm either.
const bootTolerance = 500 * time.Microsecond

func newBootClock() *bootClock {
	k := &bootClock{base: time.Now()}
	k.read = k.readAll
	return k
}

// at returns what the boot clock said at t, a moment ago, or 0 if there is none.
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

// readAll reads the clocks again if that took too long for them to belong together.
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

// elapsed is the time from i to later by the clock that says most: a lease is over as soon as one of them says so.
func (i instant) elapsed(later instant) time.Duration {
	return max(later.t.Sub(i.t), i.asleep(later))
}

// atLeast is the time from i to later by the clock that says least.
func (i instant) atLeast(later instant) time.Duration {
	return min(later.t.Sub(i.t), i.asleep(later))
}

// asleep is the time from i to later by the clock that counts sleep.
func (i instant) asleep(later instant) time.Duration {
	if i.boot == 0 || later.boot == 0 {
		return later.t.Round(0).Sub(i.t.Round(0))
	}
	return later.boot - i.boot
}
