package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// process is a child process with a goroutine waiting for its end.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed at the end of the process
}

// startProcess starts cmd, and a goroutine that waits for the end of cmd.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// To the kernel, the parent whose death the child shares is this thread: the thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // the result is in cmd.ProcessState
			close(p.done)
		}
	}()
	return p, <-started
}

// end sends a signal to end the process and waits for the end; a disobedient process is killed.
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
