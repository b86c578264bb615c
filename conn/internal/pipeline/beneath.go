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

// Beneath is the connection beneath TLS. Beneath passes TLS one record at a time and counts the bytes. So a Link knows
// whether received bytes are not decrypted yet: they cannot be the reply to a later command.
type Beneath struct {
	net.Conn
	sock *socket // reads Conn; nil if the system does not report unread data
	from *source // reads the decrypted bytes; set with the Session

	// Owned by the reader.
	buf        []byte // received, not passed to TLS yet
	space      []byte // memory of buf
	recordLeft int    // bytes of the present record not passed to TLS yet
	handed     int64  // bytes passed to TLS

	received  atomic.Int64 // bytes received
	decrypted atomic.Int64 // bytes of all decrypted records
}

// NewBeneath returns nc as the connection beneath TLS.
func NewBeneath(nc net.Conn) *Beneath {
	b := &Beneath{Conn: nc, sock: newSocket(nc)}
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
	if b.recordLeft == 0 {
		b.noteDecrypted()
		if err := b.readHeader(); err != nil {
			return 0, err
		}
	}
	n := min(len(p), b.recordLeft)
	if len(b.buf) > 0 {
		n = copy(p[:n], b.buf)
		b.buf = b.buf[n:]
	} else {
		var err error
		if n, err = b.sock.read(p[:n], &b.received); err != nil {
			return n, err
		}
	}
	b.recordLeft -= n
	b.handed += int64(n)
	return n, nil
}

func (b *Beneath) readHeader() error {
	b.buf = b.space[:copy(b.space, b.buf)]
	for len(b.buf) < recordHeader {
		n, err := b.sock.read(b.space[len(b.buf):], &b.received)
		if err != nil {
			return err
		}
		b.buf = b.space[:len(b.buf)+n]
	}
	b.recordLeft = recordHeader + int(binary.BigEndian.Uint16(b.buf[recordHeader-2:]))
	return nil
}

// noteDecrypted records that TLS has decrypted all bytes passed to it.
func (b *Beneath) noteDecrypted() {
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
