package lock

import "github.com/lockwire/lockwire/script"

// kind is a lock kind as the acquire loop, the waiters, the watchdog and the lease see it: scripts, each with the KEYS
// and ARGV that its header names, and the channel on which a release is published.
type kind struct {
	name    string
	channel func(name string) string

	acquire, release, undo, renew, force, info *script.Script
}

// target is one lock: a kind and a name. It never changes.
type target struct {
	kind     *kind
	name     string
	channel  string
	latch    string   // a request id makes it the key of one release
	lockKey  []string // KEYS of acquire and info
	freeKeys []string // KEYS of undo and force
}

func newTarget(k *kind, name string) *target {
	channel := k.channel(name)
	return &target{
		kind:     k,
		name:     name,
		channel:  channel,
		latch:    prefixName(latchPrefix, name) + ":",
		lockKey:  []string{name},
		freeKeys: []string{name, channel},
	}
}
