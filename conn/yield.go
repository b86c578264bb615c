package conn

import (
	"runtime"
	"time"
)

const (
	// longYield is how long others may run before yielding to them is no good: the program has more to do than
	// sending commands.
	longYield = time.Millisecond

	// yieldsLeftOut is how many occasions to yield pass then without doing so.
	yieldsLeftOut = 64
)

// yielder lets goroutines run that are ready, so that they join what is being done, as long as this takes no time.
type yielder struct {
	leave int // occasions to be left out
}

// due reports whether to call yield on this occasion.
func (y *yielder) due() bool {
	if y.leave > 0 {
		y.leave--
		return false
	}
	return true
}

// yield must be followed by took with its result.
func (*yielder) yield() time.Duration {
	start := time.Now()
	runtime.Gosched()
	return time.Since(start)
}

func (y *yielder) took(d time.Duration) {
	if d > longYield {
		y.leave = yieldsLeftOut
	}
}
