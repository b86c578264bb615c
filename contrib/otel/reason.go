package lockotel

import (
	"errors"

	"github.com/lockwire/lockwire/lock"
)

var reasons = map[lock.Reason]string{
	lock.Expired:      "expired",
	lock.Taken:        "taken",
	lock.Forced:       "forced",
	lock.Unreachable:  "unreachable",
	lock.ClockJump:    "clock_jump",
	lock.ClientClosed: "client_closed",
	lock.PartLost:     "part_lost",
	lock.HeldTooLong:  "held_too_long",
}

// label returns a reason as a word.
func label(r lock.Reason) string {
	if word, ok := reasons[r]; ok {
		return word
	}
	return "unknown"
}

// wasLost reports whether the loss of the lease has been reported before its release.
func wasLost(e lock.ReleaseEnd) bool {
	return errors.Is(e.Err, lock.ErrNotHeld) || errors.Is(e.Held.Err(), lock.ErrLost)
}
