package kinds

import _ "embed"

var (
	//go:embed lua/reentrant_acquire.lua
	reentrantAcquire string
	//go:embed lua/reentrant_take.lua
	reentrantTake string
	//go:embed lua/reentrant_holder.lua
	reentrantHolder string
	//go:embed lua/reentrant_release.lua
	reentrantRelease string
	//go:embed lua/reentrant_single.lua
	reentrantSingle string
	//go:embed lua/reentrant_undo.lua
	reentrantUndo string
	//go:embed lua/reentrant_renew.lua
	reentrantRenew string
	//go:embed lua/reentrant_force.lua
	reentrantForce string
	//go:embed lua/reentrant_handover.lua
	reentrantHandover string
	//go:embed lua/reentrant_keep.lua
	reentrantKeep string
	//go:embed lua/reentrant_info.lua
	reentrantInfo string
	//go:embed lua/nonreentrant_acquire.lua
	nonreentrantAcquire string
	//go:embed lua/fenced_acquire.lua
	fencedAcquire string
	//go:embed lua/fenced_draw.lua
	fencedDraw string
	//go:embed lua/fenced_handover.lua
	fencedHandover string
	//go:embed lua/fenced_info.lua
	fencedInfo string
)

// Reentrant is Redisson's RLock.
var Reentrant = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:     "reentrant",
		channel:  channelPrefix,
		Acquire:  named("reentrant_acquire", taking(reentrantAcquire)),
		Release:  named("reentrant_release", reentrantRelease),
		Undo:     named("reentrant_undo", reentrantUndo),
		Renew:    named("reentrant_renew", reentrantRenew),
		Force:    named("reentrant_force", holding(reentrantForce)),
		Info:     named("reentrant_info", holding(reentrantInfo)),
		HandOver: named("reentrant_handover", reentrantHandover),
		Single:   named("reentrant_single", reentrantSingle),
		Keep:     named("reentrant_keep", reentrantKeep),
		Quit:     quit.Get(),
	}
}}

// taking returns a script's source with the text of reentrant_take.lua.
func taking(source string) string { return with(source, "reentrant_take.lua", reentrantTake) }

// holding returns a script's source with the text of reentrant_holder.lua.
func holding(source string) string { return with(source, "reentrant_holder.lua", reentrantHolder) }

// NonReentrant is stored as Reentrant, and refuses the owner of the lock.
var NonReentrant = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Reentrant.Get(), "nonreentrant")
	k.Acquire = named("nonreentrant_acquire", taking(nonreentrantAcquire))
	return k
}}

// Spin is stored as Reentrant. Its waiters poll, so it has no line.
var Spin = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Reentrant.Get(), "spin")
	k.HandOver, k.Quit = nil, nil
	return k
}}

// Fenced is stored as Reentrant, and counts its acquires in a key of its own.
var Fenced = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Reentrant.Get(), "fenced")
	k.Token = tokenKey
	k.Acquire = named("fenced_acquire", taking(drawing(fencedAcquire)))
	k.Info = named("fenced_info", holding(fencedInfo))
	k.HandOver = named("fenced_handover", drawing(fencedHandover))
	return k
}}

// drawing returns a script's source with the function of fenced_draw.lua.
func drawing(source string) string { return with(source, "fenced_draw.lua", fencedDraw) }
