package pipeline

import (
	"encoding/binary"
	"net"
	"sync/atomic"
)

const (
	// recordHeader is the size of the header of a TLS record: a type, a version, and the length of the rest.
	recordHeader = 5
	// recordBuffer has room for the largest record, so one system call reads a record with its header.
	recordBuffer = 17 << 10
)

// Beneath is the connection beneath TLS. Beneath gives TLS one record at a time. So a Link knows of received bytes
// not decrypted yet: such bytes cannot be the reply to a later command.
type Beneath struct {
	net.Conn
	sock *socket // reads Conn; nil if the system does not tell of unread data
	from *source // reads the decrypted bytes; set with the Session

	// Owned by the reader.
	buf    []byte // received, not given to TLS yet
	space  []byte // memory of buf
	left   int    // the part of the present record not given to TLS
	handed int64  // bytes given to TLS

	received  atomic.Int64 // bytes received
	decrypted atomic.Int64 // bytes of all decrypted records
}

// NewBeneath returns nc as the connection beneath TLS.
func NewBeneath(nc net.Conn) *Beneath {
	b := &Beneath{Conn: nc}
	if isSocket(nc) {
		b.sock = newSocket(nc)
	}
	if b.sock != nil {
		b.space = make([]byte, recordBuffer)
	}
	return b
}

// Read reads a part of one record. TLS asks for the next record when nothing is left of the present one.
func (b *Beneath) Read(p []byte) (int, error) {
	if b.sock == nil {
		return b.Conn.Read(p)
	}
	if b.left == 0 {
		b.settle()
		if err := b.begin(); err != nil {
			return 0, err
		}
	}
	n := min(len(p), b.left)
	if len(b.buf) > 0 {
		n = copy(p[:n], b.buf)
		b.buf = b.buf[n:]
	} else {
		var err error
		if n, err = b.sock.read(p[:n], &b.received); err != nil {
			return n, err
		}
	}
	b.left -= n
	b.handed += int64(n)
	return n, nil
}

// begin reads the header of the next record.
func (b *Beneath) begin() error {
	b.buf = b.space[:copy(b.space, b.buf)]
	for len(b.buf) < recordHeader {
		n, err := b.sock.read(b.space[len(b.buf):], &b.received)
		if err != nil {
			return err
		}
		b.buf = b.space[:len(b.buf)+n]
	}
	b.left = recordHeader + int(binary.BigEndian.Uint16(b.buf[recordHeader-2:]))
	return nil
}

// settle records the bytes given to TLS as decrypted.
func (b *Beneath) settle() {
	if b.decrypted.Swap(b.handed) != b.handed && b.from != nil {
		b.from.signal()
	}
}

// unread reports whether received bytes are not decrypted, and returns an error if the connection has failed. It
// does not block. One goroutine at a time may call unread.
func (b *Beneath) unread() (bool, error) {
	unread, err := b.sock.unread()
	return unread || b.received.Load() != b.decrypted.Load(), err
}
