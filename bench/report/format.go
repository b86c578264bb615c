package report

import (
	"fmt"
	"math"
	"strconv"
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
	digits := len(s)
	if n < 0 {
		digits--
	}
	if digits < 5 {
		return s
	}
	for i := len(s) - 3; i > len(s)-digits; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// spread writes the median, and least and most if they differ from it.
func spread(s Spread) string {
	middle, least, most := number(s.Median), number(s.Min), number(s.Max)
	if middle == least && middle == most {
		return middle
	}
	return fmt.Sprintf("%s (%s–%s)", middle, least, most)
}
