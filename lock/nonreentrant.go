package lock

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed nonreentrant_acquire.lua
var nonReentrantAcquire string

var nonReentrantKind = &lazy[*kind]{make: newNonReentrantKind}

func newNonReentrantKind() *kind {
	k := variant("nonreentrant", reentrantKind.get())
	k.acquire = script.Named("nonreentrant_acquire", lined(nonReentrantAcquire))
	return k
}

// NonReentrant is Redisson's RLock of getNonReentrantLock: an exclusive lock. An [Owner] already holding the lock gets
// [ErrReentry] at once. On the server the lock is the same as the [Reentrant] lock of the same name.
type NonReentrant struct{ Handle }

// NonReentrant returns the lock with the given name. An invalid name is reported by the first method that uses it, not here.
func (c *Client) NonReentrant(name string) *NonReentrant {
	return &NonReentrant{c.handle(nonReentrantKind.get(), name)}
}
