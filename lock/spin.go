package lock

import (
	"math/rand/v2"
	"time"
)

var spinKind = &lazy[*kind]{make: newSpinKind}

func newSpinKind() *kind {
	k := variant("spin", reentrantKind.get())
	k.silent = true
	k.handover = nil
	return k
}

// Spin is Redisson's RLock of getSpinLock: a [Reentrant] lock without pub/sub. Nobody is told of a release; who waits looks
// again and again, with pauses that a [Backoff] gives, and in each process one caller at a time. That is for locks that are
// taken very often for a very short time. Spin and Reentrant locks of one name exclude each other, but a release of the one
// does not wake those who wait for the other.
type Spin struct{ Handle }

// Spin returns the lock of that name. What is wrong with a name, or with backoff, is said by the first call that uses it.
func (c *Client) Spin(name string, backoff Backoff) *Spin {
	h := c.handle(spinKind.get(), name)
	backoff, err := backoff.withDefaults()
	if h.err == nil {
		h.err = err
	}
	h.target.backoff = backoff.pause
	return &Spin{h}
}

// Backoff is how long a waiter of a [Spin] lock sleeps between looks. The zero Backoff is Redisson's default: 1 ms at first,
// twice as long each time, with some jitter, and 128 ms at most. Waits end with the caller's context, whatever the pause.
type Backoff struct {
	Initial    time.Duration // the first pause; 0 is 1 ms, or Max if that is less
	Max        time.Duration // the longest pause; 0 is 128 ms, or Initial if that is more
	Multiplier int           // by which a pause is longer than the one before it; 0 is 2
}

// ConstantBackoff returns a Backoff whose pauses are all of length d. Redisson's default for them is 64 ms.
func ConstantBackoff(d time.Duration) Backoff { return Backoff{Initial: d, Max: d, Multiplier: 1} }

// shortestPause keeps a waiter from asking as often as it can.
const shortestPause = 100 * time.Microsecond

func (b Backoff) withDefaults() (Backoff, error) {
	if b.Max == 0 {
		b.Max = max(128*time.Millisecond, b.Initial)
	}
	if b.Initial == 0 {
		b.Initial = min(time.Millisecond, b.Max)
	}
	if b.Multiplier == 0 {
		b.Multiplier = 2
	}
	switch {
	case b.Initial < shortestPause:
		return b, invalidf("backoff of %v, less than %v", b.Initial, shortestPause)
	case b.Max < b.Initial:
		return b, invalidf("backoff from %v to %v", b.Initial, b.Max)
	case b.Multiplier < 0:
		return b, invalidf("backoff with multiplier %d", b.Multiplier)
	}
	return b, nil
}

// pause is the next pause after so many, of which last was the last: Redisson's rule, whose jitter grows by up to a
// millisecond each time.
func (b Backoff) pause(looks int, last time.Duration) time.Duration {
	switch {
	case looks == 0:
		return b.Initial
	case last > b.Max/time.Duration(b.Multiplier):
		return b.Max
	}
	jitter := time.Duration(rand.IntN(looks)) * time.Millisecond
	if b.Multiplier == 1 && b.Initial == b.Max {
		jitter = 0
	}
	return min(b.Max, last*time.Duration(b.Multiplier)+jitter)
}
