package conn

import (
	"math"
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, missing from package syscall on some architectures.
const tcpUserTimeout = 18

// control makes the kernel close a TCP connection whose peer has acknowledged nothing for PingInterval plus Timeout.
// The kernel's default is to retransmit for about 15 minutes. If the kernel refuses the option, PINGs alone detect
// the dead peer.
func (cfg *Config) control(network, _ string, rc syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") || cfg.PingInterval <= 0 || cfg.Timeout <= 0 {
		return nil
	}
	ms := min((cfg.PingInterval + cfg.Timeout).Milliseconds(), math.MaxInt32)
	return rc.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(ms))
	})
}
