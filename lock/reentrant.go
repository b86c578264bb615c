package lock

import "github.com/lockwire/lockwire/lock/internal/kinds"

var reentrantKind = &kinds.Lazy[*kind]{Make: func() *kind { return &kind{Kind: kinds.Reentrant.Get(), parse: parseHolders, reentersOnSource: true} }}

// Reentrant is Redisson's RLock (getLock): an exclusive lock. Its holder may take the lock again with the same [Owner].
type Reentrant struct{ Handle }

// Reentrant returns the lock with the given name. The name is the lock's key on the server, as in Redisson. An invalid name
// is reported by the first method that uses it, not here.
func (c *Client) Reentrant(name string) *Reentrant {
	return &Reentrant{c.handle(reentrantKind.Get(), name)}
}

var nonReentrantKind = &kinds.Lazy[*kind]{Make: func() *kind { return variant(kinds.NonReentrant.Get(), reentrantKind.Get()) }}

// NonReentrant is Redisson's RLock of getNonReentrantLock: an exclusive lock. An [Owner] already holding the lock gets
// [ErrReentry] at once. On the server the lock is the same as the [Reentrant] lock of the same name.
type NonReentrant struct{ Handle }

// NonReentrant returns the lock with the given name. An invalid name is reported by the first method that uses it, not here.
func (c *Client) NonReentrant(name string) *NonReentrant {
	return &NonReentrant{c.handle(nonReentrantKind.Get(), name)}
}
