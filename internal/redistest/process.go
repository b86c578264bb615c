package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// process is a child process that is waited for.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess starts cmd and, in a goroutine that ends with it, waits for it.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// To the kernel, the parent whose death the child shares is this thread: it must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // what it returns is in cmd.ProcessState
			close(p.done)
		}
	}()
	return p, <-started
}

// end sends a signal that is to end the process and waits until it has; one that does not obey is killed.
func (p *process) end(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return nil
	} else if err != nil {
		return err
	}
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return errors.Join(err, fmt.Errorf("the server did not end within %v of %v", Patience, sig))
}
