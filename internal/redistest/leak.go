package redistest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// NoGoroutines fails the test if goroutines are left that neither the test runner nor a server of this package needs,
// after it has given them time to end. Tests that run in parallel must not use it.
func NoGoroutines(t testing.TB) {
	t.Helper()
	for _, stack := range waitForGoroutines(leakLimit) {
		t.Errorf("redistest: left running: %s", stack)
	}
}

// leakLimit is how long goroutines that are ending are given.
const leakLimit = Patience

// waitForGoroutines gives those that are ending time to end, and returns the stacks of those that have not.
func waitForGoroutines(limit time.Duration) []string {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left := foreign(stacks())
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-time.After(pause)
	}
}

// stacks returns the stack of each goroutine but the calling one.
func stacks() []string {
	buf := make([]byte, 1<<16)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")[1:]
		}
		buf = make([]byte, 2*len(buf))
	}
}

// foreign leaves out the goroutines that belong to the test runner (main, waiting in testing, tests that wait for their turn, and
// the one that os/signal keeps for ever once a signal was asked for) and those that wait for a server process.
func foreign(all []string) []string {
	return slices.DeleteFunc(all, func(stack string) bool {
		return strings.Contains(stack, "\ntesting.(*M).Run(") ||
			strings.Contains(stack, "\ntesting.(*T).Run(") ||
			strings.Contains(stack, "\ntesting.(*T).Parallel(") ||
			strings.Contains(stack, "\nos/signal.signal_recv(") ||
			strings.Contains(stack, "\nos/signal.loop(") ||
			strings.Contains(stack, "/redistest.startProcess.")
	})
}
