package lock

import (
	"errors"
	"log/slog"
	"strconv"
	"time"
)

func (g *group) name() string {
	if g.all {
		return "multi"
	}
	return "redlock"
}

// String describes the lease in a line for logs: the kind, the name, the owner, the age, and how long the lease is valid or
// why it is over.
func (l *Lease) String() string {
	text := l.Kind() + " lock " + strconv.Quote(l.Name()) + ", owner " + l.Owner() + ", "
	state, lost := l.stateNow()
	text += state
	switch {
	case lost != nil:
		text += ": " + lost.Reason.String()
	case state == stateHeld:
		text += " for " + roughly(l.age()).String()
		if l.renewed {
			text += ", renewed"
		}
		text += ", valid for " + roughly(time.Until(l.ValidUntil())).String()
	}
	return text
}

// The states of a lease, in words.
const stateHeld, stateLost, stateReleased = "held", "lost", "released"

// stateNow returns the state of the lease, and the loss if it is lost.
func (l *Lease) stateNow() (state string, lost *LostError) {
	err := l.Err()
	if err == nil {
		return stateHeld, nil
	}
	if lost, isLost := errors.AsType[*LostError](err); isLost {
		return stateLost, lost
	}
	return stateReleased, nil
}

// LogValue returns what String tells as attributes for [slog]: name, kind, owner, token if there is one, age, and state, which is
// "held", "lost" or "released". A held lease has valid_for and renewed, a lost one has reason.
func (l *Lease) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("name", l.Name()),
		slog.String("kind", l.Kind()),
		slog.String("owner", l.Owner()),
	}
	if token := l.Token(); token != 0 {
		attrs = append(attrs, slog.Int64("token", token))
	}
	attrs = append(attrs, slog.Duration("age", roughly(l.age())))
	state, lost := l.stateNow()
	attrs = append(attrs, slog.String("state", state))
	switch {
	case lost != nil:
		attrs = append(attrs, slog.String("reason", lost.Reason.String()))
	case state == stateHeld:
		attrs = append(attrs, slog.Duration("valid_for", roughly(time.Until(l.ValidUntil()))), slog.Bool("renewed", l.renewed))
	}
	return slog.GroupValue(attrs...)
}
