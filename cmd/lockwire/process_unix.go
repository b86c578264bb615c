//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// passedSignals are the signals for a running program.
var passedSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// ends reports whether a signal ends the command while no program runs.
func ends(sig os.Signal) bool { return sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 }

func signalNumber(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

// process is a program and the process group led by the program.
type process struct {
	pid      int
	terminal *terminal
}

// start starts a program as the leader of a process group, in the foreground of the terminal if this process is there.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{terminal: foregroundTerminal()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	p.terminal.lend(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		p.terminal.close()
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// wait waits for the end of the program, and returns its exit code as a shell would. If the terminal stops the program,
// wait stops this process too, and continues the program only if mayRun.
// After a stop for using the terminal from the background, the program continues as soon as this process has the terminal.
func (p *process) wait(mayRun func() bool) int {
	defer p.terminal.close()
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return codeFailed // never: the program is a child of this process, which nobody else waits for
		case status.Signaled():
			return codeSignal + int(status.Signal())
		case status.Exited():
			return status.ExitStatus()
		case status.Stopped() && status.StopSignal() != syscall.SIGSTOP && p.terminal != nil:
			if status.StopSignal() == syscall.SIGTSTP || !p.terminal.ours() {
				p.terminal.suspend()
			}
			if mayRun() {
				p.terminal.lendAgain(p.pid)
				p.signal(syscall.SIGCONT)
			}
		}
	}
}

// signal sends a signal to the process group, if a process is left.
func (p *process) signal(sig os.Signal) { _ = syscall.Kill(-p.pid, sig.(syscall.Signal)) }

// terminate asks the process group to end. A stopped process has to be continued to notice.
func (p *process) terminate() {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)
}

func (p *process) kill() { p.signal(syscall.SIGKILL) }

// alive reports whether the process group has a process left.
func (p *process) alive() bool { return syscall.Kill(-p.pid, 0) == nil }
