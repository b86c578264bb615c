//go:build unix && !linux && !darwin && !freebsd && !netbsd

package main

import "syscall"

// terminal: this system stops a program for reading from the terminal, because the terminal is not lent to programs.
type terminal struct{}

func controllingTerminal() *terminal        { return nil }
func (*terminal) lend(*syscall.SysProcAttr) {}
func (*terminal) lendAgain(int)             {}
func (*terminal) takeBack(int) bool         { return false }
func (*terminal) ours() bool                { return false }
func (*terminal) passStops(func())          {}
func (*terminal) suspend()                  {}
func (*terminal) close(int)                 {}
