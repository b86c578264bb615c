package system_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockwire/lockwire/bench/system"
)

// echo answers each connection with what it sends, until the listener is closed.
func echo(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l
}

// Bytes arrive whole and in order, not before their time, and the end of a connection arrives too.
func TestDelay(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	d, err := system.StartDelay(echo(t).Addr().String(), roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Stop()
	for _, size := range []int{1, 1 << 20} {
		c, err := net.Dial("tcp", d.Addr)
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("0123456"), size/7+1)[:size]
		begin := time.Now()
		go c.Write(sent)
		got := make([]byte, size)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: %v, the same: %v", size, err, bytes.Equal(got, sent))
		}
		if took := time.Since(begin); took < roundTrip {
			t.Errorf("%d bytes took %v, want %v or more", size, took, roundTrip)
		}
		c.(*net.TCPConn).CloseWrite()
		if n, err := c.Read(got); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d, %v, want EOF", n, err)
		}
		c.Close()
	}
}

// Stop ends what is under way.
func TestDelayStops(t *testing.T) {
	d, err := system.StartDelay(echo(t).Addr().String(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("never to arrive")); err != nil {
		t.Fatal(err)
	}
	d.Stop()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("bytes arrived")
	}
}
