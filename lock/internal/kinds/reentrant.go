package kinds

import "embed"

var (
	//go:embed lua/reentrant_*.lua
	reentrantLua embed.FS
	//go:embed lua/nonreentrant_*.lua
	nonReentrantLua embed.FS
	//go:embed lua/fenced_*.lua
	fencedLua embed.FS
)

// Reentrant is Redisson's RLock.
var Reentrant = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:     "reentrant",
		channel:  channelPrefix,
		Acquire:  named("reentrant_acquire", reentrantLua),
		Release:  named("reentrant_release", reentrantLua),
		Undo:     named("reentrant_undo", reentrantLua),
		Renew:    named("reentrant_renew", reentrantLua),
		Force:    named("reentrant_force", reentrantLua),
		Info:     named("reentrant_info", reentrantLua),
		HandOver: named("reentrant_handover", reentrantLua),
		Single:   named("reentrant_single", reentrantLua),
		Keep:     named("reentrant_keep", reentrantLua),
		Quit:     quit.Get(),
	}
}}

// NonReentrant is stored as Reentrant, and refuses the owner of the lock.
var NonReentrant = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Reentrant.Get(), "nonreentrant")
	k.Acquire = named("nonreentrant_acquire", nonReentrantLua, reentrantLua)
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
	k.Acquire = named("fenced_acquire", fencedLua, reentrantLua)
	k.Info = named("fenced_info", fencedLua, reentrantLua)
	k.HandOver = named("fenced_handover", fencedLua, reentrantLua)
	return k
}}
