//go:build !linux

package locktorture

import (
	"syscall"
	"time"
)

// Now reads the clock of the machine: the time since an origin shared by all processes. The clock is the wall clock, so a
// history across a change of the clock is worthless.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

func dieWithParent() *syscall.SysProcAttr { return nil }
