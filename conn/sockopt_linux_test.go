package conn

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// TestTCPUserTimeout asks the kernel for its time limit without acknowledgements.
func TestTCPUserTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tests := []struct {
		cfg  Config
		want int // milliseconds; 0 for the system's default
	}{
		{Config{}, 10_000},
		{Config{PingInterval: time.Second, Timeout: 500 * time.Millisecond}, 1500},
		{Config{PingInterval: 1 << 62}, 1<<31 - 1},
		{Config{PingInterval: -1}, 0},
		{Config{Timeout: -1}, 0},
	}
	for _, tt := range tests {
		tt.cfg.Addr = ln.Addr().String()
		cfg := tt.cfg.withDefaults()
		d := dialRun{cfg: &cfg}
		nc, err := d.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := userTimeout(t, nc); got != tt.want {
			t.Errorf("PingInterval %v, Timeout %v: TCP_USER_TIMEOUT = %d ms, want %d",
				tt.cfg.PingInterval, tt.cfg.Timeout, got, tt.want)
		}
		nc.Close()
	}
}

func userTimeout(t *testing.T, nc net.Conn) (ms int) {
	t.Helper()
	rc, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error
	err = rc.Control(func(fd uintptr) {
		ms, optErr = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
	})
	if err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	return ms
}
