package resp

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
)

const (
	// maxNumber limits the bytes of a length or an integer: sign, digits, and room for leading
	// zeros.
	maxNumber = 32

	// maxDouble limits the bytes of a double. The largest double without an exponent has 309 digits
	// before the point.
	maxDouble = 400

	// formatLen is the length of a verbatim string's format with the colon.
	formatLen = 4
)

// shortNumber parses the header or integer at the beginning of b: a type byte and up to eight
// digits without a leading zero. next is the index after CR LF, or 0 if the line is invalid,
// unusual or incomplete.
func shortNumber(b []byte) (n, next int) {
	if len(b) > 2 && b[1] == '0' && b[2] != '\r' {
		return 0, 0
	}
	for i := 1; i < len(b)-1; i++ {
		c := b[i] - '0'
		if c > 9 {
			if b[i] == '\r' && b[i+1] == '\n' && i > 1 && i < 10 {
				return n, i + 2
			}
			return 0, 0
		}
		n = n*10 + int(c)
	}
	return 0, 0
}

// shortBulk finds the bulk string at the beginning of b. The text is b[from:to], and next is the
// index after the string. next is 0 if the string is invalid, unusual, incomplete or longer than
// most.
func shortBulk(b []byte, most int) (from, to, next int) {
	n, from := shortNumber(b)
	to = from + n
	if from == 0 || n > most || to+1 >= len(b) || b[to] != '\r' || b[to+1] != '\n' {
		return 0, 0, 0
	}
	return from, to, to + 2
}

// shortNull returns the length of the null at the beginning of b, or 0.
func shortNull(b []byte) (next int) {
	switch {
	case len(b) >= 5 && string(b[:5]) == "$-1\r\n":
		return 5
	case len(b) >= 3 && string(b[:3]) == "_\r\n":
		return 3
	}
	return 0
}

// parseLength parses a length: decimal digits without a sign or leading zero. The largest int
// stands for every length that exceeds an int; no limit allows it.
func parseLength(b []byte) (int, bool) {
	if len(b) > 1 && b[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b), 10, 63)
	return int(min(n, math.MaxInt)), err == nil
}

// parseBigNumber reports whether b is an integer of any size.
func parseBigNumber(b []byte) bool {
	digits := cutSign(b)
	return len(digits) > 0 && len(bytes.TrimLeft(digits, "0123456789")) == 0
}

// parseDouble parses a double as the protocol defines it:
//
//   - an optional sign and at least one digit
//   - an optional point, followed by digits or nothing
//   - an optional exponent
//   - or infinity or NaN, in any spelling used by a libc
//
// ParseFloat also takes hexadecimal digits, underscores and a point without a digit before it.
func parseDouble(b []byte) (float64, bool) {
	word := cutSign(b)
	switch {
	case isNaNWord(word):
		return math.NaN(), true
	case len(word) == 0 || word[0] == '.' || bytes.ContainsAny(word, "xX_"):
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange) // too large: infinity
}

// exactInt returns the value of s, a finite number for parseDouble, if the value is an integer of 64 bits. Otherwise ok is
// false.
func exactInt(s string) (_ int64, ok bool) {
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(s[i+1:]); err != nil { // very small: s is a fraction, or 0
			exponent = math.MinInt32
		}
		s = s[:i]
	}
	sign := ""
	if s[0] == '-' {
		sign = "-"
	}
	whole, fraction, _ := strings.Cut(strings.TrimLeft(s, "+-"), ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return 0, true
	}
	significant := strings.TrimRight(digits, "0")
	zeros := exponent - len(fraction) + len(digits) - len(significant)
	if zeros < 0 || zeros > 19 {
		return 0, false
	}
	n, err := strconv.ParseInt(sign+significant+strings.Repeat("0", zeros), 10, 64)
	return n, err == nil
}

// isRounded reports whether s may be a double that a server has rounded to 17 digits: 1.7000000000000001e+18.
func isRounded(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i > 0 && len(strings.Replace(strings.TrimLeft(s[:i], "+-"), ".", "", 1)) <= 17
}

// isNaNWord reports whether b is "nan", or "nan(chars)" as in C, where chars are letters, digits
// and underscores.
func isNaNWord(b []byte) bool {
	if len(b) < 3 || !bytes.EqualFold(b[:3], []byte("nan")) {
		return false
	}
	chars, opened := bytes.CutPrefix(b[3:], []byte("("))
	chars, closed := bytes.CutSuffix(chars, []byte(")"))
	return len(b) == 3 || opened && closed && !bytes.ContainsFunc(chars, func(r rune) bool {
		letter := r | 0x20
		return r != '_' && (r < '0' || r > '9') && (letter < 'a' || letter > 'z')
	})
}

// cutSign returns b without its sign.
func cutSign(b []byte) []byte {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		return b[1:]
	}
	return b
}
