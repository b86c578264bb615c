package main

import (
	"testing"
	"time"
)

// A time for people has no seconds if they are 0, and else all of them.
func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		250*time.Millisecond + 300*time.Microsecond: "250ms",
		12340 * time.Millisecond:                    "12.3s",
		time.Minute:                                 "1m",
		70 * time.Second:                            "1m10s",
		2*time.Minute + 30*time.Second:              "2m30s",
		2*time.Minute + 31*time.Second:              "2m31s",
		time.Hour + 2*time.Minute:                   "1h2m",
		time.Hour + 20*time.Second:                  "1h0m20s",
	} {
		if got := brief(d); got != want {
			t.Errorf("brief(%v) = %q, want %q", d, got, want)
		}
	}
}
