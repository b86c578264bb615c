package locks

import (
	"context"
	"time"
)

// untilTomorrow has a deadline without a timer.
type untilTomorrow struct{ context.Context }

var tomorrow = time.Now().Add(24 * time.Hour)

func (untilTomorrow) Deadline() (time.Time, bool) { return tomorrow, true }
