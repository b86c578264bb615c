//go:build unix && !linux

package redistest

import "syscall"

// dieWithParent has nothing to offer here: only a test process that ends by Main or by an interrupt takes its servers along.
func dieWithParent() *syscall.SysProcAttr { return nil }

func (p *process) pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
