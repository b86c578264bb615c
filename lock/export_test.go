package lock

import (
	"time"

	"github.com/lockwire/lockwire/lock/internal/machine"
)

// What the tests of package lock_test need from inside.

// Deaf keeps the client from hearing of losses and of locks that are freed by force: it learns both from the next renewal. It is
// for before the first lock.
func (c *Client) Deaf() {
	c.stopLossReports()
	c.watchdog = renewals{c}.watchdog(nil)
}

// OnlyWoken makes the client's waiters look when they are woken and at no other time, while there is a subscription.
func (c *Client) OnlyWoken() {
	c.pace.Slack, c.pace.Ceiling = 1000*time.Hour, 1000*time.Hour
}

// Idle reports whether nothing is held or waited for and nothing is left to clean up.
func (c *Client) Idle() bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return len(c.table.entries)+len(c.table.parked) == 0 && c.gates.Free() && c.cleanup.Idle() && c.watchdog.Idle()
}

// Records returns the number of locks that the client keeps a record of for o.
func (o Owner) Records() int {
	o.state.mu.Lock()
	defer o.state.mu.Unlock()
	return len(o.state.locks)
}

// NewUUID is newUUID.
func NewUUID() string { return newUUID() }

// CheckName is checkName.
func CheckName(name string) error { return checkName(name) }

// Machine is the machine that a client runs on, whose clocks a test turns.
type Machine struct{ machine.Machine }

// Run makes c run on m. c must be new.
func (m *Machine) Run(c *Client) { c.boot = m.Clock() }

// Pauses are the first n pauses of b.
func Pauses(b Backoff, n int) []time.Duration {
	b, _ = b.withDefaults()
	pauses := make([]time.Duration, n)
	for i := range pauses {
		if i == 0 {
			pauses[i] = b.pause(0, 0)
		} else {
			pauses[i] = b.pause(i, pauses[i-1])
		}
	}
	return pauses
}
