package main

import (
	"fmt"
	"strconv"
	"time"
)

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", max(0, d).Seconds()) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// thousands writes n with a comma between groups of three digits. n is not negative.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
