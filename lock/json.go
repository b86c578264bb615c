package lock

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// JSON of the types that describe locks has lower-case keys, durations as text ("29.7s"; "never" for a lease without
// end), and no empty values. It is written here because encoding/json would be linked into every program.

// MarshalJSON returns the Info as JSON for a reader, with durations as text, "never" for a lease without an end, and without
// empty values.
func (i Info) MarshalJSON() ([]byte, error) { return i.object(), nil }

// MarshalJSON returns the Holder as JSON for a reader, with durations as text.
func (h Holder) MarshalJSON() ([]byte, error) { return h.object(), nil }

// MarshalJSON returns the Waiter as JSON for a reader, with durations as text.
func (w Waiter) MarshalJSON() ([]byte, error) { return w.object(), nil }

// MarshalJSON returns the Inspection as JSON for a reader, with durations as text.
func (i Inspection) MarshalJSON() ([]byte, error) {
	why := ""
	if i.ClientsErr != nil {
		why = i.ClientsErr.Error()
	}
	return object("name", i.Name, "shape", string(i.Shape), "info", i.Info.object(), "clients", objects(i.Clients, ClientProcess.object),
		"clients_error", why, "listening", count(i.Listening)), nil
}

// MarshalJSON returns the Listed as JSON for a reader, with durations as text.
func (l Listed) MarshalJSON() ([]byte, error) {
	return object("name", l.Name, "shape", string(l.Shape), "info", l.Info.object()), nil
}

// MarshalJSON returns the HeldLease as JSON for a reader, with durations as text.
func (h HeldLease) MarshalJSON() ([]byte, error) {
	return object("name", h.Name, "kind", h.Kind, "owner", h.Owner, "token", h.Token, "since", h.Since.Format(time.RFC3339Nano),
		"age", h.Age.String(), "valid_until", h.ValidUntil.Format(time.RFC3339Nano), "renewed", h.Renewed), nil
}

// MarshalJSON returns the ClientProcess as JSON for a reader, with durations as text.
func (p ClientProcess) MarshalJSON() ([]byte, error) { return p.object(), nil }

func (i Info) object() raw {
	var remaining, permits any
	if i.Locked {
		remaining = i.Remaining
	}
	if i.Permits != (Permits{}) {
		permits = object("set", i.Permits.Set, "free", count(i.Permits.Free), "taken", count(i.Permits.Taken))
	}
	return object("locked", i.Locked, "holders", objects(i.Holders, Holder.object), "remaining", remaining, "mode", string(i.Mode),
		"token", i.Token, "permits", permits, "queue", objects(i.Queue, Waiter.object))
}

func (h Holder) object() raw {
	return object("owner", h.Owner, "holds", h.Holds, "remaining", h.Remaining)
}

func (w Waiter) object() raw { return object("owner", w.Owner, "deadline", w.Deadline) }

func (p ClientProcess) object() raw {
	var age any
	if p.Connected {
		age = p.Age
	}
	return object("id", p.ID, "connected", p.Connected, "name", p.Name, "addr", p.Addr, "age", age)
}

type raw []byte

// count is a number that means something when it is 0.
type count int

// object returns an object of keys, each with its value behind it. It leaves out empty values.
func object(pairs ...any) raw {
	b := raw{'{'}
	for i := 0; i < len(pairs); i += 2 {
		value := marshal(pairs[i+1])
		if value == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(appendText(b, pairs[i].(string)), ':'), value...)
	}
	return append(b, '}')
}

// objects returns a list of objects; nil for an empty list.
func objects[T any](list []T, of func(T) raw) raw {
	var b raw
	for _, x := range list {
		b = append(append(b, ','), of(x)...)
	}
	if b == nil {
		return nil
	}
	b[0] = '['
	return append(b, ']')
}

// marshal returns a value of an object; nil if it is empty. A negative duration is a lease without end.
func marshal(value any) raw {
	switch v := value.(type) {
	case raw:
		return v
	case bool:
		return strconv.AppendBool(nil, v)
	case count:
		return strconv.AppendInt(nil, int64(v), 10)
	case time.Duration:
		if v < 0 {
			return marshal("never")
		}
		return marshal(v.String())
	case int64:
		if v != 0 {
			return strconv.AppendInt(nil, v, 10)
		}
	case string:
		if v != "" {
			return appendText(nil, v)
		}
	}
	return nil
}

// appendText appends a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendText(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
