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
		acquire: script.New(plainAcquire),
		release: script.New(plainRelease),
		undo:    script.New(plainUndo),
		renew:   script.New(plainRenew),
		force:   script.New(plainForce),
		info:    script.New(plainInfo),
	}
}

// plainOwner is a value that nobody else has: 16 random bytes in hexadecimal.
func plainOwner(*Client, request) string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Plain is the lock that redsync, redislock, node-redlock and others have: a string that is set with SET NX PX to a random
// value and deleted by who knows that value. It excludes them and is excluded by them; Redisson's locks are hashes, so on a
// key of one of those it returns [ErrWrongType]. Nobody is told of a release: who waits looks again and again, as for a
// [Spin] lock. An [Owner] cannot take it a second time: it gets [ErrReentry]. With a [NewRedlock] of Plain locks one takes
// part in their Redlock.
type Plain struct{ Handle }

// Plain returns the lock of that name, with the zero [Backoff] as its pauses. What is wrong with a name is said by the first
// call that uses it.
func (c *Client) Plain(name string) *Plain {
	h := c.handle(plainKind.get(), name)
	backoff, _ := Backoff{}.withDefaults()
	h.target.backoff = backoff.pause
	return &Plain{h}
}
