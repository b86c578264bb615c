package conn

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn/internal/sentinel"
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
	ctx, cancel := context.WithCancel(ctx)
	plain := false
	var wg sync.WaitGroup
	wg.Go(func() {
		if sentinel.Await(ctx, nil, after) == nil && d.answersPlain(ctx) {
			plain = true
			_ = nc.Close()
		}
	})
	return func() bool {
		cancel()
		wg.Wait()
		return plain
	}
}

// answersPlain reports whether the server answers a PING in plain text.
func (d *dialRun) answersPlain(ctx context.Context) bool {
	nc, err := d.connect(ctx)
	if err != nil {
		return false
	}
	closed := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = nc.Close()
	})
	defer func() {
		if !release() {
			<-closed
		}
		_ = nc.Close()
	}()
	if _, err := io.WriteString(nc, "PING\r\n"); err != nil {
		return false
	}
	line, err := bufio.NewReaderSize(nc, 512).ReadSlice('\n')
	return err == nil && (line[0] == '+' || line[0] == '-') && !bytes.Contains(line, []byte("TLS")) // some TLS servers reply with such an error
}
