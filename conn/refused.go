package conn

import (
	"errors"

	"github.com/lockwire/lockwire/resp"
)

// ErrRefused is found by errors.Is in the error of a command that this program does not send: it cannot be encoded, or has
// no place on the connection it would be sent on. Sending it again changes nothing. ErrNotSent is found in it too.
var ErrRefused = errors.New("refused by the client")

// refused is why a command is not sent. Its text is that of the reason.
type refused struct{ error }

func (e refused) Is(target error) bool { return target == ErrRefused }
func (e refused) Unwrap() error        { return e.error }

// CheckBatch returns why SendBatch of a Pool refuses cmds, and nil if it does not: for those who divide a batch among
// several pools, and want to send all of it or nothing.
func CheckBatch(cmds []resp.Command) error {
	if i, err := refuseAny(cmds, sharedBatch); err != nil {
		return refusal("", request{cmds: cmds[i:]}, err)
	}
	return nil
}
