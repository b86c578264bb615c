package redistest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// NoGoroutines waits for goroutines to end, and fails the test if goroutines are left besides the goroutines of the test runner
// and of servers of this package. Parallel tests must not use NoGoroutines.
func NoGoroutines(t testing.TB) {
	t.Helper()
	for _, stack := range waitForGoroutines(leakLimit) {
		t.Errorf("redistest: left running: %s", stack)
	}
}

// leakLimit bounds the wait for ending goroutines.
const leakLimit = Patience

// waitForGoroutines gives goroutines time to end, and returns the stacks of the remaining goroutines.
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

// stacks returns the stack of each goroutine except the calling goroutine.
func stacks() []string {
	buf := make([]byte, 1<<16)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")[1:]
		}
		buf = make([]byte, 2*len(buf))
	}
}

// foreign leaves out the goroutines of the test runner (main, waits in testing, tests before their turn, and the goroutine that
// os/signal keeps for ever after the first Notify) and the goroutines waiting for a server process.
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
