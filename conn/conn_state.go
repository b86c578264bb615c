package conn

import (
	"errors"
	"strings"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// connState is the state of a connection on the server, as far as the outcomes of its commands tell.
type connState struct {
	multis   int  // number of MULTI sent and not answered
	watching bool // a WATCH is open
	queueing bool // a MULTI is open
	changed  bool // the state set by the handshake has changed: database, user, name and the like
	readOnly bool // the server replied READONLY or NOAUTH
}

// inMulti reports whether a MULTI is open, or has been sent and not answered.
func (s *connState) inMulti() bool { return s.queueing || s.multis > 0 }

// differs reports whether the state differs from that of a new connection.
func (s *connState) differs() bool { return s.watching || s.queueing || s.changed }

// note updates the state by the outcome of a command with rule r: nil, an error reply, or an *Error without a reply.
//
//   - A command that was sent and not answered counts as executed. After EXEC or DISCARD the connection is unfit for another
//     loan, because the server may have refused to end the transaction.
//   - An error reply to a command that would change the state counts as a change.
func (s *connState) note(r rule, err error) {
	if r == begins {
		s.multis--
	}
	_, unanswered := err.(*Error)
	switch {
	case SafeToRetry(err): // not sent
	case unanswered && (r == ends || r == resets):
		s.queueing, s.changed = false, true
	case !unanswered && netfail.Reply(err) == netfail.Redial: // READONLY or NOAUTH: do not lend the connection again
		s.changed, s.readOnly = true, true
	case r == watches:
		s.watching = true
	case r == begins:
		s.queueing = s.queueing || err == nil || unanswered
	case r == ends && s.queueing && (err == nil || discards(err)):
		s.watching, s.queueing = false, false
	case r == ends && errors.Is(err, resp.ErrGeneral) && strings.HasSuffix(err.Error(), " without MULTI"): // none was open
		s.queueing = false
	case r == unwatches && err == nil && !s.queueing:
		s.watching = false
	case r == resets && err == nil:
		s.watching, s.queueing, s.changed = false, false, true
	case r != plain && r != blocks && r != unwatches && r != ends:
		s.changed = true
	}
}
