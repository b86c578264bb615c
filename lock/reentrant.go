package lock

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed reentrant_acquire.lua
var reentrantAcquire string

//go:embed reentrant_release.lua
var reentrantRelease string

//go:embed reentrant_single.lua
var reentrantSingle string

//go:embed reentrant_undo.lua
var reentrantUndo string

//go:embed reentrant_renew.lua
var reentrantRenew string

//go:embed reentrant_force.lua
var reentrantForce string

//go:embed reentrant_handover.lua
var reentrantHandover string

//go:embed reentrant_info.lua
var reentrantInfo string

var reentrantKind = &lazy[*kind]{make: newReentrantKind}

func newReentrantKind() *kind {
	return &kind{
		name:    "reentrant",
		channel: lockChannel,
		joins:   true,
		acquire: script.Named("reentrant_acquire", lined(reentrantAcquire)),
		release: script.Named("reentrant_release", lined(reentrantRelease)),
		undo:    script.Named("reentrant_undo", lined(reentrantUndo)),
		renew:   script.Named("reentrant_renew", reentrantRenew),
		force:   script.Named("reentrant_force", lined(reentrantForce)),
		info:    script.Named("reentrant_info", reentrantInfo),

		single:   script.Named("reentrant_single", lined(reentrantSingle)),
		handover: script.Named("reentrant_handover", reentrantHandover),
		quit:     script.Named("all_quit", lined(allQuit)),
	}
}

// Reentrant is Redisson's RLock (getLock): an exclusive lock. Its holder may take the lock again with the same [Owner].
type Reentrant struct{ Handle }

// Reentrant returns the lock with the given name. The name is the lock's key on the server, as in Redisson. An invalid name
// is reported by the first method that uses it, not here.
func (c *Client) Reentrant(name string) *Reentrant {
	return &Reentrant{c.handle(reentrantKind.get(), name)}
}
