package kinds

import "embed"

//go:embed lua/fair_*.lua
var fairLua embed.FS

// Fair is Redisson's fair RLock: stored as Reentrant, with a queue.
var Fair = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "fair",
		channel: channelPrefix,
		Keys:    fairKeys,
		Acquire: named("fair_acquire", fairLua),
		Release: named("fair_release", fairLua),
		Undo:    named("fair_undo", fairLua),
		Renew:   Reentrant.Get().Renew,
		Force:   named("fair_force", fairLua, reentrantLua),
		Info:    named("fair_info", fairLua, reentrantLua),
		Pass:    named("fair_pass", fairLua),
	}
}}

// NonReentrantFair is Fair, except for an argument of Acquire.
var NonReentrantFair = &Lazy[*Kind]{Make: func() *Kind { return like(Fair.Get(), "nonreentrantfair") }}
