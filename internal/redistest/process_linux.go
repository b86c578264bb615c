package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

// dieWithParent makes the kernel kill the child at the end of the starting thread, for whatever reason.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// pause stops the process, and waits until the process has stopped.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		// The state is the field behind the program's name, which is in parentheses.
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && bytes.HasPrefix(stat[i:], []byte(") T")) {
			return nil
		}
		select {
		case <-again.C:
		case <-limit.C:
			return fmt.Errorf("the server did not stop within %v of SIGSTOP", Patience)
		}
	}
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
