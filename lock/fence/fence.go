// Package fence protects a resource with fencing tokens: it refuses a token older than the newest
// token seen.
//
// A lock in Redis ends with its lease, even if the holder has not noticed. A process stopped for
// longer than the lease, or a delayed request, can reach the resource while the next holder is
// already working. Only the resource can prevent damage: it remembers the largest token and refuses
// smaller tokens, in the same step as the work. [lock.Lease.Token] returns the token of a lock made
// by [lock.Client.Fenced].
//
// [Guard] protects a resource inside the process. The examples show a row in an SQL database and a
// key in Redis.
//
// [lock.Lease.Token]: https://pkg.go.dev/github.com/lockwire/lockwire/lock#Lease.Token
// [lock.Client.Fenced]: https://pkg.go.dev/github.com/lockwire/lockwire/lock#Client.Fenced
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale reports a token older than a token seen before. The token's holder has lost its lock.
var ErrStale = errors.New("fence: stale token")

// Guard admits the holder of the largest token so far. The zero Guard has seen no token. Any number
// of goroutines may call its methods at once. A Guard must not be copied.
type Guard struct {
	mu      sync.Mutex
	largest int64
}

// Do runs fn and returns its error, unless token is smaller than a token seen before: then Do
// returns [ErrStale]. Tokens below 1 are always stale, because they come from locks without
// fencing. Do runs one fn at a time, so no fn sees the work of a later holder, and fn must not
// call the Guard. If fn panics, Do panics.
func (g *Guard) Do(token int64, fn func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < 1 || token < g.largest {
		return fmt.Errorf("%w: %d, after %d", ErrStale, token, g.largest)
	}
	g.largest = token
	return fn()
}

// Largest returns the largest token seen, or 0. Store it with the resource, for Restore after a
// restart. Largest waits for a running Do.
func (g *Guard) Largest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.largest
}

// Restore marks token as seen. It has no effect if a larger token was seen.
func (g *Guard) Restore(token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.largest = max(g.largest, token)
}
