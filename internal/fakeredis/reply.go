package fakeredis

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Status is a simple string reply, such as OK.
type Status string

// Err is an error reply: its whole text, including the prefix.
type Err string

// Error returns the text of the reply.
func (e Err) Error() string { return string(e) }

// Kinds of reply made only by built-in commands. The kinds look different in RESP2 and RESP3, and to a script.
type (
	pairs     []any    // keys and values in turn: a map in RESP3
	members   []any    // a set in RESP3
	push      []any    // out of band in RESP3
	nullArray struct{} // *-1 in RESP2
	verbatim  string   // text in RESP3
	several   []any    // replies in turn, to a single command
	nothing   struct{} // no reply at all
)

const (
	ok       = Status("OK")
	queued   = Status("QUEUED")
	errType  = Err("WRONGTYPE Operation against a key holding the wrong kind of value")
	errInt   = Err("ERR value is not an integer or out of range")
	errFloat = Err("ERR value is not a valid float")
	errRange = Err("ERR value is out of range, must be positive")
	errOver  = Err("ERR increment or decrement would overflow")
	errStx   = Err("ERR syntax error")
	errNoKey = Err("ERR no such key")
)

func errArity(name string) Err {
	return Err("ERR wrong number of arguments for '" + name + "' command")
}

// appendReply encodes v for a connection with the protocol proto, 2 or 3.
func appendReply(dst []byte, v any, proto int) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, pick(proto, "$-1\r\n", "_\r\n")...)
	case nullArray:
		return append(dst, pick(proto, "*-1\r\n", "_\r\n")...)
	case Status:
		return appendLine(dst, '+', string(v))
	case Err:
		return appendLine(dst, '-', string(v))
	case int:
		return appendHeader(dst, ':', int64(v))
	case int64:
		return appendHeader(dst, ':', v)
	case float64:
		if proto == 3 {
			return appendLine(dst, ',', formatFloat(v))
		}
		return appendBulk(dst, formatFloat(v))
	case string:
		return appendBulk(dst, v)
	case verbatim:
		if proto == 3 {
			dst = appendHeader(dst, '=', int64(len(v)+4))
			return append(append(append(dst, "txt:"...), v...), "\r\n"...)
		}
		return appendBulk(dst, string(v))
	case []string:
		dst = appendHeader(dst, '*', int64(len(v)))
		for _, s := range v {
			dst = appendBulk(dst, s)
		}
		return dst
	case []any:
		return appendAll(appendHeader(dst, '*', int64(len(v))), v, proto)
	case pairs:
		if proto == 3 {
			return appendAll(appendHeader(dst, '%', int64(len(v)/2)), v, proto)
		}
		return appendAll(appendHeader(dst, '*', int64(len(v))), v, proto)
	case members:
		return appendAll(appendHeader(dst, pick[byte](proto, '*', '~'), int64(len(v))), v, proto)
	case push:
		return appendAll(appendHeader(dst, pick[byte](proto, '*', '>'), int64(len(v))), v, proto)
	case several:
		return appendAll(dst, v, proto)
	case nothing:
		return dst
	}
	panic(fmt.Sprintf("fakeredis: no reply can be made of a %T", v))
}

func pick[T any](proto int, two, three T) T {
	if proto == 3 {
		return three
	}
	return two
}

func appendAll(dst []byte, vs []any, proto int) []byte {
	for _, v := range vs {
		dst = appendReply(dst, v, proto)
	}
	return dst
}

func appendHeader(dst []byte, kind byte, n int64) []byte {
	return append(strconv.AppendInt(append(dst, kind), n, 10), "\r\n"...)
}

func appendBulk(dst []byte, s string) []byte {
	return append(append(appendHeader(dst, '$', int64(len(s))), s...), "\r\n"...)
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

func appendLine(dst []byte, kind byte, s string) []byte {
	return append(append(append(dst, kind), oneLine.Replace(s)...), "\r\n"...)
}

// formatFloat prints as C's %.17g, the form of a score in Redis 7.0.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

// parseInt takes only the shortest decimal form, as Redis does.
func parseInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

func parseFloat(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || strings.Contains(s, "_") {
		return 0, false
	}
	return f, true
}
