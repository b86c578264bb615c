package lock

import (
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// kind is a lock kind as seen by the acquire loop, the waiters, the watchdog and the lease. The headers of the
// scripts name their KEYS and ARGV:
//
//   - KEYS, except of renew: the lock, its channel, the kind's own keys, and then the latch, if any. A script touches
//     no further keys, except the leases of other readers.
//   - ARGV of acquire and undo: the arguments common to all kinds, followed by the kind's own. release of a queued
//     kind has one more.
//   - A script that takes or changes something also gets the time until which the request is valid: see arrival.go.
type kind struct {
	name    string
	like    *kind // the kind whose stored form and holds this kind shares; nil if its own
	channel func(name string) string
	keys    func(name string) []string        // own keys; nil for none
	token   func(name string) string          // the key of the last token, KEYS[2] of acquire, handover and info; nil for none
	reads   bool                              // its scripts take the leases of the owner's read holds: see target.of
	lease   func(name string) string          // the key with the lease, for renew; nil for the lock
	args    func(c *Client, r request) []any  // own ARGV of acquire and undo; nil for none
	parse   func(v resp.Value) (Info, error)  // parses the reply of info; nil for parseHolders
	owner   func(c *Client, r request) string // the owner if the caller passes none; nil for Client.nextOwner
	suffix  string                            // follows the owner in the lock's hash
	others  follow                            // the waiters that may also have a lock just acquired
	queued  bool                              // the server keeps the queue, in which each waiter has its own owner and channel
	silent  bool                              // no release is published: waiters poll by the target's backoff
	joins   bool                              // a further hold of the current owner creates no key
	unowned bool                              // without leases and releases: a caller that acquires has nothing to give back
	twin    *kind                             // the other half of a read-write lock: its owner skips the line for this half
	tells   bool                              // a waiter announces itself to the server, if Config asks for it
	permits bool                              // has permits, which need a setup and have no Owner
	parted  bool                              // a lease can lose a part of its permits: Unlock releases the rest
	show    func(owner string) string         // converts the owner to text; nil if already text

	more map[string]*script.Script // further scripts, by operation

	acquire, release, undo, renew, force, info *script.Script // undo: nil if acquire changes nothing and needs no latch
	downgrade                                  *script.Script // turns a hold into a hold of the twin; nil for none
	pass                                       *script.Script // of a queued kind: see Client.pass
	handover                                   *script.Script // nil if the kind has no hand-over
	single                                     *script.Script // release for an owner that never has another hold; nil for release
	quit                                       *script.Script // ends a place in the line of waiting processes; nil if there is no line
}

// variant returns a copy of base with the same stored form, for the caller to change.
func variant(name string, base *kind) *kind {
	k := *base
	k.name = name
	if k.like == nil {
		k.like = base
	}
	return &k
}

// lazy is a value created on first use. A lazy declared by a composite literal needs no initialization, so the linker
// drops kinds that a program never mentions.
type lazy[T any] struct {
	make  func() T // constant
	once  sync.Once
	value T // set by once
}

func (l *lazy[T]) get() T {
	l.once.Do(func() { l.value = l.make() })
	return l.value
}

// follow selects the waiters in line that may also have a lock just acquired.
type follow uint8

const (
	nobody follow = iota
	next
	everybody
)

// target is one lock: a kind and a name. A target never changes.
type target struct {
	kind    *kind
	name    string
	channel string
	line    string                                            // the key of the line of waiting processes; "" for none
	lease   string                                            // KEYS of renew
	keys    []string                                          // KEYS of force: the lock, its channel, the kind's own
	first   []string                                          // KEYS of info, and of an acquire without a latch
	backoff func(looks int, last time.Duration) time.Duration // of a silent kind: the pause after looks, and a pause of last
}

func newTarget(k *kind, name string) *target {
	t := &target{
		kind:    k,
		name:    name,
		channel: k.channel(name),
	}
	if k.quit != nil {
		t.line = prefixName(linePrefix, name)
	}
	if t.lease = name; k.lease != nil {
		t.lease = k.lease(name)
	}
	t.keys = []string{name, t.channel}
	t.first = t.keys[:1]
	if k.token != nil {
		t.first = []string{name, k.token(name)}
	}
	if k.keys != nil {
		t.keys = append(t.keys, k.keys(name)...)
		t.first = t.keys
	}
	return t
}

// with returns the target's keys followed by a latch.
func (t *target) with(latch string) []string {
	keys := make([]string, 0, 8)
	return append(append(keys, t.keys...), latch)
}

// of returns the KEYS of a script about one owner. If the owner is an [Owner], the caller has its turn. For a
// read-write lock, the lease of the owner's first read hold precedes the latch, and the leases of further read holds
// follow.
func (t *target) of(owner string, state *ownerState, latch string) []string {
	if !t.kind.reads {
		return t.with(latch)
	}
	holds := int64(1)
	if state != nil {
		read := t.hold()
		if t.kind.suffix != "" {
			read.kind = t.kind.twin
		}
		holds += state.tallies[read].count
	}
	leases := readLeases(t.name, strings.TrimSuffix(owner, t.kind.suffix), holds)
	keys := append(make([]string, 0, len(t.keys)+1+len(leases)), t.keys...)
	return append(append(keys, leases[0], latch), leases[1:]...)
}

// asking returns the KEYS of acquire.
func (t *target) asking(r *request) []string {
	switch {
	case t.kind.reads:
		return t.of(r.owner, r.state, r.latch)
	case r.latch == "":
		return t.first
	}
	return t.lined(t.passing(r.latch))
}

// lined returns keys followed by the key of the line, if the kind has a line.
func (t *target) lined(keys []string) []string {
	if t.line == "" {
		return keys
	}
	return append(keys, t.line)
}

// passing returns the KEYS of handover.
func (t *target) passing(latch string) []string {
	if t.kind.token != nil {
		return []string{t.name, t.first[1], latch}
	}
	return t.with(latch)
}

// seeing returns the KEYS of info.
func (t *target) seeing() []string {
	if t.kind.token != nil {
		return t.first
	}
	return t.keys
}
