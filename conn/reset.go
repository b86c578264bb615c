//go:build !plan9

package conn

import "syscall"

// hangUps are the errors of the system that say that the peer has closed the connection.
var hangUps = []error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED}
