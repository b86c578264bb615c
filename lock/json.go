package lock

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// JSON of the types that describe locks has lower-case keys, durations as text ("29.7s"; "never" for a lease without
// end), and no empty values. It is written here because encoding/json would be linked into every program.

// MarshalJSON returns the Info as JSON for a reader, with durations as text.
func (i Info) MarshalJSON() ([]byte, error) { return i.object().close(), nil }

// MarshalJSON returns the Holder as JSON for a reader, with durations as text.
func (h Holder) MarshalJSON() ([]byte, error) { return h.object().close(), nil }

// MarshalJSON returns the Waiter as JSON for a reader, with durations as text.
func (w Waiter) MarshalJSON() ([]byte, error) { return w.object().close(), nil }

// MarshalJSON returns the Inspection as JSON for a reader, with durations as text.
func (i Inspection) MarshalJSON() ([]byte, error) {
	o := new(object).text("name", i.Name).text("shape", string(i.Shape)).object("info", i.Info.object())
	objects(o, "clients", i.Clients, ClientProcess.object)
	if i.ClientsErr != nil {
		o.text("clients_error", i.ClientsErr.Error())
	}
	return o.count("listening", int64(i.Listening)).close(), nil
}

// MarshalJSON returns the Listed as JSON for a reader, with durations as text.
func (l Listed) MarshalJSON() ([]byte, error) {
	return new(object).text("name", l.Name).text("shape", string(l.Shape)).object("info", l.Info.object()).close(), nil
}

// MarshalJSON returns the HeldLease as JSON for a reader, with durations as text.
func (h HeldLease) MarshalJSON() ([]byte, error) {
	o := new(object).text("name", h.Name).text("kind", h.Kind).text("owner", h.Owner).number("token", h.Token)
	o.text("since", h.Since.Format(time.RFC3339Nano)).text("age", h.Age.String())
	return o.text("valid_until", h.ValidUntil.Format(time.RFC3339Nano)).flag("renewed", h.Renewed).close(), nil
}

// MarshalJSON returns the ClientProcess as JSON for a reader, with durations as text.
func (p ClientProcess) MarshalJSON() ([]byte, error) { return p.object().close(), nil }

func (i Info) object() *object {
	o := new(object).flag("locked", i.Locked)
	objects(o, "holders", i.Holders, Holder.object)
	if i.Locked {
		o.lease("remaining", i.Remaining)
	}
	o.text("mode", string(i.Mode)).number("token", i.Token)
	if i.Permits != (Permits{}) {
		o.object("permits", new(object).flag("set", i.Permits.Set).count("free", int64(i.Permits.Free)).count("taken", int64(i.Permits.Taken)))
	}
	return objects(o, "queue", i.Queue, Waiter.object)
}

func (h Holder) object() *object {
	return new(object).text("owner", h.Owner).number("holds", h.Holds).lease("remaining", h.Remaining)
}

func (w Waiter) object() *object {
	return new(object).text("owner", w.Owner).lease("deadline", w.Deadline)
}

func (p ClientProcess) object() *object {
	o := new(object).text("id", p.ID).flag("connected", p.Connected).text("name", p.Name).text("addr", p.Addr)
	if p.Connected {
		o.text("age", p.Age.String())
	}
	return o
}

// object is a JSON object under way.
type object struct{ b []byte }

func (o *object) key(key string) {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(appendText(o.b, key), ':')
}

func (o *object) close() []byte {
	if len(o.b) == 0 {
		return []byte("{}")
	}
	return append(o.b, '}')
}

func (o *object) text(key, value string) *object {
	if value != "" {
		o.key(key)
		o.b = appendText(o.b, value)
	}
	return o
}

func (o *object) number(key string, n int64) *object {
	if n != 0 {
		o.count(key, n)
	}
	return o
}

// count is number, for a number that means something when it is 0.
func (o *object) count(key string, n int64) *object {
	o.key(key)
	o.b = strconv.AppendInt(o.b, n, 10)
	return o
}

func (o *object) flag(key string, value bool) *object {
	o.key(key)
	o.b = strconv.AppendBool(o.b, value)
	return o
}

func (o *object) lease(key string, d time.Duration) *object {
	if d < 0 {
		return o.text(key, "never")
	}
	return o.text(key, d.String())
}

func (o *object) object(key string, value *object) *object {
	o.key(key)
	o.b = append(o.b, value.close()...)
	return o
}

// objects adds a list to o, unless it is empty.
func objects[T any](o *object, key string, list []T, of func(T) *object) *object {
	for i, x := range list {
		if i == 0 {
			o.key(key)
			o.b = append(o.b, '[')
		} else {
			o.b = append(o.b, ',')
		}
		o.b = append(o.b, of(x).close()...)
	}
	if len(list) > 0 {
		o.b = append(o.b, ']')
	}
	return o
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
