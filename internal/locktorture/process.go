package locktorture

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
)

// Process is a child process that logs events. A single goroutine at a time may call its methods.
type Process struct {
	ID int

	history *History
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  bytes.Buffer  // owned by cmd until done
	done    chan struct{} // closed when the process has ended and its whole log is in the history
	err     error         // of the end, once done
}

// Start runs this program again, with env added to its environment, and reads the events from its standard output into h. The
// end of its standard input tells the child to end. Kill the process or Wait for its end.
func Start(h *History, id int, env ...string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{ID: id, history: h, cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = dieWithParent()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go p.run(stdout, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("locktorture: %w", err)
	}
	return p, nil
}

// run starts the process and reads its log until the end.
func (p *Process) run(stdout io.Reader, started chan<- error) {
	// To the kernel, the parent whose death the child shares is this thread: the thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var bad []byte
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		e, err := Parse(lines.Bytes())
		if err != nil {
			bad = append(append(bad, lines.Bytes()...), '\n')
			continue
		}
		p.history.Add(e)
	}
	err = errors.Join(lines.Err(), p.cmd.Wait())
	if err != nil || len(bad) > 0 {
		p.err = fmt.Errorf("locktorture: process %d: %w\n%s%s", p.ID, err, bad, p.stderr.Bytes())
	}
}

// Send writes a line to the standard input of the process.
func (p *Process) Send(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return err
}

// Pause stops the process by SIGSTOP.
func (p *Process) Pause() error { return stop(p.cmd.Process) }

// Continue ends a Pause.
func (p *Process) Continue() error { return resume(p.cmd.Process) }

// Kill ends a running or stopped process by SIGKILL, and returns when its whole log is in the history. A process that had ended
// in order counts as no death: nothing may be lost.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // an error means that the process has ended
	<-p.done
	if p.err != nil {
		p.history.Died(p.ID, Now())
	}
}

// Finish tells the process to end, by the end of its standard input.
func (p *Process) Finish() { p.stdin.Close() }

// Wait waits for the end of the process for as long as ctx allows, and then kills the process. An error says how the process
// ended, with its standard error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("locktorture: process %d did not end: %w\n%s", p.ID, context.Cause(ctx), p.stderr.Bytes())
	}
}
