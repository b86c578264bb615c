package lock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lockwire/lockwire/resp"
)

var errUnexpected = errors.New("lock: unexpected reply to acquire")

// refusal returns the error for a status of acquire after which waiting would not help; nil for any other status.
func refusal(status string) error {
	switch status {
	case "upgrade":
		return ErrUpgrade
	case "unheld":
		return ErrNotHeld
	case "reentry":
		return ErrReentry
	case "unset":
		return ErrNotSet
	}
	return nil
}

// parseAcquire parses a reply to acquire: the hold count, with a token for kinds with tokens; or 0 and the remaining
// lease of the lock.
func parseAcquire(v resp.Value, owned bool) (count, token int64, left time.Duration, err error) {
	switch v.Kind() {
	case resp.Null:
		return 1, 0, 0, nil
	case resp.Integer:
		ms, err := v.Int()
		return 0, 0, milliseconds(ms), err
	case resp.SimpleString:
		text, _ := v.Text()
		if err := refusal(text); err != nil {
			return 0, 0, 0, err
		}
		count, err = strconv.ParseInt(text, 10, 64)
	case resp.Array:
		var failed error
		count, err = v.At(0).Int()
		token, failed = v.At(1).Int()
		if err = errors.Join(err, failed); err == nil && count == 1 {
			return count, token, 0, nil
		}
	}
	if err == nil && count > 1 && owned {
		return count, token, 0, nil
	}
	return 0, 0, 0, fmt.Errorf("%w, of kind %v", errUnexpected, v.Kind())
}

// textOf returns the text of a reply.
func textOf(v resp.Value, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return v.Text()
}

// elements reads the elements of a reply one after another. The first element of another type ends the reading.
type elements struct {
	of  resp.Value
	at  int   // the next element
	err error // why an element could not be read
}

// more reports whether at least n elements are left.
func (e *elements) more(n int) bool { return e.err == nil && e.at+n <= e.of.Len() }

// text returns the next element as a text.
func (e *elements) text() string { return nextElement(e, resp.Value.Text) }

// number returns the next element as a number.
func (e *elements) number() int64 { return nextElement(e, resp.Value.Int) }

// time returns the next element, a PTTL, as a duration.
func (e *elements) time() time.Duration { return milliseconds(e.number()) }

func nextElement[T any](e *elements, convert func(resp.Value) (T, error)) (t T) {
	if e.err == nil {
		if t, e.err = convert(e.of.At(e.at)); e.err != nil {
			e.err = fmt.Errorf("lock: info: %w", e.err)
		}
		e.at++
	}
	return t
}

// noTTL is the remaining time of a lock that never becomes free by itself, or whose remaining time is unknown.
const noTTL = time.Duration(-1)

// milliseconds converts a PTTL to a duration: noTTL below zero, and the longest duration on overflow.
func milliseconds(ms int64) time.Duration {
	switch {
	case ms < 0:
		return noTTL
	case ms > int64(math.MaxInt64/time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
