package conn

import (
	"math"
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name on every architecture.
const tcpUserTimeout = 18

// control lets the kernel give up a TCP connection whose peer has acknowledged nothing for as long as it takes a
// ping to be sent and missed; without it, written data is repeated for a quarter of an hour. A kernel that refuses
// leaves the ping alone to notice.
func (cfg *Config) control(network, _ string, rc syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") || cfg.PingInterval <= 0 || cfg.Timeout <= 0 {
		return nil
	}
	ms := min((cfg.PingInterval + cfg.Timeout).Milliseconds(), math.MaxInt32)
	return rc.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(ms))
	})
}
