package conn

import (
	"errors"

	"github.com/lockwire/lockwire/resp"
)

// ErrRefused: the client refused to send a command, because the command cannot be encoded or is not allowed on this
// kind of connection. Sending the command again gives the same error. Such an error also matches ErrNotSent.
var ErrRefused = errors.New("refused by the client")

// refused is the reason of a refusal. Its text is the text of the reason.
type refused struct {
	error
	number int // of the command in its batch, from 1, or 0 if the reason is none of a single command of a batch
}

func (e refused) Is(target error) bool { return target == ErrRefused }
func (e refused) Unwrap() error        { return e.error }

// CheckBatch returns the error with which SendBatch of a Pool would refuse cmds, or nil. Callers that split a batch
// among several pools use CheckBatch to send either all commands or none.
func CheckBatch(cmds []resp.Command) error {
	if i, err := refuseAny(cmds, sharedBatch); err != nil {
		return refusalOf("", cmds, i, err)
	}
	return nil
}

// refusalOf returns the error for a batch refused because of err, the reason against cmds[i].
func refusalOf(addr string, cmds []resp.Command, i int, err error) error {
	return refusal(addr, request{Commands: cmds[i:]}, refused{err, i + 1})
}

// refusal returns the error for a command refused because of err.
func refusal(addr string, q request, err error) error {
	op := "command" // the name of a command that cannot be encoded
	if len(q.Encoded) > 0 || len(q.Commands) > 0 && q.Commands[0].Err() == nil {
		op = q.name()
	}
	r, ok := err.(refused)
	if !ok {
		r = refused{error: err}
	}
	return &Error{Op: op, Addr: addr, Err: r}
}
