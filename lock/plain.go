package lock

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/lockwire/lockwire/lock/internal/kinds"
)

var plainKind = &kinds.Lazy[*kind]{Make: func() *kind {
	return &kind{Kind: kinds.Plain.Get(), parse: parseHolders, owner: plainOwner, silent: true}
}}

// plainOwner returns a unique value: random bytes in hexadecimal.
func plainOwner(int) string {
	var id [plainSize]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Plain is the lock of redsync, redislock, node-redlock and others: a string with a random value, set by SET NX PX and
// deleted only with a matching value. A Plain lock and a redsync lock of the same name exclude each other. On the key of a
// Redisson lock, a hash, Plain returns [ErrWrongType].
//
// A Plain lock has no notifications: waiters ask again and again, like waiters of a [Spin] lock, and share the lock as
// badly. An [Owner] cannot take a held Plain lock again and gets [ErrReentry]. A [NewRedlock] of Plain locks is compatible
// with the Redlock of redsync.
type Plain struct{ Handle }

// Plain returns the lock with the given name. Its waiters pause by the zero [Backoff]. An invalid name is reported by the
// first method that uses it, not here.
func (c *Client) Plain(name string) *Plain {
	h := c.handle(plainKind.Get(), name)
	backoff, _ := Backoff{}.withDefaults()
	h.target.backoff = backoff.pause
	return &Plain{h}
}
