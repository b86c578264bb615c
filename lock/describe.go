package lock

import (
	"errors"
	"fmt"
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
	err := l.Err()
	lost, isLost := errors.AsType[*LostError](err)
	switch {
	case err == nil:
		attrs = append(attrs, slog.String("state", "held"), slog.Duration("valid_for", roughly(time.Until(l.ValidUntil()))), slog.Bool("renewed", l.renewed))
	case isLost:
		attrs = append(attrs, slog.String("state", "lost"), slog.String("reason", lost.Reason.String()))
	default:
		attrs = append(attrs, slog.String("state", "released"))
	}
	return slog.GroupValue(attrs...)
}
