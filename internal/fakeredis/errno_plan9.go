package fakeredis

import "syscall"

// The errors of a kernel's connections: Plan 9 has texts in place of numbers.
const (
	errReset   = syscall.ErrorString("connection reset")
	errPipe    = syscall.ErrorString("write on a closed connection")
	errRefused = syscall.ErrorString("connection refused")
)
