//go:build !linux

package system

import "os/exec"

// CPUs returns the CPUs allowed to this process, nil if unknown.
func CPUs() []int { return nil }

// Start starts cmd; this system cannot choose its CPUs.
func Start(cmd *exec.Cmd, _ ...int) error { return cmd.Start() }

// Pin does nothing: this system cannot choose CPUs.
func Pin(int, ...int) error { return nil }
