package conn

import (
	"context"
	"errors"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// An error that is not the server's reply matches exactly one of ErrNotSent and ErrUncertain under errors.Is, and
// also its cause: an error of the network or of the ctx, or ErrClosed.
var (
	// ErrNotSent: no byte of the command was written. The command did not run.
	ErrNotSent = errors.New("not sent")

	// ErrUncertain: the command was sent, or may have been sent, and was not answered. The command may have run, or
	// may run later.
	ErrUncertain = errors.New("sent but not answered")

	// ErrClosed: this program closed the Pool, Conn or Stream.
	ErrClosed = errors.New("conn: closed")

	// ErrTxAborted: the server discarded the transaction because a watched key had changed.
	ErrTxAborted = errors.New("conn: transaction aborted: a watched key has changed")
)

// Error describes a dial or a command that failed without an answer of the server. Its text contains the name of the
// command and the address, never an argument.
type Error struct {
	Op   string // "dial", "With", or the name of a command
	Addr string // Config.Addr; with sentinels the connection's address, or the master's name without a connection
	Sent bool   // a byte of the command may have been written; false for a dial
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

// Is matches ErrUncertain if Sent is true, and ErrNotSent otherwise.
func (e *Error) Is(target error) bool {
	return target == ErrUncertain && e.Sent || target == ErrNotSent && !e.Sent
}

// SafeToRetry reports whether err belongs to a command or a batch without a written byte, so that sending again
// cannot run anything twice. SafeToRetry is false for an error reply of the server, and for nil.
func SafeToRetry(err error) bool {
	return errors.Is(err, ErrNotSent) && !errors.Is(err, ErrUncertain)
}

// Doer sends commands. Pool, Conn and cluster.Cluster implement Doer. Many goroutines may call the methods at once.
type Doer interface {
	// Send sends one command and returns its reply. An error reply is returned as a resp.Error; a null reply is a
	// value.
	Send(ctx context.Context, cmd resp.Command) (resp.Value, error)

	// SendBatch sends commands over one connection, in order and without commands of other callers in between, and
	// returns the replies in the same order. Error replies are values. If the connection fails, SendBatch returns the
	// error and the known replies of the first commands.
	SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error)
}
