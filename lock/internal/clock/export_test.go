package clock

import "time"

// SinceBoot is sinceBoot.
func SinceBoot() time.Duration { return sinceBoot() }

// NewBootOf returns a boot clock that is told what the runtime's and the wall clock say, and asks read for all three.
func NewBootOf(read func() (running, wall, boot time.Duration)) func(running, wall time.Duration) time.Duration {
	k := Boot{read: read}
	return k.since
}
