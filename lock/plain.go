package lock

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"

	"github.com/lockwire/lockwire/script"
)

//go:embed plain_acquire.lua
var plainAcquire string

//go:embed plain_release.lua
var plainRelease string

//go:embed plain_undo.lua
var plainUndo string

//go:embed plain_renew.lua
var plainRenew string

//go:embed plain_force.lua
var plainForce string

//go:embed plain_info.lua
var plainInfo string

var plainKind = &lazy[*kind]{make: newPlainKind}

func newPlainKind() *kind {
	return &kind{
		name:    "plain",
		channel: lockChannel,
		owner:   plainOwner,
		silent:  true,
		acquire: script.Named("plain_acquire", plainAcquire),
		release: script.Named("plain_release", plainRelease),
		undo:    script.Named("plain_undo", plainUndo),
		renew:   script.Named("plain_renew", plainRenew),
		force:   script.Named("plain_force", plainForce),
		info:    script.Named("plain_info", plainInfo),
	}
}

// plainOwner returns a unique value: 16 random bytes in hexadecimal.
func plainOwner(*Client, request) string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Plain is the lock of redsync, redislock, node-redlock and others: a string with a random value, set by SET NX PX and
// deleted only with a matching value. A Plain lock and a redsync lock of the same name exclude each other. On the key of a
// Redisson lock, a hash, Plain returns [ErrWrongType].
//
// A Plain lock has no notifications: waiters ask again and again, like waiters of a [Spin] lock. An [Owner] cannot take a
// held Plain lock again and gets [ErrReentry]. A [NewRedlock] of Plain locks is compatible with the Redlock of redsync.
type Plain struct{ Handle }

// Plain returns the lock with the given name. Its waiters pause by the zero [Backoff]. An invalid name is reported by the
// first method that uses it, not here.
func (c *Client) Plain(name string) *Plain {
	h := c.handle(plainKind.get(), name)
	backoff, _ := Backoff{}.withDefaults()
	h.target.backoff = backoff.pause
	return &Plain{h}
}
