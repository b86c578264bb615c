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
	return scripted(Kind{Name: "reentrant", channel: channelPrefix, Quit: quit.Get()}, reentrantLua)
}}

// NonReentrant is stored as Reentrant, and refuses the owner of the lock.
var NonReentrant = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(like(Reentrant.Get(), "nonreentrant"), nonReentrantLua, reentrantLua)
}}

// Spin is stored as Reentrant. Its waiters poll, so it has no line.
var Spin = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Reentrant.Get(), "spin")
	k.HandOver, k.Quit = nil, nil
	return &k
}}

// Fenced is stored as Reentrant, and counts its acquires in a key of its own.
var Fenced = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Reentrant.Get(), "fenced")
	k.Token = tokenKey
	return scripted(k, fencedLua, reentrantLua)
}}
