//go:build !linux

package conn

import "syscall"

// control sets nothing: what it sets on Linux is not to be had everywhere, and pings notice a dead peer as well.
func (cfg *Config) control(string, string, syscall.RawConn) error { return nil }
