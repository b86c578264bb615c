package conn

import (
	"errors"
	"strings"
)

// What became of a command without an answer is what its caller must know to go on. Where an error is not the server's
// answer, errors.Is finds exactly one of ErrNotSent and ErrUncertain in it, besides its cause: an error of the network
// or of the ctx, or ErrClosed.
var (
	// ErrNotSent says that no byte of the command has left: it certainly did not run.
	ErrNotSent = errors.New("not sent")

	// ErrUncertain says that the command was sent, or may have been, and was not answered: whether it ran, or will
	// run yet, is not known.
	ErrUncertain = errors.New("sent but not answered")

	// ErrClosed says that the Pool, Conn or Stream has been closed by this program.
	ErrClosed = errors.New("conn: closed")

	// ErrTxAborted says that the server discarded a transaction because a key under WATCH had changed.
	ErrTxAborted = errors.New("conn: transaction aborted: a watched key has changed")
)

// Error is how a dial or a command failed other than by an answer of the server. Its text names the command and the
// address, never an argument.
type Error struct {
	Op   string // "dial", "With", or the name of a command
	Addr string // as in Config.Addr; with sentinels of a connection, or the name of the master if there is none
	Sent bool   // whether a byte of the command may have left; false for a dial
	Err  error  // the cause
}

// Error returns the operation, the address, whether the command was sent and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("conn: ")
	b.WriteString(e.Op)
	if e.Addr != "" {
		b.WriteString(" " + e.Addr)
	}
	switch {
	case e.Sent:
		b.WriteString(": " + ErrUncertain.Error())
	case e.Op != "dial":
		b.WriteString(": " + ErrNotSent.Error())
	}
	if e.Err != nil {
		b.WriteString(": " + strings.TrimPrefix(e.Err.Error(), "conn: "))
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is find ErrUncertain if the command may have been sent, and ErrNotSent if not.
func (e *Error) Is(target error) bool {
	return target == ErrUncertain && e.Sent || target == ErrNotSent && !e.Sent
}

// SafeToRetry reports whether the command or the batch that err is about may be sent again without any risk that
// it runs twice: no byte of it had left. It is false for an answer of the server, and for nil.
func SafeToRetry(err error) bool {
	return errors.Is(err, ErrNotSent) && !errors.Is(err, ErrUncertain)
}
