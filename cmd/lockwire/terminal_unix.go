//go:build linux || darwin || freebsd || netbsd

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// terminal is the controlling terminal of a process in the terminal's foreground. Only processes of the foreground's group
// may read from a terminal and get the signals of the keyboard (Ctrl-C, Ctrl-Z). The program gets the foreground.
type terminal struct{ file *os.File }

// foregroundTerminal returns the terminal, or nil if this process has none or is in the background.
func foregroundTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file}
	if !t.ours() {
		_ = file.Close()
		return nil
	}
	return t
}

// ours reports whether the group of this process is in the foreground.
func (t *terminal) ours() bool {
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return errno == 0 && int(group) == syscall.Getpgrp()
}

func (t *terminal) setForeground(group int) {
	g := int32(group)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g)))
}

// lend puts the group of a program into the foreground when the program starts.
func (t *terminal) lend(attr *syscall.SysProcAttr) {
	if t != nil {
		attr.Foreground, attr.Ctty = true, int(t.file.Fd())
	}
}

// takeBack makes the group of this process the foreground again.
func (t *terminal) takeBack() {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // the kernel would stop this process in the background
	t.setForeground(syscall.Getpgrp())
}

// suspend stops this process after the terminal has stopped the program, as the terminal would have stopped both in one
// group. suspend returns when the shell continues this process, or after a second if no shell has stopped it.
func (t *terminal) suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	t.takeBack()
	_ = syscall.Kill(0, syscall.SIGTSTP)
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-continued:
	case <-limit.C:
	}
}

// lendAgain makes the group the foreground if this process is in the foreground.
func (t *terminal) lendAgain(group int) {
	if t.ours() {
		t.setForeground(group)
	}
}

func (t *terminal) close() {
	if t != nil {
		t.takeBack()
		_ = t.file.Close()
	}
}
