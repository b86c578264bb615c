// Package machine is the clock of a lock.Client's machine, for tests.
package machine

import (
	"sync/atomic"
	"time"
)

// Machine is a machine that a test can suspend. The zero Machine has never slept.
type Machine struct{ slept atomic.Int64 }

// Sleep suspends the machine for d, unnoticed by time.Now.
func (m *Machine) Sleep(d time.Duration) { m.slept.Add(int64(d)) }

// Clock returns a clock that includes the sleep.
func (m *Machine) Clock() func(time.Time) time.Duration {
	start := time.Now()
	return func(at time.Time) time.Duration { return time.Hour + at.Sub(start) + time.Duration(m.slept.Load()) }
}
