//go:build unix && !linux && !darwin && !freebsd && !netbsd

package main

import "syscall"

// terminal: this system stops a program for reading from the terminal, because the terminal is not lent to programs.
type terminal struct{}

func foregroundTerminal() *terminal         { return nil }
func (*terminal) lend(*syscall.SysProcAttr) {}
func (*terminal) ours() bool                { return false }
func (*terminal) suspend()                  {}
func (*terminal) lendAgain(int)             {}
func (*terminal) close()                    {}
