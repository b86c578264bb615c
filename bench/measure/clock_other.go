//go:build !linux

package measure

import "time"

// Now is in ns. It is the wall clock: where that is set during a measurement, times between processes are wrong.
func Now() int64 { return time.Now().UnixNano() }
