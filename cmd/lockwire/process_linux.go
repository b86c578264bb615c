package main

import "syscall"

// dieWithParent makes the kernel kill the program when this process dies. The thread that starts the program must live as
// long as the program.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
