package pipeline

import (
	"bufio"
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
	sock *socket // reads Conn
	from *source // reads the decrypted bytes; set with the Session

	// Owned by the reader.
	buf        *bufio.Reader // of sock
	recordLeft int           // bytes of the present record not passed to TLS yet
	handed     int64         // bytes passed to TLS

	received  atomic.Int64 // bytes received
	decrypted atomic.Int64 // bytes of all decrypted records
}

// NewBeneath returns nc as the connection beneath TLS: a *Beneath, or nc itself if the system does not report unread data.
func NewBeneath(nc net.Conn) net.Conn {
	sock := newSocket(nc)
	if sock == nil {
		return nc
	}
	b := &Beneath{Conn: nc, sock: sock}
	b.buf = bufio.NewReaderSize(countingReader{b.sock, &b.received}, recordBuffer)
	return b
}

// Read reads a part of one record. TLS asks for the next record when nothing is left of the present one.
func (b *Beneath) Read(p []byte) (int, error) {
	if b.recordLeft == 0 {
		b.noteDecrypted()
		header, err := b.buf.Peek(recordHeader)
		if err != nil {
			return 0, err
		}
		b.recordLeft = recordHeader + int(binary.BigEndian.Uint16(header[recordHeader-2:]))
	}
	n, err := b.buf.Read(p[:min(len(p), b.recordLeft)])
	b.recordLeft -= n
	b.handed += int64(n)
	return n, err
}

// countingReader reads from sock, and adds the number of bytes to count.
type countingReader struct {
	sock  *socket
	count *atomic.Int64
}

func (r countingReader) Read(p []byte) (int, error) { return r.sock.read(p, r.count) }

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
