package kinds

import "embed"

//go:embed lua/plain_*.lua
var plainLua embed.FS

// Plain is the lock of redsync, redislock and others: a string.
var Plain = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "plain",
		channel: channelPrefix,
		Acquire: named("plain_acquire", plainLua),
		Release: named("plain_release", plainLua),
		Keep:    named("plain_keep", plainLua),
		Undo:    named("plain_undo", plainLua),
		Renew:   named("plain_renew", plainLua),
		Force:   named("plain_force", plainLua),
		Info:    named("plain_info", plainLua),
	}
}}
