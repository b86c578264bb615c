package lock

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
)

var spinKind = &kinds.Lazy[*kind]{Make: func() *kind {
	k := variant(kinds.Spin.Get(), reentrantKind.Get())
	k.silent = true
	return k
}}

// Spin is Redisson's RLock of getSpinLock: a [Reentrant] lock without pub/sub, for very short holds. Instead of receiving a
// notification, a waiter asks again and again with the pauses of a [Backoff]; in each process a single caller asks at a
// time. Spin and Reentrant locks of the same name exclude each other, but the release of a Spin lock does not wake the
// waiters of the Reentrant lock.
//
// Processes have no turns: a single waiter hardly ever has the lock beside many callers of another process, who pass it on
// among themselves.
type Spin struct{ Handle }

// Spin returns the lock with the given name. An invalid name or backoff is reported by the first method that uses it, not here.
func (c *Client) Spin(name string, backoff Backoff) *Spin {
	h := c.handle(spinKind.Get(), name)
	backoff, err := backoff.withDefaults()
	if h.err == nil {
		h.err = err
	}
	h.target.backoff = backoff.pause
	return &Spin{h}
}

// Backoff configures the pauses between the requests of a [Spin] lock's waiter. The zero Backoff is Redisson's default: 1 ms
// at first, doubled each time with some jitter, at most 128 ms. A pause is at least 100 µs, and ends with the caller's context.
type Backoff struct {
	Initial    time.Duration // the first pause; 0 is the lesser of 1 ms and Max
	Max        time.Duration // the longest pause; 0 is the greater of 128 ms and Initial
	Multiplier int           // ratio of a pause to the previous pause; 0 is 2
}

// ConstantBackoff returns a Backoff with a constant pause of d, 0 for 1 ms. Redisson's default for a constant pause is 64 ms.
func ConstantBackoff(d time.Duration) Backoff { return Backoff{Initial: d, Max: d, Multiplier: 1} }

// shortestPause is the minimum pause, against waiters in a busy loop.
const shortestPause = 100 * time.Microsecond

func (b Backoff) withDefaults() (Backoff, error) {
	b.Max = cmp.Or(b.Max, max(128*time.Millisecond, b.Initial))
	b.Initial = cmp.Or(b.Initial, min(time.Millisecond, b.Max))
	b.Multiplier = cmp.Or(b.Multiplier, 2)
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

// pause returns the next pause after the given number of looks. last is the previous pause. By Redisson's rule the jitter
// grows by up to a millisecond each time.
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
