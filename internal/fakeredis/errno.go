//go:build !plan9

package fakeredis

import "syscall"

// The errors of a kernel's connections.
const (
	errReset   = syscall.ECONNRESET
	errPipe    = syscall.EPIPE
	errRefused = syscall.ECONNREFUSED
)
