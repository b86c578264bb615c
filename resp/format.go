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
		dst = append(formatPairs(append(dst, '<'), attrs), "> "...)
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
		return append(formatPairs(append(dst, '{'), v.elems()), '}')
	case Set:
		dst = append(dst, "set "...)
	case Push:
		dst = append(dst, "push "...)
	case Array:
	default:
		s, _ := v.Text()
		return strconv.AppendQuote(dst, cut(s))
	}
	dst = append(dst, '[')
	for i, e := range v.elems() {
		if len(dst) > maxFormat {
			break
		}
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = e.format(dst)
	}
	return append(dst, ']')
}

func formatPairs(dst []byte, elems []Value) []byte {
	for i := 1; i < len(elems) && len(dst) <= maxFormat; i += 2 {
		if i > 1 {
			dst = append(dst, ", "...)
		}
		dst = append(elems[i-1].format(dst), ": "...)
		dst = elems[i].format(dst)
	}
	return dst
}

// cut returns the part of s that String can show.
func cut(s string) string { return s[:min(len(s), maxFormat+1)] }
