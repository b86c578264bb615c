// Package fence is the resource's side of a fencing token: it refuses who comes with an older token than somebody before.
//
// A lock in Redis ends with its lease, whether or not its holder has noticed. A process that was stopped for longer than
// that, or whose request was long on its way, can reach the resource when the next holder is at work already. Only the
// resource itself can tell: it remembers the largest token it has seen, and refuses smaller ones, in the same step as it
// does what it is asked for. Tokens come from [lock.Lease.Token] of a lock made by [lock.Client.Fenced].
//
// [Guard] is for a resource within the process. The examples show the same for a row in an SQL database and for a key in Redis.
//
// [lock.Lease.Token]: https://pkg.go.dev/github.com/lockwire/lockwire/lock#Lease.Token
// [lock.Client.Fenced]: https://pkg.go.dev/github.com/lockwire/lockwire/lock#Client.Fenced
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale says that a token is older than one seen before: whoever has it has lost its lock.
var ErrStale = errors.New("fence: stale token")

// Guard lets through who comes with the largest token so far, and with that one again. The zero Guard has seen none. Its methods
// may be called by any number of goroutines at once. It must not be copied.
type Guard struct {
	mu      sync.Mutex
	largest int64
}

// Do runs fn if token is not older than any seen before, and returns its error; otherwise it returns [ErrStale]. Tokens below
// 1 are stale: they come from locks that are not fenced. Only one fn runs at a time, so none sees the work of a later
// token's holder. A panic of fn goes through.
func (g *Guard) Do(token int64, fn func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < 1 || token < g.largest {
		return fmt.Errorf("%w: %d, after %d", ErrStale, token, g.largest)
	}
	g.largest = token
	return fn()
}

// Largest returns the largest token seen, 0 before the first: what to store with the resource so that Restore can go on from
// there. It waits for a Do that is under way.
func (g *Guard) Largest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.largest
}

// Restore makes token one that has been seen. It does nothing if a larger one has.
func (g *Guard) Restore(token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.largest = max(g.largest, token)
}
