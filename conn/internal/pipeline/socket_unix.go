//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package pipeline

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// socket reads from a kernel socket, and writes large texts to it. A read and its count are one step under mu, so at any
// time a received byte is either counted or visible to unread.
//
// RawConn takes functions. newSocket makes the functions of read and unread once, since a closure for each call would be
// allocated; arguments and results are fields.
type socket struct {
	// Constant after newSocket.
	rc     syscall.RawConn
	readFD func(fd uintptr) (done bool)
	peekFD func(fd uintptr)

	// Owned by the reader, for readFD.
	b     []byte // buffer to read into
	n     int
	count *atomic.Int64
	poll  poller

	mu      sync.Mutex // held by read and unread during their system calls; guards the following
	readErr error
	peekErr error
}

// newSocket returns nil if nc is no socket of the kernel, or the system gives no access to the socket.
func newSocket(nc net.Conn) *socket {
	if !isSocket(nc) {
		return nil
	}
	rc, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{rc: rc}
	s.readFD = func(fd uintptr) bool {
		s.readNow(int(fd))
		for s.readErr == syscall.EAGAIN && s.poll.again() {
			s.readNow(int(fd))
		}
		return s.readErr != syscall.EAGAIN
	}
	var one [1]byte
	s.peekFD = func(fd uintptr) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _, s.peekErr = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}
	return s
}

// readNow reads what has arrived, without waiting.
func (s *socket) readNow(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.readErr = syscall.Read(fd, s.b)
	for s.readErr == syscall.EINTR {
		s.n, s.readErr = syscall.Read(fd, s.b)
	}
	s.n = max(s.n, 0)
	s.count.Add(int64(s.n))
}

// read reads available bytes into b and adds their number to count. One goroutine at a time may call read.
func (s *socket) read(b []byte, count *atomic.Int64) (int, error) {
	s.b, s.count, s.poll = b, count, poller{}
	err := s.rc.Read(s.readFD)
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

// write writes the text of b. The system calls do not block, and write waits between them. One goroutine at a time may call
// write.
func (s *socket) write(l *Link, b *body) error {
	var writeErr error
	err := s.rc.Write(func(fd uintptr) (done bool) {
		writeErr = b.writeSome(l, func(p []byte) (n int, err error) {
			for n, err = syscall.Write(int(fd), p); err == syscall.EINTR; {
				n, err = syscall.Write(int(fd), p)
			}
			return n, err
		})
		return writeErr != syscall.EAGAIN
	})
	if err == nil && writeErr != nil {
		return &net.OpError{Op: "write", Net: "socket", Err: os.NewSyscallError("write", writeErr)}
	}
	return err
}

// unread reports whether the socket has unread bytes or its end was reached, and returns an error if the connection has
// failed. It does not block. One goroutine at a time may call unread.
func (s *socket) unread() (bool, error) {
	if s.rc.Control(s.peekFD) != nil {
		return false, nil // closed by this program
	}
	switch s.peekErr {
	case nil:
		return true, nil
	case syscall.EAGAIN, syscall.EINTR:
		return false, nil
	}
	return false, os.NewSyscallError("recvfrom", s.peekErr)
}
