//go:build unix

package locktorture

import (
	"os"
	"syscall"
)

func stop(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
