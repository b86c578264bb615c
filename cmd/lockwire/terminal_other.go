//go:build unix && !linux && !darwin && !freebsd && !netbsd

package main

import "syscall"

// terminal is not lent to programs on this system: a program that reads from the terminal is stopped.
type terminal struct{}

func foregroundTerminal() *terminal         { return nil }
func (*terminal) lend(*syscall.SysProcAttr) {}
func (*terminal) ours() bool                { return false }
func (*terminal) suspend()                  {}
func (*terminal) lendAgain(int)             {}
func (*terminal) close()                    {}
