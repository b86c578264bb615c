package fakeredis_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func TestReadDeadline(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		start := time.Now()
		_ = c.nc.SetReadDeadline(start.Add(time.Second))
		_, err := c.nc.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read = %v, want a deadline", err)
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
		_ = c.nc.SetReadDeadline(time.Time{})
		c.expect("+PONG\r\n", "PING")
	})
}

func TestDeadlineReachesWaitingRead(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		failed := make(chan error)
		go func() {
			_, err := c.nc.Read(make([]byte, 1))
			failed <- err
		}()
		synctest.Wait()
		_ = c.nc.SetDeadline(time.Now().Add(-time.Second))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read = %v, want a deadline", err)
		}
	})
}

func TestCloseWakesReader(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		failed := make(chan error)
		go func() {
			_, err := c.nc.Read(make([]byte, 1))
			failed <- err
		}()
		synctest.Wait()
		_ = c.nc.Close()
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read = %v, want net.ErrClosed", err)
		}
		if _, err := c.nc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write = %v, want net.ErrClosed", err)
		}
		synctest.Wait()
		if list := srv.Conns(); len(list) != 0 {
			t.Errorf("Conns = %v, want none", list)
		}
	})
}

func TestFullSocket(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1000)
		srv.Stall(true)
		c := dial(t, srv)
		_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		value := bytes.Repeat([]byte("x"), 5000)
		request := encode("SET", "k", string(value))
		n, err := c.nc.Write(request)
		if n != 1000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("write = %d, %v, want 1000 and a deadline", n, err)
		}
		_ = c.nc.SetWriteDeadline(time.Time{})
		done := make(chan error)
		go func() {
			_, err := c.nc.Write(request[n:])
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("write returned %v while the server was stalled", err)
		default:
		}
		srv.Stall(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := c.read(); got != "+OK\r\n" {
			t.Errorf("reply %q", got)
		}
		c.expect(":5000\r\n", "STRLEN", "k")
	})
}

func TestEndOfFileBehindData(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.send("PING")
		synctest.Wait()
		if n := srv.KillConns(nil); n != 1 {
			t.Fatalf("KillConns = %d, want 1", n)
		}
		if got := c.read(); got != "+PONG\r\n" {
			t.Errorf("reply %q", got)
		}
		if err := c.ended(); err != io.EOF {
			t.Errorf("read = %v, want EOF", err)
		}
		if _, err := c.nc.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write = %v, want EPIPE", err)
		}
	})
}

func TestReset(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.send("PING")
		synctest.Wait()
		srv.ResetConns(func(info fakeredis.Conn) bool { return info.ID == 1 })
		if err := c.ended(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read = %v, want ECONNRESET", err)
		}
		if _, err := c.nc.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write = %v, want ECONNRESET", err)
		}
	})
}

func TestLatency(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Latency(50 * time.Millisecond)
		start := time.Now()
		c := dial(t, srv)
		c.expect("+PONG\r\n", "PING")
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("dial and PING took %v, want two round trips of 100ms", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		if _, err := srv.Dial(ctx, "tcp", "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial = %v, want a deadline", err)
		}
		// Bytes under way keep their order when the latency falls.
		c.send("SET", "k", "1")
		srv.Latency(0)
		c.send("INCR", "k")
		if first, second := c.read(), c.read(); first != "+OK\r\n" || second != ":2\r\n" {
			t.Errorf("replies %q and %q", first, second)
		}
	})
}

func TestSplitReplies(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.SplitReplies(2, 10*time.Millisecond)
		c := dial(t, srv)
		start := time.Now()
		c.send("PING")
		buf := make([]byte, 64)
		var pieces []string
		for size := 0; size < len("+PONG\r\n"); {
			n, err := c.nc.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, string(buf[:n]))
			size += n
		}
		if got := len(pieces); got != 4 || pieces[0] != "+P" {
			t.Errorf("pieces %q, want four", pieces)
		}
		if took := time.Since(start); took != 30*time.Millisecond {
			t.Errorf("took %v, want 30ms", took)
		}
	})
}

func TestAddresses(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		if got := c.nc.RemoteAddr(); got.Network() != "tcp" || got.String() != "fake:6379" {
			t.Errorf("RemoteAddr = %v %v", got.Network(), got)
		}
		if c.nc.LocalAddr().String() == "" {
			t.Error("LocalAddr is empty")
		}
	})
}
