package lock

import "github.com/lockwire/lockwire/lock/internal/kinds"

var reentrantKind = &kinds.Lazy[*kind]{Make: newReentrantKind}

func newReentrantKind() *kind { return &kind{Kind: kinds.Reentrant(), joins: true} }

// Reentrant is Redisson's RLock (getLock): an exclusive lock. Its holder may take the lock again with the same [Owner].
type Reentrant struct{ Handle }

// Reentrant returns the lock with the given name. The name is the lock's key on the server, as in Redisson. An invalid name
// is reported by the first method that uses it, not here.
func (c *Client) Reentrant(name string) *Reentrant {
	return &Reentrant{c.handle(reentrantKind.Get(), name)}
}
