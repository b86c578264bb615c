package kinds

import "embed"

//go:embed lua/plain_*.lua
var plainLua embed.FS

// Plain is the lock of redsync, redislock and others: a string.
var Plain = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{Name: "plain", channel: channelPrefix}, plainLua)
}}
