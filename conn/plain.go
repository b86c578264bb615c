package conn

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// plainAfter is how long a TLS handshake may take before the server is asked whether it speaks TLS at all.
const plainAfter = 500 * time.Millisecond

// whileTLS asks the server in plain text, on a connection of its own, if the TLS handshake on nc takes long: Redis without TLS takes
// the handshake for a line without an end and is as silent as a server that hangs, but it answers a PING. Then nc is closed, which
// ends the handshake. stop waits for the end of all this, and reports whether the server has answered so.
func (d *dialing) whileTLS(ctx context.Context, nc net.Conn) (stop func() (plain bool)) {
	after := plainAfter
	if most := d.cfg.DialTimeout / 2; most > 0 {
		after = min(after, most)
	}
	ctx, cancel := context.WithCancel(ctx)
	plain := false
	var wg sync.WaitGroup
	wg.Go(func() {
		if await(ctx, nil, after) == nil && d.answersPlain(ctx) {
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
func (d *dialing) answersPlain(ctx context.Context) bool {
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
	return err == nil && (line[0] == '+' || line[0] == '-') && !bytes.Contains(line, []byte("TLS")) // some servers complain so
}
