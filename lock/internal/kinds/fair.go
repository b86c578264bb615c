package kinds

import "embed"

//go:embed lua/fair_*.lua
var fairLua embed.FS

// Fair is Redisson's fair RLock: stored as Reentrant, with a queue.
var Fair = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{Name: "fair", channel: channelPrefix, Keys: fairKeys, Renew: Reentrant.Get().Renew}, fairLua, reentrantLua)
}}

// NonReentrantFair is Fair, except for an argument of Acquire.
var NonReentrantFair = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Fair.Get(), "nonreentrantfair")
	return &k
}}
