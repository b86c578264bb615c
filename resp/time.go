package resp

import (
	"math"
	"reflect"
	"strconv"
	"time"
)

// Replies of TTL and PTTL that are no duration.
const (
	NoExpiry = time.Duration(-1) // the key has no expiry
	NoKey    = time.Duration(-2) // the key does not exist
)

// Seconds returns the reply of TTL, or of another command that counts seconds, as a duration:
//
//	left, err := resp.Seconds(pool.Do(ctx, "TTL", "session"))
//
// The replies -1 and -2 are [NoExpiry] and [NoKey]. Seconds never returns a longer duration than exists.
func Seconds(v Value, err error) (time.Duration, error) { return lasting(v, err, time.Second) }

// Milliseconds is Seconds for PTTL and other commands that count milliseconds.
func Milliseconds(v Value, err error) (time.Duration, error) {
	return lasting(v, err, time.Millisecond)
}

func lasting(v Value, err error, unit time.Duration) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	n, err := v.Int()
	if err != nil || n == int64(NoExpiry) || n == int64(NoKey) {
		return time.Duration(n), err
	}
	return times(n, unit), nil
}

// times returns n units, or the longest duration.
func times(n int64, unit time.Duration) time.Duration {
	most := int64(math.MaxInt64) / int64(unit)
	switch {
	case n > most:
		return math.MaxInt64
	case n < -most:
		return math.MinInt64
	}
	return time.Duration(n) * unit
}

// units are the units in the tags of fields.
var units = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond, "ns": time.Nanosecond}

// tagFault returns what is wrong with the name and the unit in the tag of a field of type t; "" if nothing is.
func tagFault(name, unit string, t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	lasts := t == reflect.TypeFor[time.Duration]()
	switch {
	case name == "":
		return "has no name"
	case lasts && unit == "":
		return "needs a unit, such as redis:\"" + name + ",ms\""
	case unit == "":
		return ""
	case !lasts && t != reflect.TypeFor[time.Time]():
		return "has a unit, and the field is no time"
	case units[unit] == 0:
		return "needs one of the units s, ms, us and ns"
	}
	return ""
}

// time returns v as a time: a number of units since 1970, or without a unit one of the forms listed at As.
func (v Value) time(unit string) (time.Time, error) {
	if unit != "" {
		n, err := v.Int()
		if err != nil {
			return time.Time{}, err
		}
		return sinceEpoch(n, units[unit]), nil
	}
	if v.Kind() == Array && v.Len() == 2 {
		s, err := v.At(0).Int()
		us, err2 := v.At(1).Int()
		if err == nil && err2 == nil {
			return time.Unix(s, us*1000), nil
		}
	}
	s, err := v.Text()
	if err != nil {
		return time.Time{}, v.isNot("a time")
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil { // leave it out: it quotes the text
		return time.Time{}, v.isNot("a time in RFC 3339: for a number give the field a unit")
	}
	return t, nil
}

// sinceEpoch returns the time n units after 1970.
func sinceEpoch(n int64, unit time.Duration) time.Time {
	perSecond := int64(time.Second / unit)
	return time.Unix(n/perSecond, n%perSecond*int64(unit))
}

// duration returns v, a number of units, as a duration.
func (v Value) duration(unit string) (time.Duration, error) {
	if unit == "" {
		return 0, v.isNot("a time.Duration without a unit: use Seconds or Milliseconds, or give the field a unit")
	}
	n, err := v.Int()
	if err != nil {
		return 0, err
	}
	d := times(n, units[unit])
	if int64(d/units[unit]) != n {
		return 0, v.isNot("a time.Duration: out of range")
	}
	return d, nil
}

// rfc3339 returns the text of t. RFC 3339 has four digits for the year, and an offset from UTC of minutes, less than a day.
func rfc3339(t time.Time) string {
	const day = 24 * 60 * 60
	if _, offset := t.Zone(); offset%60 != 0 || offset <= -day || offset >= day {
		t = t.UTC()
	}
	if t.Year() < 0 || t.Year() > 9999 {
		panic("resp: Fields: a time.Time is out of range of RFC 3339: give the field a unit")
	}
	return t.Format(time.RFC3339Nano)
}

// timeText returns the text of a time.Time, or of a time.Duration with a unit, and whether v is one of them.
func timeText(v any, unit string) (string, bool) {
	switch v := v.(type) {
	case time.Time:
		if unit == "" {
			return rfc3339(v), true
		}
		n := v.Unix()*int64(time.Second/units[unit]) + int64(v.Nanosecond())/int64(units[unit])
		if sinceEpoch(n, units[unit]).Unix() != v.Unix() { // the arithmetic has wrapped around
			panic("resp: Fields: a time.Time is out of range of the unit " + unit)
		}
		return strconv.FormatInt(n, 10), true
	case *time.Time: // not in RFC 3339, as its MarshalText has it, where there is a unit
		return timeText(*v, unit)
	case time.Duration:
		if unit != "" {
			return strconv.FormatInt(int64(v/units[unit]), 10), true
		}
		panic("resp: Fields: a time.Duration has no unit on the wire: give the field a unit, or pass a number")
	}
	return "", false
}
