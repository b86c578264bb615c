package conn

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

// plainAfter is the duration of a TLS handshake after which the dial checks whether the server speaks TLS at all.
const plainAfter = 500 * time.Millisecond

// whileTLS probes the server with a PING in plain text, over a second connection, if the TLS handshake on nc takes
// long. A Redis server without TLS reads the handshake as an unfinished line and stays silent like a dead server, but
// answers a PING. After an answer whileTLS closes nc to end the handshake. stop waits for the probe to end and
// reports whether the server answered in plain text.
func (d *dialRun) whileTLS(ctx context.Context, nc net.Conn) (stop func() (plain bool)) {
	after := plainAfter
	if most := d.cfg.DialTimeout / 2; most > 0 {
		after = min(after, most)
	}
	plain := false
	end := meanwhile(ctx, func(ctx context.Context) {
		if netfail.Sleep(ctx, after) == nil && d.answersPlain(ctx) {
			plain = true
			_ = nc.Close()
		}
	})
	return func() bool {
		end()
		return plain
	}
}

func (d *dialRun) answersPlain(ctx context.Context) bool {
	return d.probe(ctx, "PING\r\n", func(r *bufio.Reader) bool {
		line, err := r.ReadSlice('\n')
		return err == nil && (line[0] == '+' || line[0] == '-') && !bytes.Contains(line, []byte("TLS")) // some TLS servers reply with such an error
	})
}

const (
	// emptyHello is a record of TLS with a malformed ClientHello, which a TLS server answers with an alert.
	emptyHello                   = "\x16\x03\x01\x00\x04\x01\x00\x00\x00"
	alertRecord, handshakeRecord = 0x15, 0x16
)

// expectsTLS reports whether the server speaks TLS. A Redis server without TLS waits for the end of a line.
func (d *dialRun) expectsTLS(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, plainAfter)
	defer cancel()
	return d.probe(ctx, emptyHello, func(r *bufio.Reader) bool {
		record, err := r.Peek(2)
		return err == nil && (record[0] == alertRecord || record[0] == handshakeRecord) && record[1] == 3
	})
}

// probe sends text over a connection of its own, and returns what answered says of the reply.
func (d *dialRun) probe(ctx context.Context, text string, answered func(r *bufio.Reader) bool) bool {
	nc, err := d.connect(ctx)
	if err != nil {
		return false
	}
	defer nc.Close()
	defer netfail.OnEnd(ctx, func() { _ = nc.Close() })()
	if _, err := io.WriteString(nc, text); err != nil {
		return false
	}
	return answered(bufio.NewReaderSize(nc, 512))
}
