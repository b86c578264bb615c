//go:build !linux

package locktorture

import (
	"syscall"
	"time"
)

// Now reads the clock of the machine: the time since an origin that all its processes share. It is the wall clock, so a
// history that was made while that was set is worth nothing.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

func dieWithParent() *syscall.SysProcAttr { return nil }
