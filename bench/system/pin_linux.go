package system

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// CPUs returns the CPUs allowed to this process, nil if unknown.
func CPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var list []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// Start starts cmd on cpus only, or on any without cpus. A Go program then has as many Ps.
func Start(cmd *exec.Cmd, cpus ...int) error {
	// Servers die with this process, by whatever end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if len(cpus) == 0 {
		return cmd.Start()
	}
	// A child has the affinity of its starting thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, during unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for cpu := range slices.Values(cpus) {
		during.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &during); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &before)
	return cmd.Start()
}

// Pin moves a running process to cpus, with all threads.
func Pin(pid int, cpus ...int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
