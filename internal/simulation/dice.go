package simulation

import (
	"math/rand/v2"
	"sync"
	"time"
)

// dice is a source of chance that depends on nothing except the seed and the use. The draws of a goroutine therefore do not
// change the draws of any further goroutine, in whatever order they run.
type dice struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// newDice returns the dice of the seed for a use.
func newDice(seed uint64, use string) *dice {
	mix := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(use) {
		mix = (mix ^ uint64(b)) * 1099511628211
	}
	return &dice{rng: rand.New(rand.NewPCG(seed, mix))}
}

// n is a number below n.
func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// oneIn is true once in n times.
func (d *dice) oneIn(n int) bool { return d.n(n) == 0 }

// upTo is a time below most, in whole microseconds.
func (d *dice) upTo(most time.Duration) time.Duration {
	if most < time.Microsecond {
		return 0
	}
	return time.Duration(d.n(int(most/time.Microsecond))) * time.Microsecond
}

// between is a time from least to most.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + d.upTo(most-least)
}

// pick is a random element.
func pick[T any](d *dice, from []T) T { return from[d.n(len(from))] }
