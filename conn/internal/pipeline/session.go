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

	hangsUp atomic.Bool   // HangUp has been called
	closed  chan struct{} // closed by the first HangUp, behind the connection
	raw     net.Conn      // Conn, or the connection beneath TLS
	from    *source       // below Reader
	sock    *socket       // Conn without TLS; nil if the system does not report unread data

	// unread reports whether bytes have arrived and are not counted as received by the source. It is nil if the system does not
	// report unread data.
	unread func() (bool, error)
}

// NewSession returns a Session over nc. raw is the result of NewBeneath for a TLS connection, and nc itself without TLS.
func NewSession(nc, raw net.Conn, limits resp.Limits) *Session {
	from := &source{nc: nc}
	s := &Session{Conn: nc, Reader: resp.NewReader(from, limits), raw: raw, from: from, closed: make(chan struct{})}
	if b, ok := raw.(*Beneath); ok {
		s.raw, s.unread, from.below, b.from = b.Conn, b.unread, b, from
	} else if s.sock = newSocket(nc); s.sock != nil {
		s.unread = s.sock.unread
	}
	return s
}

// HangUp closes the connection at once, unless another goroutine is at it. It closes the connection beneath TLS, because
// the close_notify alert may block for seconds if the peer has stopped reading, and no server needs the alert.
func (s *Session) HangUp() {
	if !s.hangsUp.Swap(true) {
		_ = s.raw.Close() // the error of closing carries no information
		close(s.closed)
	}
}

func isSocket(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// source is the reader behind a resp.Reader. It counts the bytes received.
type source struct {
	nc         net.Conn
	sock       *socket      // reads nc if not nil; set by New
	below      *Beneath     // of a TLS connection, or nil
	wake       func()       // wakes the writers that wait for progress; constant after New
	inReply    bool         // a reply has begun; owned by the reader
	received   atomic.Int64 // bytes received
	replyBytes atomic.Int64 // part of received: bytes of replies, after the first read of each
	wakeNext   atomic.Bool  // call wake after the next progress
}

func (s *source) Read(b []byte) (int, error) {
	var n int
	var err error
	if s.sock != nil {
		n, err = s.sock.read(b, &s.received)
	} else {
		n, err = s.nc.Read(b)
		s.received.Add(int64(n))
		if s.below != nil && 0 < n && n < len(b) { // a short read: TLS has decrypted and returned the whole record
			s.below.noteDecrypted()
		}
	}
	if s.inReply {
		s.replyBytes.Add(int64(n))
	}
	s.signal()
	return n, err
}

// signal calls wake if a writer waits for progress.
func (s *source) signal() {
	if s.wakeNext.Swap(false) {
		s.wake()
	}
}

// progress returns a number that grows whenever the reader has read or decrypted bytes.
func (s *source) progress() int64 {
	read := s.received.Load()
	if s.below != nil {
		read += s.below.decrypted.Load()
	}
	return read
}
