package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME, which includes suspended time, unlike the runtime's monotonic clock.
const clockBoottime = 7

// sinceBoot reads the boot clock. It returns 0 if the kernel refuses, and callers use the wall clock instead.
func sinceBoot() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
