package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// number writes three digits or more, with spaces between thousands.
func number(f float64) string {
	switch a := math.Abs(f); {
	case f == 0:
		return "0"
	case a >= 100:
		return thousands(int64(math.Round(f)))
	case a >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	default:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := len(s) % 3 // digits before the first space
	if n < 0 {
		first = 1 + (len(s)-1)%3
	}
	if len(s) < 5 {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 && s[i-1] != '-' && (i-first)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// spread writes the median, and least and most if different.
func spread(s Spread) string {
	middle, least, most := number(s.Median), number(s.Min), number(s.Max)
	if middle == least && middle == most {
		return middle
	}
	return fmt.Sprintf("%s (%s–%s)", middle, least, most)
}
