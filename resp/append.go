package resp

import (
	"errors"
	"math"
	"reflect"
	"strconv"
)

var errNoArgs = errors.New("resp: a command needs a name")

// AppendCommand appends the encoded command to dst; [Cmd] says what args may be. On
// an error it returns dst as it was. Neither dst nor args are kept, so that a
// call from a variadic method that is not called through an interface leaves
// both on the caller's stack.
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

// appendArgs appends each of args as a bulk string; first is the place of the
// first one in the command.
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

// appendOther appends an argument of one of the less common types, found by their
// underlying type. It is given the value, not its address: the argument must not
// escape.
func appendOther(dst []byte, i int, arg any) ([]byte, error) {
	v := reflect.ValueOf(arg)
	if !v.IsValid() {
		return dst, refuse(i, "nil", "pass an empty string, or leave it out")
	}
	switch name := v.Type().String(); name {
	case "time.Duration":
		return dst, refuse(i, name, "a duration has no unit on the wire, pass d.Milliseconds() or what the command wants")
	case "time.Time":
		return dst, refuse(i, name, "a time has no unit on the wire, pass t.UnixMilli() or what the command wants")
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
			return dst, refuse(i, v.Type().String(), "pass its elements as arguments of their own")
		}
		text = v.Bytes()
	case reflect.Pointer:
		return dst, refuse(i, v.Type().String(), "pass what it points to")
	default:
		return dst, refuse(i, v.Type().String(), "pass a string, []byte, bool, integer or float")
	}
	return appendBytes(dst, text), nil
}

// refuse returns the error of argument i, of which only the type is told.
func refuse(i int, typ, hint string) error {
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

// appendFloat appends f as short as it can be read back from, in the spelling of
// the protocol, and with an exponent only where there would be many zeros.
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

// marks holds the first byte of each kind on the wire.
var marks = [...]byte{
	Null: '_', SimpleString: '+', SimpleError: '-', Integer: ':', BulkString: '$', Array: '*', Boolean: '#',
	Double: ',', BigNumber: '(', BlobError: '!', VerbatimString: '=', Map: '%', Set: '~', Push: '>',
}

// AppendValue appends v to dst as RESP3, its attributes in front of it. A [Reader]
// makes an equal value of it.
func AppendValue(dst []byte, v Value) []byte {
	if attrs := v.attrs(); len(attrs) > 0 {
		dst = appendValues(appendHeader(dst, '|', len(attrs)/2), attrs)
	}
	kind := v.Kind()
	mark := marks[kind]
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
