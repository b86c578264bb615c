package lock

import (
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// kind is a lock kind as the acquire loop, the waiters, the watchdog and the lease see it. All of its scripts but renew take as
// KEYS the lock, its channel, the kind's own keys, and then a latch where there is one; acquire and undo take the kind's
// own ARGV behind those that all kinds have, and release of a queued kind one more. Their headers name them. What takes or changes
// something says until when it is good: see arrival.go. A script touches no other keys, but for the leases of other readers.
type kind struct {
	name    string
	like    *kind // of a kind whose locks are to the server, once taken, those of another: that other; nil: itself
	channel func(name string) string
	keys    func(name string) []string        // own keys; nil: none
	token   func(name string) string          // of a kind with tokens: the key of the last one, KEYS[2] of acquire, handover and info
	reads   bool                              // its scripts take the leases of the owner's read holds: see target.of
	lease   func(name string) string          // the key that has the lease, which renew takes; nil: the lock
	args    func(c *Client, r request) []any  // own ARGV of acquire and undo; nil: none
	parse   func(v resp.Value) (Info, error)  // what info returns; nil: parseHolders
	owner   func(c *Client, r request) string // who holds it, when no Owner is passed; nil: Client.nextOwner
	suffix  string                            // behind the owner in the lock's hash
	others  follow                            // who else may have it, now that one has it
	queued  bool                              // the server keeps the line: a waiter stands in it under its own owner and channel
	silent  bool                              // nobody is told of a release: waiters look by the target's backoff
	joins   bool                              // a further hold of an owner who has the lock makes no key
	unowned bool                              // who acquires has nothing to give back: there is no lease, and no release
	twin    *kind                             // the other half of a read-write lock: who has that does not stand in line for this one
	tells   bool                              // a waiter tells the server so, if the client's Config asks for it
	permits bool                              // it has permits, which somebody has to set up, and which have no Owner
	parted  bool                              // a part of what a lease holds can be lost: Unlock gives back the rest
	show    func(owner string) string         // the owner as text; nil: it is text

	more map[string]*script.Script // what else is done with it, by operation

	acquire, release, undo, renew, force, info *script.Script // undo is nil if acquire changes nothing: then it takes no latch, and may be late
	downgrade                                  *script.Script // turns a hold into one of the twin; nil if there is no such thing
	pass                                       *script.Script // of a queued kind: see Client.pass
	handover                                   *script.Script // nil if the lock is never handed over
	single                                     *script.Script // release of an owner with no other hold, ever; nil: release
}

// variant returns a kind whose locks are to the server those of base. It is like base but for what the caller changes.
func variant(name string, base *kind) *kind {
	k := *base
	k.name = name
	if k.like == nil {
		k.like = base
	}
	return &k
}

// lazy is a value that is made when it is first asked for. Declared by a composite literal it takes no initialization, so that
// a kind that a program never mentions is not linked into it.
type lazy[T any] struct {
	make  func() T // constant
	once  sync.Once
	value T // set by once
}

func (l *lazy[T]) get() T {
	l.once.Do(func() { l.value = l.make() })
	return l.value
}

// follow says which of the waiters in line may have the lock too when one has got it.
type follow uint8

const (
	nobody follow = iota
	next
	everybody
)

// target is one lock: a kind and a name. It never changes.
type target struct {
	kind    *kind
	name    string
	channel string
	lease   string                                            // KEYS of renew
	keys    []string                                          // KEYS of force: the lock, its channel, the kind's own
	first   []string                                          // KEYS of info, and of an acquire that takes no latch
	backoff func(looks int, last time.Duration) time.Duration // of a silent kind: the pause after so many looks and a last one
}

func newTarget(k *kind, name string) *target {
	t := &target{
		kind:    k,
		name:    name,
		channel: k.channel(name),
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

// with returns the keys and a latch behind them.
func (t *target) with(latch string) []string {
	keys := make([]string, 0, 8)
	return append(append(keys, t.keys...), latch)
}

// of returns the KEYS of a script that is about one owner, whose turn the caller has if it is an [Owner]. Of a read-write lock the
// lease of the owner's first read hold stands in front of the latch, and those of the others behind it.
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
	return t.passing(r.latch)
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
