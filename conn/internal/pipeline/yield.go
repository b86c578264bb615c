package pipeline

import (
	"cmp"
	"runtime"
	"time"
)

const (
	// longYield is the duration from which a yield costs too much: the program has other work than sending commands.
	longYield = time.Millisecond

	// longLargeYield is the same for a yield after a large reply. The callers use such replies for a millisecond or more, and
	// meanwhile the runtime frees the memory of earlier ones.
	longLargeYield = 5 * time.Millisecond

	// skippedYields is the number of yields skipped after a long one.
	skippedYields = 64
)

// yielder yields to other goroutines, so that they join the current write or read. After a long yield it skips the next
// ones.
type yielder struct {
	long time.Duration // constant; a yield that takes longer costs too much; 0 is longYield
	skip int           // yields still to skip
}

func (y *yielder) due() bool {
	if y.skip > 0 {
		y.skip--
		return false
	}
	return true
}

// yield lets ready goroutines run and returns the time taken, for took.
func (*yielder) yield() time.Duration {
	start := time.Now()
	runtime.Gosched()
	return time.Since(start)
}

func (y *yielder) took(d time.Duration) {
	if d > cmp.Or(y.long, longYield) {
		y.skip = skippedYields
	}
}
