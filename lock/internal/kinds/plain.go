package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed lua/plain_acquire.lua
var plainAcquire string

//go:embed lua/plain_release.lua
var plainRelease string

//go:embed lua/plain_keep.lua
var plainKeep string

//go:embed lua/plain_undo.lua
var plainUndo string

//go:embed lua/plain_renew.lua
var plainRenew string

//go:embed lua/plain_force.lua
var plainForce string

//go:embed lua/plain_info.lua
var plainInfo string

var plain = &Lazy[*Kind]{Make: newPlain}

// Plain is the lock of redsync, redislock and others: a string.
func Plain() *Kind { return plain.Get() }

func newPlain() *Kind {
	return &Kind{
		Name:    "plain",
		channel: channelPrefix,
		Acquire: script.Named("plain_acquire", plainAcquire),
		Release: script.Named("plain_release", plainRelease),
		Keep:    script.Named("plain_keep", plainKeep),
		Undo:    script.Named("plain_undo", plainUndo),
		Renew:   script.Named("plain_renew", plainRenew),
		Force:   script.Named("plain_force", plainForce),
		Info:    script.Named("plain_info", plainInfo),
	}
}
