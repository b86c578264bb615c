package resp

import (
	"errors"
	"math"
	"reflect"
	"strconv"
)

var errNoArgs = errors.New("resp: a command needs a name")

// AppendCommand appends the encoded command to dst. See [Cmd] for the types of args. On an error it
// returns dst unchanged.
//
// AppendCommand keeps neither dst nor args. A variadic method that is called on a concrete type and
// calls AppendCommand therefore leaves both on its caller's stack.
func AppendCommand(dst []byte, args ...any) ([]byte, error) {
	if len(args) == 0 {
		return dst, errNoArgs
	}
	n := len(dst)
	dst, err := appendArgs(appendHeader(dst, '*', len(args)), 0, args)
	if err != nil {
		return dst[:n], err
	}
	return dst, nil
}

// AppendAround is AppendCommand without the text of args[i], a string or a []byte of n bytes: dst[:at] comes before the
// text on the wire, and dst[at:] after it. A client can then write a long text from the memory that it is in.
func AppendAround(dst []byte, i, n int, args ...any) (_ []byte, at int, err error) {
	start := len(dst)
	dst, err = appendArgs(appendHeader(dst, '*', len(args)), 0, args[:i])
	if err == nil {
		dst = appendHeader(dst, '$', n)
		at = len(dst)
		dst, err = appendArgs(append(dst, '\r', '\n'), i+1, args[i+1:])
	}
	if err != nil {
		return dst[:start], 0, err
	}
	return dst, at, nil
}

// appendArgs appends each of args as a bulk string. first is the position of args[0] in the
// command.
func appendArgs(dst []byte, first int, args []any) ([]byte, error) {
	for i := range args {
		switch a := args[i].(type) {
		case string:
			dst = appendString(dst, a)
		case []byte:
			dst = appendHeader(dst, '$', len(a))
			dst = append(dst, a...)
			dst = append(dst, '\r', '\n')
		case int:
			dst = appendInt(dst, int64(a))
		case int64:
			dst = appendInt(dst, a)
		default:
			var err error
			if dst, err = appendOther(dst, first+i, a); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// appendOther appends an argument of a less common type, chosen by its underlying type. The
// parameter is the value and not its address, because the argument must not escape.
func appendOther(dst []byte, i int, arg any) ([]byte, error) {
	v := reflect.ValueOf(arg)
	if !v.IsValid() {
		return dst, argError(i, "nil", "pass an empty string, or leave it out")
	}
	switch name := v.Type().String(); name {
	case "time.Duration":
		return dst, argError(i, name, "a duration has no unit on the wire, pass d.Milliseconds() or what the command wants")
	case "time.Time":
		return dst, argError(i, name, "a time has no unit on the wire, pass t.UnixMilli() or what the command wants")
	}
	var buf [32]byte
	text := buf[:0]
	switch v.Kind() {
	case reflect.String:
		return appendString(dst, v.String()), nil
	case reflect.Bool:
		if v.Bool() {
			text = append(text, '1')
		} else {
			text = append(text, '0')
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		text = strconv.AppendInt(text, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		text = strconv.AppendUint(text, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		text = appendFloat(text, v.Float(), v.Type().Bits())
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return dst, argError(i, v.Type().String(), "pass its elements as arguments of their own")
		}
		text = v.Bytes()
	case reflect.Pointer:
		return dst, argError(i, v.Type().String(), "pass what it points to")
	default:
		return dst, argError(i, v.Type().String(), "pass a string, []byte, bool, integer or float")
	}
	return appendBytes(dst, text), nil
}

// argError returns the error for argument i. The error names the argument's type, never its
// content.
func argError(i int, typ, hint string) error {
	return commandError("resp: argument " + strconv.Itoa(i) + " is a " + typ + ": " + hint)
}

func appendHeader(dst []byte, c byte, n int) []byte {
	if n < 10 {
		return append(dst, c, byte('0'+n), '\r', '\n')
	}
	dst = strconv.AppendInt(append(dst, c), int64(n), 10)
	return append(dst, '\r', '\n')
}

func appendString(dst []byte, s string) []byte {
	dst = append(appendHeader(dst, '$', len(s)), s...)
	return append(dst, '\r', '\n')
}

func appendBytes(dst, b []byte) []byte {
	dst = append(appendHeader(dst, '$', len(b)), b...)
	return append(dst, '\r', '\n')
}

func appendInt(dst []byte, n int64) []byte {
	var digits [20]byte
	return appendBytes(dst, strconv.AppendInt(digits[:0], n, 10))
}

// appendFloat appends the shortest text from which f can be read back, spelled as in the protocol.
// Only very large and very small numbers have an exponent.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs >= 1e21 || abs < 1e-4 && abs > 0 {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}

// typeBytes holds the type byte of each kind.
var typeBytes = [...]byte{
	Null: '_', SimpleString: '+', SimpleError: '-', Integer: ':', BulkString: '$', Array: '*', Boolean: '#',
	Double: ',', BigNumber: '(', BlobError: '!', VerbatimString: '=', Map: '%', Set: '~', Push: '>',
}

// AppendValue appends v to dst as RESP3, preceded by its attributes. A [Reader] decodes the result
// to an equal Value.
func AppendValue(dst []byte, v Value) []byte {
	if attrs := v.attrs(); len(attrs) > 0 {
		dst = appendValues(appendHeader(dst, '|', len(attrs)/2), attrs)
	}
	kind := v.Kind()
	mark := typeBytes[kind]
	switch kind {
	case Double:
		dst, _ = v.Append(append(dst, mark))
	case SimpleString, SimpleError, BigNumber:
		dst = append(append(dst, mark), v.str...)
	case BulkString, BlobError, VerbatimString:
		dst = append(appendHeader(dst, mark, len(v.str)), v.str...)
	case Integer:
		dst = strconv.AppendInt(append(dst, mark), int64(v.num), 10)
	case Boolean:
		dst = append(dst, mark, "ft"[v.num&1])
	case Array, Set, Push:
		return appendValues(appendHeader(dst, mark, v.Len()), v.elems())
	case Map:
		return appendValues(appendHeader(dst, mark, v.Len()/2), v.elems())
	default:
		dst = append(dst, mark)
	}
	return append(dst, '\r', '\n')
}

func appendValues(dst []byte, values []Value) []byte {
	for i := range values {
		dst = AppendValue(dst, values[i])
	}
	return dst
}
