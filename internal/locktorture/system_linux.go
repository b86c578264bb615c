package locktorture

import (
	"syscall"
	"time"
	"unsafe"
)

// monotonic is CLOCK_MONOTONIC, by which the Go runtime measures too: one and the same in all processes of the machine.
const monotonic = 1

// Now reads the clock of the machine: the time since an origin that all its processes share.
func Now() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ts.Nano())
}

// dieWithParent makes the kernel kill the child, also a stopped one, when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
