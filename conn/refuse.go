package conn

import (
	"errors"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// carrier is the kind of connection for a command.
type carrier uint8

const (
	onShared    carrier = iota // a shared connection
	inBatch                    // a shared connection, within a batch
	onExclusive                // an exclusive connection
	inTx                       // between MULTI and EXEC
)

var (
	errInTx      = errors.New("it is not allowed inside a transaction")
	errWatch     = errors.New("it concerns one connection, and this connection is shared: use With")
	errMulti     = errors.New("on a shared connection, use Tx for a transaction; or use With")
	errAsking    = errors.New("on a shared connection, send it in a batch in front of its command")
	errOpenMulti = errors.New("a MULTI is open on this connection")
)

// refusals are the reasons why a shared connection does not carry a command, by the rule of the command.
var refusals = [...]error{
	blocks:     errors.New("it would hold up all callers of a shared connection: use Block or With"),
	watches:    errWatch,
	unwatches:  errWatch,
	begins:     errMulti,
	ends:       errMulti,
	asks:       errAsking,
	selects:    errors.New("it would change the database for all callers: set Config.DB, or use With"),
	introduces: errors.New("it would change the connection for all callers: set the field of Config, or Extra"),
	resets:     errors.New("it would undo the handshake, for all callers"),
	quits:      errors.New("use Close"),
	unanswered: errors.New("it has no reply like other commands: use package pubsub, or a Stream"),
}

// refuse returns the reason why a command with rule r must not be sent on c, or nil.
func (r rule) refuse(c carrier) error {
	switch {
	case r == unanswered:
		return refusals[r]
	case r == plain, c == onExclusive, c == inBatch && r == asks, c == inTx && r == blocks: // blocks does not block there
		return nil
	case c == inTx:
		return errInTx
	}
	return refusals[r]
}

// refuseAny returns the error for the caller if a command must not be sent on c, to the server at addr. waits: a shared batch
// has WAIT or WAITAOF behind other commands. WAIT delays all commands behind it and counts the writes before it on the same
// connection. SendBatch therefore sends such a batch undivided over an exclusive connection.
func refuseAny(addr string, cmds []resp.Command, c carrier) (waits bool, _ error) {
	for i := range cmds {
		r, err := plain, cmds[i].Err()
		if err == nil {
			r = ruleOfCommand(&cmds[i])
			err = r.refuse(c)
		}
		switch {
		case r == asks && i == len(cmds)-1 && c == inBatch:
			err = errAsking
		case r == blocks && i > 0 && c == inBatch && isWait(cmds[i].Name()):
			waits = true
			continue
		}
		if err != nil {
			reason := netfail.Refusal{Reason: err, Number: i + 1}
			return false, &Error{Op: netfail.Op(cmds[i].Name()), Addr: addr, Err: reason}
		}
	}
	return waits, nil
}

// ErrRefused: the client refused to send a command, because the command cannot be encoded or is not allowed on this
// kind of connection. Sending the command again gives the same error. Such an error also matches ErrNotSent.
var ErrRefused = netfail.ErrRefused

// CheckBatch returns the error with which SendBatch of a Pool would refuse cmds, or nil. Callers that split a batch
// among several pools use CheckBatch to send either all commands or none.
func CheckBatch(cmds []resp.Command) error {
	_, err := refuseAny("", cmds, inBatch)
	return err
}

// refusal returns the error for the caller of a command that is not sent. name is empty if the command cannot be encoded.
func refusal(addr, name string, err error) error {
	return &Error{Op: netfail.Op(name), Addr: addr, Err: netfail.Refusal{Reason: err}}
}
