package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed lua/fair_acquire.lua
var fairAcquire string

//go:embed lua/fair_release.lua
var fairRelease string

//go:embed lua/fair_undo.lua
var fairUndo string

//go:embed lua/fair_force.lua
var fairForce string

//go:embed lua/fair_pass.lua
var fairPass string

//go:embed lua/fair_info.lua
var fairInfo string

var (
	fair             = &Lazy[*Kind]{Make: newFair}
	nonReentrantFair = &Lazy[*Kind]{Make: newNonReentrantFair}
)

// Fair is Redisson's fair RLock: stored as Reentrant, with a queue.
func Fair() *Kind { return fair.Get() }

// NonReentrantFair is Fair, except for an argument of Acquire.
func NonReentrantFair() *Kind { return nonReentrantFair.Get() }

func newFair() *Kind {
	return &Kind{
		Name:    "fair",
		channel: channelPrefix,
		Keys:    fairKeys,
		Acquire: script.Named("fair_acquire", fairAcquire),
		Release: script.Named("fair_release", fairRelease),
		Undo:    script.Named("fair_undo", fairUndo),
		Renew:   Reentrant().Renew,
		Force:   script.Named("fair_force", fairForce),
		Info:    script.Named("fair_info", fairInfo),
		Pass:    script.Named("fair_pass", fairPass),
	}
}

func newNonReentrantFair() *Kind { return like(Fair(), "nonreentrantfair") }
