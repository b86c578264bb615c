package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/bench/servertest"
	"github.com/lockwire/lockwire/bench/system"
)

// The table in OPERATIONS.md has the lines that the program prints.
func TestSizing(t *testing.T) {
	servertest.Run(t, func(redis *system.Redis) {
		var b strings.Builder
		err := print(&b, redis, size{
			processes: 3, locks: 20, waiters: 20, contenders: []int{1, 2, 3},
			lease: time.Minute, settle: time.Millisecond, length: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile("../../OPERATIONS.md")
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(string(text), "\n| | server | client |\n")
		table, _, end := strings.Cut(after, "\n\n")
		if !ok || !end {
			t.Fatal("OPERATIONS.md has no table of costs")
		}
		_, printed, _ := strings.Cut(b.String(), "\n| | server | client |\n")
		if got, want := lines(table), lines(strings.TrimSpace(printed)); got != want {
			t.Errorf("OPERATIONS.md has the lines\n%s\nand the program prints\n%s", got, want)
		}
	})
}

// lines returns the first cells of a table, without numbers.
func lines(table string) string {
	number := regexp.MustCompile(`[0-9.,]+`)
	var b strings.Builder
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |")
		b.WriteString(number.ReplaceAllString(first, "#") + "\n")
	}
	return b.String()
}
