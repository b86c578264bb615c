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
	k.acquire = script.New(nonReentrantAcquire)
	return k
}

// NonReentrant is Redisson's RLock of getNonReentrantLock: an exclusive lock that an [Owner] who has it may not take again.
// It gets [ErrReentry] at once. To the server it is the lock that [Reentrant] of the same name is.
type NonReentrant struct{ Handle }

// NonReentrant returns the lock of that name. What is wrong with a name is said by the first call that uses it.
func (c *Client) NonReentrant(name string) *NonReentrant {
	return &NonReentrant{c.handle(nonReentrantKind.get(), name)}
}
