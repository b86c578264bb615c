package leader

import (
	"fmt"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// Config configures [Run]. The zero Config is ready to use.
type Config struct {
	// Address is published while this process leads, for [Observe]: where the leader serves, or another text.
	Address string

	// StopBefore is the time between the end of the function's context and the end of the lease, if the lease is not
	// renewed: the time for stopping. 0 is a quarter of the lease, below 0 is no time. The maximum is half the lease. A
	// shorter lock.Config.AtMost counts in place of the lease, and ends each term with ErrExpiring. StopBefore must be
	// shorter than lock.Config.Lease less RenewEvery, and so must the quarter of the lease: otherwise the context ends
	// before the first renewal, in each term.
	StopBefore time.Duration

	// Health, if not nil, follows this Run. Each Run needs a separate Health.
	Health *Health

	// Logger reports the loss of the leadership, and failed campaigns. nil is silent.
	Logger conn.Logger
}

// stopBefore returns the time for stopping, of a lease that is certain for the time valid from now, and that a call of so long has
// acquired: a new lease is certain for both together at most.
func (c Config) stopBefore(valid, call time.Duration) (time.Duration, error) {
	switch d := c.StopBefore; {
	case d == 0:
		return valid / 4, nil
	case d < 0:
		return 0, nil
	case d > (valid+call)/2:
		return 0, fmt.Errorf("leader: %w: StopBefore of %v is more than half the lease", lock.ErrInvalid, d)
	case d > valid/2:
		return 0, fmt.Errorf("leader: the grant came late: %v of the lease are left, with a StopBefore of %v", valid, d)
	default:
		return d, nil
	}
}
