package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed lua/reentrant_acquire.lua
var reentrantAcquire string

//go:embed lua/reentrant_release.lua
var reentrantRelease string

//go:embed lua/reentrant_single.lua
var reentrantSingle string

//go:embed lua/reentrant_undo.lua
var reentrantUndo string

//go:embed lua/reentrant_renew.lua
var reentrantRenew string

//go:embed lua/reentrant_force.lua
var reentrantForce string

//go:embed lua/reentrant_handover.lua
var reentrantHandover string

//go:embed lua/reentrant_keep.lua
var reentrantKeep string

//go:embed lua/reentrant_info.lua
var reentrantInfo string

//go:embed lua/nonreentrant_acquire.lua
var nonreentrantAcquire string

//go:embed lua/fenced_acquire.lua
var fencedAcquire string

//go:embed lua/fenced_handover.lua
var fencedHandover string

//go:embed lua/fenced_info.lua
var fencedInfo string

var (
	reentrant    = &Lazy[*Kind]{Make: newReentrant}
	nonReentrant = &Lazy[*Kind]{Make: newNonReentrant}
	spin         = &Lazy[*Kind]{Make: newSpin}
	fenced       = &Lazy[*Kind]{Make: newFenced}
)

// Reentrant is Redisson's RLock.
func Reentrant() *Kind { return reentrant.Get() }

// NonReentrant is stored as Reentrant, and refuses the owner of the lock.
func NonReentrant() *Kind { return nonReentrant.Get() }

// Spin is stored as Reentrant. Its waiters poll, so it has no line.
func Spin() *Kind { return spin.Get() }

// Fenced is stored as Reentrant, and counts its acquires in a key of its own.
func Fenced() *Kind { return fenced.Get() }

func newReentrant() *Kind {
	return &Kind{
		Name:     "reentrant",
		channel:  channelPrefix,
		Acquire:  script.Named("reentrant_acquire", lined(reentrantAcquire)),
		Release:  script.Named("reentrant_release", lined(reentrantRelease)),
		Undo:     script.Named("reentrant_undo", lined(reentrantUndo)),
		Renew:    script.Named("reentrant_renew", reentrantRenew),
		Force:    script.Named("reentrant_force", lined(reentrantForce)),
		Info:     script.Named("reentrant_info", reentrantInfo),
		HandOver: script.Named("reentrant_handover", reentrantHandover),
		Single:   script.Named("reentrant_single", lined(reentrantSingle)),
		Keep:     script.Named("reentrant_keep", reentrantKeep),
		Quit:     quit.Get(),
	}
}

func newNonReentrant() *Kind {
	k := like(Reentrant(), "nonreentrant")
	k.Acquire = script.Named("nonreentrant_acquire", lined(nonreentrantAcquire))
	return k
}

func newSpin() *Kind {
	k := like(Reentrant(), "spin")
	k.HandOver, k.Quit = nil, nil
	return k
}

func newFenced() *Kind {
	k := like(Reentrant(), "fenced")
	k.Token = tokenKey
	k.Acquire = script.Named("fenced_acquire", lined(fencedAcquire))
	k.Info = script.Named("fenced_info", fencedInfo)
	k.HandOver = script.Named("fenced_handover", fencedHandover)
	return k
}
