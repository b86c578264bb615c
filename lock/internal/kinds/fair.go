package kinds

import _ "embed"

var (
	//go:embed lua/fair_acquire.lua
	fairAcquire string
	//go:embed lua/fair_release.lua
	fairRelease string
	//go:embed lua/fair_undo.lua
	fairUndo string
	//go:embed lua/fair_force.lua
	fairForce string
	//go:embed lua/fair_pass.lua
	fairPass string
	//go:embed lua/fair_info.lua
	fairInfo string
	//go:embed lua/fair_head.lua
	fairHead string
	//go:embed lua/fair_tell.lua
	fairTell string
)

// Fair is Redisson's fair RLock: stored as Reentrant, with a queue.
var Fair = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "fair",
		channel: channelPrefix,
		Keys:    fairKeys,
		Acquire: named("fair_acquire", heading(fairAcquire)),
		Release: named("fair_release", heading(fairRelease)),
		Undo:    named("fair_undo", heading(fairUndo)),
		Renew:   Reentrant.Get().Renew,
		Force:   named("fair_force", holding(heading(fairForce))),
		Info:    named("fair_info", holding(fairInfo)),
		Pass:    named("fair_pass", heading(fairPass)),
	}
}}

// heading returns a script's source with the functions of fair_head.lua and fair_tell.lua.
func heading(source string) string {
	return with(with(source, "fair_head.lua", fairHead), "fair_tell.lua", fairTell)
}

// NonReentrantFair is Fair, except for an argument of Acquire.
var NonReentrantFair = &Lazy[*Kind]{Make: func() *Kind { return like(Fair.Get(), "nonreentrantfair") }}
