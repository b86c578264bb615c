//go:build !plan9

package conn

import "syscall"

// hangUps are the system errors for a connection closed by the peer.
var hangUps = []error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED}
