//go:build !unix

package main

import (
	"os"
	"os/exec"
)

var passedSignals = []os.Signal{os.Interrupt}

func ends(os.Signal) bool { return true }

func signalNumber(os.Signal) int { return 2 }

// process is a program. This system has no process groups, and the only signal to end a program kills the program.
type process struct{ cmd *exec.Cmd }

func start(cmd *exec.Cmd) (*process, error) { return &process{cmd}, cmd.Start() }

func (p *process) wait(func() bool) int {
	_ = p.cmd.Wait() // the state has the result
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

func (p *process) terminate() { p.kill() }

func (p *process) kill() { _ = p.cmd.Process.Kill() }

func (p *process) alive() bool { return false }
