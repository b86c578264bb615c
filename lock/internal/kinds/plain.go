package kinds

import _ "embed"

var (
	//go:embed lua/plain_acquire.lua
	plainAcquire string
	//go:embed lua/plain_release.lua
	plainRelease string
	//go:embed lua/plain_keep.lua
	plainKeep string
	//go:embed lua/plain_undo.lua
	plainUndo string
	//go:embed lua/plain_renew.lua
	plainRenew string
	//go:embed lua/plain_force.lua
	plainForce string
	//go:embed lua/plain_info.lua
	plainInfo string
)

// Plain is the lock of redsync, redislock and others: a string.
var Plain = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "plain",
		channel: channelPrefix,
		Acquire: named("plain_acquire", plainAcquire),
		Release: named("plain_release", plainRelease),
		Keep:    named("plain_keep", plainKeep),
		Undo:    named("plain_undo", plainUndo),
		Renew:   named("plain_renew", plainRenew),
		Force:   named("plain_force", plainForce),
		Info:    named("plain_info", plainInfo),
	}
}}
