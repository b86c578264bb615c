//go:build !linux

package conn

import "syscall"

// control sets no option: PINGs alone detect a dead peer. TCP_USER_TIMEOUT is specific to Linux.
func (cfg *Config) control(string, string, syscall.RawConn) error { return nil }
