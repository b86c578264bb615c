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

// start starts a program as the leader of a process group. The group is in the foreground of the terminal if this process is
// there and in no pipeline: another program of a pipeline may need the terminal.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{terminal: controllingTerminal()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if !inPipeline() {
		p.terminal.lend(cmd.SysProcAttr)
	}
	if err := cmd.Start(); err != nil {
		p.terminal.close(0)
		return nil, err
	}
	p.pid = cmd.Process.Pid
	p.terminal.passStops(func() { p.signal(syscall.SIGTSTP) })
	return p, nil
}

// inPipeline reports whether a pipe connects this process with another.
func inPipeline() bool {
	for _, file := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if info, err := file.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
			return true
		}
	}
	return false
}

// wait waits for the end of the program, and returns its exit code as a shell would. If the terminal stops the program,
// wait stops this process too, and continues the program only if mayRun.
func (p *process) wait(mayRun func() bool) int {
	defer p.terminal.close(p.pid)
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
			p.pause(status.StopSignal(), mayRun)
		}
	}
}

// pause continues the program after a stop by the terminal: with Ctrl-Z, as soon as this process continues; for using the
// terminal from the background, as soon as this process has the terminal, which the program then gets. A program that has
// the terminal stops by Ctrl-Z only, whatever the signal: another lockwire stops itself by SIGTTIN then.
func (p *process) pause(by syscall.Signal, mayRun func() bool) {
	lent := p.terminal.takeBack(p.pid)
	if lent || by == syscall.SIGTSTP || !p.terminal.ours() {
		p.terminal.suspend()
	}
	if !mayRun() {
		return
	}
	if lent || by != syscall.SIGTSTP {
		p.terminal.lendAgain(p.pid)
	}
	p.signal(syscall.SIGCONT)
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
