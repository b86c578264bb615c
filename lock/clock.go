package lock

import "time"

// instant is a point in time on every clock that a lease is measured by.
type instant struct {
	t    time.Time     // wall clock, and the monotonic clock of the runtime
	boot time.Duration // a clock that goes on while the machine sleeps; 0 where there is none
}

func (c *Client) now() instant { return instant{time.Now(), c.boot()} }

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
