package lock

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed nonreentrant_acquire.lua
var nonReentrantAcquire string

var nonReentrantKind = &kind{
	name:    "nonreentrant",
	like:    reentrantKind,
	channel: lockChannel,
	acquire: script.New(nonReentrantAcquire),
	release: reentrantKind.release,
	undo:    reentrantKind.undo,
	renew:   reentrantKind.renew,
	force:   reentrantKind.force,
	info:    reentrantKind.info,

	handover: reentrantKind.handover,
}

// NonReentrant is Redisson's RLock of getNonReentrantLock: an exclusive lock that an [Owner] who has it may not take again.
// It gets [ErrReentry] at once. To the server it is the lock that [Reentrant] of the same name is.
type NonReentrant struct{ Handle }

// NonReentrant returns the lock of that name. What is wrong with a name is said by the first call that uses it.
func (c *Client) NonReentrant(name string) *NonReentrant {
	return &NonReentrant{c.handle(nonReentrantKind, name)}
}
