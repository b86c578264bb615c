//go:build linux || darwin || freebsd || netbsd

package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// terminal is the controlling terminal of this process. Only processes of the group in the terminal's foreground may read
// from the terminal and get the signals of the keyboard (Ctrl-C, Ctrl-Z). A program is a group of its own, and gets the
// foreground on loan.
type terminal struct {
	file  *os.File
	stops chan os.Signal // SIGTSTP: Ctrl-Z while the group of this process is in the foreground
	wg    sync.WaitGroup
}

// controllingTerminal returns the terminal, or nil if this process has none.
func controllingTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, stops: make(chan os.Signal, 1)}
}

// foreground returns the group in the foreground, 0 if unknown.
func (t *terminal) foreground() int {
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	if errno != 0 {
		return 0
	}
	return int(group)
}

// ours reports whether the group of this process is in the foreground.
func (t *terminal) ours() bool { return t.foreground() == syscall.Getpgrp() }

func (t *terminal) setForeground(group int) {
	signal.Ignore(syscall.SIGTTOU) // the kernel would stop this process in the background
	g := int32(group)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g)))
}

// lend puts the group of a program into the foreground when the program starts, if this process is there.
func (t *terminal) lend(attr *syscall.SysProcAttr) {
	if t != nil && t.ours() {
		attr.Foreground, attr.Ctty = true, int(t.file.Fd())
	}
}

// lendAgain is lend for a running program.
func (t *terminal) lendAgain(group int) {
	if t.ours() {
		t.setForeground(group)
	}
}

// takeBack makes the group of this process the foreground again, and reports whether the given group of a program was
// there: not after the shell has taken the terminal.
func (t *terminal) takeBack(group int) bool {
	if t.foreground() != group {
		return false
	}
	t.setForeground(syscall.Getpgrp())
	return true
}

// passStops calls stop for each Ctrl-Z that reaches this process and not the program, until close. This process stops after
// the program: see suspend.
func (t *terminal) passStops(stop func()) {
	if t == nil {
		return
	}
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(t.stops, syscall.SIGTSTP)
	}
	t.wg.Go(func() {
		for range t.stops {
			stop()
		}
	})
}

// suspend stops the group of this process after the terminal has stopped the program, as the terminal would have stopped
// both in one group. suspend returns when the shell continues this process, or after a second if no shell has stopped it.
func (t *terminal) suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Ignore(syscall.SIGTSTP)
		defer signal.Notify(t.stops, syscall.SIGTSTP)
	}
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTTIN) // once caught, SIGTSTP does not stop a Go program any more
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-continued:
	case <-limit.C:
	}
}

// close takes the terminal back from the group of a program that has ended.
func (t *terminal) close(group int) {
	if t == nil {
		return
	}
	t.takeBack(group)
	signal.Stop(t.stops)
	close(t.stops)
	t.wg.Wait()
	_ = t.file.Close()
}
