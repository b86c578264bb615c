package lock

import (
	"errors"
	"fmt"
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
	age := roughly(l.age())
	err := l.Err()
	lost, isLost := errors.AsType[*LostError](err)
	switch {
	case err == nil && l.renewed:
		return fmt.Sprintf("%sheld for %v, renewed, valid for %v", text, age, roughly(time.Until(l.ValidUntil())))
	case err == nil:
		return fmt.Sprintf("%sheld for %v, valid for %v", text, age, roughly(time.Until(l.ValidUntil())))
	case isLost:
		return text + "lost: " + lost.Reason.String()
	}
	return text + "released"
}

// MarshalText returns the String, so that loggers such as log/slog show a lease well.
func (l *Lease) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
