package resp

import (
	"errors"
	"math"
	"reflect"
	"strconv"
)

var (
	errNoArgs    = errors.New("resp: a command needs a name")
	errSliceName = errors.New("resp: a command begins with a name, not with a slice: use CmdStrings")
)

// AppendCommand appends the encoded command to dst. See [Cmd] for the types of args. On an error it
// returns dst unchanged.
//
// AppendCommand keeps neither dst nor args. So a variadic method of a concrete type that passes its
// arguments to AppendCommand does not allocate them.
func AppendCommand(dst []byte, args ...any) ([]byte, error) {
	n, _, err := measure(nil, args)
	if err != nil {
		return dst, err
	}
	return appendWords(dst, n, nil, args)
}

// measure returns the number of words of a command of words and args, and the length of its encoding, or a little more. The
// length is less only for slices of numbers.
func measure(words []string, args []any) (n, size int, err error) {
	const header, number = 16, 24 // number: more than the digits
	n = len(words) + len(args)
	size = header + header*n
	for _, w := range words {
		size += len(w)
	}
	for i := range args {
		list := false
		switch a := args[i].(type) {
		case string:
			size += len(a)
		case []byte:
			size += len(a)
		case int, int64:
			size += number
		case []string:
			list, n = true, n+len(a)-1
			for _, s := range a {
				size += header + len(s)
			}
		default:
			size += number
			if v := reflect.ValueOf(a); isList(v) {
				list, n = true, n+v.Len()-1
			}
		}
		if list && len(words)+i == 0 {
			return 0, 0, errSliceName
		}
	}
	if n == 0 {
		return 0, 0, errNoArgs
	}
	return n, size, nil
}

// isList reports whether an argument stands for its elements: a slice, except of bytes.
func isList(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8
}

// appendWords appends a command of n words: words, then args.
func appendWords(dst []byte, n int, words []string, args []any) ([]byte, error) {
	start := len(dst)
	dst = appendHeader(dst, '*', n)
	for _, w := range words {
		dst = appendText(dst, w)
	}
	dst, err := appendArgs(dst, len(words), args)
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

// AppendAround is AppendCommand without the text of args[i], a string or a []byte of n bytes, which belongs at dst[at]. A
// client can so write a long text from its own memory, without a copy.
func AppendAround(dst []byte, i, n int, args ...any) (_ []byte, at int, err error) {
	words, _, err := measure(nil, args)
	if err != nil {
		return dst, 0, err
	}
	start := len(dst)
	if dst, err = appendWords(dst, words, nil, args[:i]); err != nil {
		return dst, 0, err
	}
	dst = appendHeader(dst, '$', n)
	at = len(dst)
	if dst, err = appendArgs(append(dst, '\r', '\n'), i+1, args[i+1:]); err != nil {
		return dst[:start], 0, err
	}
	return dst, at, nil
}

// appendArgs appends each of args as a bulk string, and each element of a slice. first is the position of args[0] in
// the command.
func appendArgs(dst []byte, first int, args []any) (_ []byte, err error) {
	for i := range args {
		switch a := args[i].(type) {
		case string:
			dst = appendText(dst, a)
		case []byte:
			dst = appendText(dst, a)
		case int:
			dst = appendInt(dst, int64(a))
		case int64:
			dst = appendInt(dst, a)
		case []string:
			for _, s := range a {
				dst = appendText(dst, s)
			}
		default:
			if dst, err = appendOther(dst, first+i, a); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// appendOther appends an argument of a less common type, chosen by its underlying type. The parameter is the value and not
// its address, because the argument must not escape.
func appendOther(dst []byte, i int, arg any) (_ []byte, err error) {
	v := reflect.ValueOf(arg)
	if !isList(v) {
		return appendReflected(dst, i, v)
	}
	for j := range v.Len() {
		e := v.Index(j)
		if e.Kind() == reflect.Interface {
			e = e.Elem()
		}
		if dst, err = appendReflected(dst, i, e); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendReflected appends one word.
func appendReflected(dst []byte, i int, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return dst, argError(i, "nil", "pass an empty string, or leave it out")
	}
	switch name := v.Type().String(); name {
	case "time.Duration":
		return dst, argError(i, name, "a duration has no unit on the wire, pass d.Milliseconds() or what the command wants")
	case "time.Time":
		return dst, argError(i, name, "a time has no unit on the wire, pass t.UnixMilli() or what the command wants")
	}
	if v.Kind() == reflect.String {
		return appendText(dst, v.String()), nil
	}
	var buf [32]byte
	if text, ok := appendScalar(buf[:0], v); ok {
		return appendText(dst, text), nil
	}
	hint := "pass a string, []byte, bool, integer or float, or a slice of these"
	switch v.Kind() {
	case reflect.Pointer:
		hint = "pass what it points to"
	case reflect.Map, reflect.Struct:
		hint = "pass the names and values that Fields returns for it"
	case reflect.Slice:
		hint = "pass its elements as arguments of their own"
	}
	return dst, argError(i, v.Type().String(), hint)
}

// appendScalar appends the text of a bool, a number, a string or bytes, and reports whether v is one of them.
func appendScalar(text []byte, v reflect.Value) (_ []byte, ok bool) {
	switch {
	case v.Kind() == reflect.String:
		return append(text, v.String()...), true
	case v.Kind() == reflect.Bool:
		if v.Bool() {
			return append(text, '1'), true
		}
		return append(text, '0'), true
	case v.CanInt():
		return strconv.AppendInt(text, v.Int(), 10), true
	case v.CanUint():
		return strconv.AppendUint(text, v.Uint(), 10), true
	case v.CanFloat():
		return appendFloat(text, v.Float(), v.Type().Bits()), true
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return append(text, v.Bytes()...), true
	}
	return text, false
}

// argError returns the error for argument i. The error names the argument's type, never its
// content.
func argError(i int, typ, hint string) error {
	return errors.New("resp: argument " + strconv.Itoa(i) + " is a " + typ + ": " + hint)
}

func appendHeader(dst []byte, c byte, n int) []byte {
	if n < 10 {
		return append(dst, c, byte('0'+n), '\r', '\n')
	}
	dst = strconv.AppendInt(append(dst, c), int64(n), 10)
	return append(dst, '\r', '\n')
}

// appendText appends a bulk string.
func appendText[T string | []byte](dst []byte, text T) []byte {
	dst = append(appendHeader(dst, '$', len(text)), text...)
	return append(dst, '\r', '\n')
}

func appendInt(dst []byte, n int64) []byte {
	var digits [20]byte
	return appendText(dst, strconv.AppendInt(digits[:0], n, 10))
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
