//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package conn

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// socket is a socket of the kernel. What is read from it is counted at the same moment, so that at any time what has come either
// has been counted or is seen by peek.
type socket struct {
	// Constant after newSocket.
	rc   syscall.RawConn
	take func(fd uintptr) (done bool)
	look func(fd uintptr)

	b     []byte // where to read to; owned by the reader, as is n
	n     int
	count *atomic.Int64

	mu      sync.Mutex // held while something is read and counted, and while peek looks; guards the following
	readErr error
	peekErr error
}

// newSocket returns nil if nc is no socket, or has TLS on top, which reads what is for nobody else.
func newSocket(nc net.Conn) *socket {
	if !isSocket(nc) || beneath(nc) != nc {
		return nil
	}
	rc, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{rc: rc}
	s.take = func(fd uintptr) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n, s.readErr = syscall.Read(int(fd), s.b)
		for s.readErr == syscall.EINTR {
			s.n, s.readErr = syscall.Read(int(fd), s.b)
		}
		s.n = max(s.n, 0)
		s.count.Add(int64(s.n))
		return s.readErr != syscall.EAGAIN
	}
	var one [1]byte
	s.look = func(fd uintptr) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _, s.peekErr = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}
	return s
}

// read reads what there is, adding its length to count. One goroutine at a time may call it.
func (s *socket) read(b []byte, count *atomic.Int64) (int, error) {
	s.b, s.count = b, count
	err := s.rc.Read(s.take)
	s.b = nil
	switch {
	case err != nil:
		return 0, err
	case s.readErr != nil:
		return 0, &net.OpError{Op: "read", Net: "socket", Err: os.NewSyscallError("read", s.readErr)}
	case s.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// peek reports whether there is something to read, be it the end, or that the connection has failed. It does not block. One
// goroutine at a time may call it.
func (s *socket) peek() (bool, error) {
	if s.rc.Control(s.look) != nil {
		return false, nil // it is closed, and those who have done it know why
	}
	switch s.peekErr {
	case nil:
		return true, nil
	case syscall.EAGAIN, syscall.EINTR:
		return false, nil
	}
	return false, os.NewSyscallError("recvfrom", s.peekErr)
}
