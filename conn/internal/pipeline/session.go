package pipeline

import (
	"net"
	"sync/atomic"

	"github.com/lockwire/lockwire/resp"
)

// Session is a connection for a Link. The dial completes the handshake with Conn and Reader, command by command, and
// fills in the rest. New takes the Session over.
type Session struct {
	Conn   net.Conn
	Reader *resp.Reader
	Addr   string       // address for errors and callbacks
	Proto  int          // RESP version, 2 or 3
	Pushes []resp.Value // received during the handshake, for the Owner
	Name   string       // name of the connection on the server
	Named  bool         // the server has answered the commands that introduce the client

	raw  net.Conn
	from *source
}

// NewSession returns a Session over nc. raw is the connection beneath TLS, and nc itself without TLS.
func NewSession(nc, raw net.Conn, limits resp.Limits) *Session {
	from := &source{nc: nc}
	return &Session{Conn: nc, Reader: resp.NewReader(from, limits), raw: raw, from: from}
}

// HangUp closes the connection at once. It closes the connection beneath TLS, because the close_notify alert may block
// for seconds if the peer has stopped reading, and no server needs the alert.
func (s *Session) HangUp() { _ = s.raw.Close() } // the error of closing carries no information

// socket returns the kernel socket of the connection, or nil under TLS or without one.
func (s *Session) socket() *socket {
	if s.raw != s.Conn || !isSocket(s.Conn) {
		return nil
	}
	return newSocket(s.Conn)
}

// isSocket reports whether nc is a kernel socket.
func isSocket(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// source is the reader behind a resp.Reader. It counts the bytes received.
type source struct {
	nc       net.Conn
	sock     *socket      // reads nc if not nil; set with the link
	wake     func()       // constant after New
	inside   bool         // a reply has begun; owned by the reader
	received atomic.Int64 // bytes received
	within   atomic.Int64 // part of received: bytes of replies after their begin
	awaited  atomic.Bool  // call wake after the next read
}

func (s *source) Read(b []byte) (int, error) {
	var n int
	var err error
	if s.sock != nil {
		n, err = s.sock.read(b, &s.received)
	} else {
		n, err = s.nc.Read(b)
		s.received.Add(int64(n))
	}
	if s.inside {
		s.within.Add(int64(n))
	}
	if s.awaited.Swap(false) {
		s.wake()
	}
	return n, err
}
