package resp

import "strconv"

// maxFormat is the approximate maximum length of String's result in bytes.
const maxFormat = 1 << 10

// String formats v for tests and debugging:
//
//	strings     quoted
//	arrays      [1 2]
//	maps        {"k": 1}
//	attributes  <"k": 1> before the value
//
// String cuts the text after about 1 KiB. The text shows the value's content: be careful with logs.
func (v Value) String() string {
	b := v.format(nil)
	if len(b) > maxFormat {
		b = append(b[:maxFormat], "..."...)
	}
	return string(b)
}

// format appends the text of String, and stops soon after maxFormat bytes.
func (v Value) format(dst []byte) []byte {
	if attrs := v.attrs(); len(attrs) > 0 {
		dst = append(formatElems(append(dst, '<'), attrs, true), "> "...)
	}
	switch v.Kind() {
	case Null:
		return append(dst, "null"...)
	case Integer:
		return strconv.AppendInt(dst, int64(v.num), 10)
	case Boolean:
		return strconv.AppendBool(dst, v.num != 0)
	case Double, BigNumber:
		s, _ := v.Text()
		return append(dst, cut(s)...)
	case SimpleError, BlobError:
		return strconv.AppendQuote(append(dst, "error "...), cut(v.Err().Error()))
	case Map:
		return append(formatElems(append(dst, '{'), v.elems(), true), '}')
	case Set:
		dst = append(dst, "set "...)
	case Push:
		dst = append(dst, "push "...)
	case Array:
	default:
		s, _ := v.Text()
		return strconv.AppendQuote(dst, cut(s))
	}
	return append(formatElems(append(dst, '['), v.elems(), false), ']')
}

// formatElems appends elements, or pairs of keys and values.
func formatElems(dst []byte, elems []Value, pairs bool) []byte {
	for i, e := range elems {
		switch {
		case len(dst) > maxFormat:
			return dst
		case i == 0:
		case !pairs:
			dst = append(dst, ' ')
		case i%2 == 1:
			dst = append(dst, ": "...)
		default:
			dst = append(dst, ", "...)
		}
		dst = e.format(dst)
	}
	return dst
}

// cut returns the part of s that String can show.
func cut(s string) string { return s[:min(len(s), maxFormat+1)] }
