//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package pipeline

import (
	"net"
	"sync/atomic"
)

// socket is unused on this system, which offers no way to see unread data.
type socket struct{}

func newSocket(net.Conn) *socket { return nil }

func (*socket) read([]byte, *atomic.Int64) (int, error) { panic("pipeline: no socket") }

func (*socket) write(*Link, *body) error { panic("pipeline: no socket") }

func (*socket) unread() (bool, error) { return false, nil }
