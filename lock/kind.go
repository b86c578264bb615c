package lock

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// kind is the client's side of a kind of lock: how callers wait for it, own it and share it. [kinds.Kind] is the server's side.
type kind struct {
	*kinds.Kind // keys and scripts

	storedAs         *kind                            // the kind whose stored form and holds this kind shares; nil if its own
	args             func(w wish) []any               // own ARGV of acquire and undo; nil for none
	parse            func(v resp.Value) (Info, error) // parses the reply of info
	owner            func(permits int) string         // the owner if the caller passes none; nil for Client.nextOwner
	afterGrant       wakes                            // the waiters in line that ask at once after a grant to a caller of this process
	silent           bool                             // no release is published: waiters poll by the target's backoff
	reentersOnSource bool                             // a further hold of the owner creates no key, so the source of a migrating slot can grant it
	twin             *kind                            // the other half of a read-write lock; an Owner of that half does not stand in line for this one
	permits          bool                             // has permits, which need a setup and have no Owner
	divisible        bool                             // a lease can lose some of its permits or values: Unlock releases the rest
	show             func(owner string) string        // converts the owner to text; nil if already text
}

// wish is what kind.args may use of a request.
type wish struct {
	permits   int
	setup     bool          // waits for the setup of permits
	forever   bool          // without a lease
	announces bool          // a waiting writer announces itself to readers
	wait      time.Duration // distance between deadlines in a queue on the server
	inQueue   bool          // the owner stands in the queue
	publish   string        // the command that publishes a release
	token     int64         // the fencing token of the Owner's holds; 0 if none of them has one

	// See Config.
	preferWriters bool
	plainTokens   bool
	tokenLife     time.Duration
}

const (
	permitSize = 16 // length of the id of a permit, in bytes
	plainSize  = 16 // bytes of the value of a Plain lock
)

// variant returns a kind that is stored as base and behaves like it, for the caller to change.
func variant(k *kinds.Kind, base *kind) *kind {
	v := *base
	v.Kind = k
	if v.storedAs == nil {
		v.storedAs = base
	}
	return &v
}

// isRead reports whether k is the read half of a read-write lock.
func (k *kind) isRead() bool { return k.Reads && k.Suffix == "" }

// isWrite reports whether k is the write half of a read-write lock.
func (k *kind) isWrite() bool { return k.Suffix != "" }

// queued reports whether the server keeps the queue, in which each waiter has its own owner and channel.
func (k *kind) queued() bool { return k.Pass != nil }

// unowned reports whether k has no leases: the server does not know who has a permit, or has waited for a latch.
func (k *kind) unowned() bool { return k.Renew == nil }

// passesOn reports whether a hold may pass to the next waiter of the process, by a relay or a hand-over. A write lock has relays only.
func (k *kind) passesOn() bool { return k.HandOver != nil || k.isWrite() }

// wakes selects the waiters in line that may also have a lock just acquired.
type wakes uint8

const (
	wakeNobody wakes = iota
	wakeNext
	wakeAll
)

// entryKey names a lock within one client.
type entryKey struct {
	kind *kind
	name string
}

// awaitedAs returns the key of the lock's line in the table.
func (t *target) awaitedAs() entryKey { return entryKey{t.kind, t.lineName} }

// heldAs returns the key of the lock's leases in the table, the same for kinds that share one lock on the server.
func (t *target) heldAs() entryKey { return entryKey{t.storedKind(), t.Name} }

// includes reports whether an Owner who has t may have other at once: the same lock, also as another kind, or the read half beneath the write half.
func (t *target) includes(other *target) bool {
	return t.Name == other.Name && (t.storedKind() == other.storedKind() || t.kind.isWrite() && t.kind.twin == other.kind)
}

// storedKind returns the kind in whose form the server has the lock: reentrant for a fair lock.
func (t *target) storedKind() *kind { return cmp.Or(t.kind.storedAs, t.kind) }

// target is one lock: a kind and a name. A target never changes.
type target struct {
	remote.Lock // as the server sees it
	kind        *kind
	lineName    string                                            // the name of the line in this process
	values      string                                            // the fields of the values of a group, with spaces between them; "" for other kinds
	renewKey    string                                            // the key of the lock in the KEYS of renew
	tokenKey    string                                            // the key of the last token; "" for none
	ownKeys     []string                                          // the kind's own keys
	backoff     func(looks int, last time.Duration) time.Duration // of a silent kind: the pause after looks, and a pause of last
}

func newTarget(k *kind, name string) target {
	t := target{kind: k, lineName: name, renewKey: name}
	t.Lock = remote.Lock{Name: name, KindName: k.Name, Silent: k.silent, Queued: k.queued(), Readers: k.twin != nil, Message: "0"}
	if t.Readers || k.permits {
		t.Message = "1"
	}
	t.Channel, t.Line = k.ChannelAndLine(name)
	if k.Lease != nil {
		t.renewKey = k.Lease(name)
	}
	if k.Token != nil {
		t.tokenKey = k.Token(name)
	}
	if k.Keys != nil {
		t.ownKeys = k.Keys(name)
	}
	return t
}

// parseBothHalves is parse, except for read-write locks: their Info has the holders of both halves.
func (k *kind) parseBothHalves(v resp.Value) (Info, error) {
	if k.twin != nil {
		return parseReadWrite(v, "")
	}
	return k.parse(v)
}

func (t *target) info(ctx context.Context, scripts *remote.Runner) (Info, error) {
	v, err := scripts.Run(ctx, t.infoCall())
	if err != nil {
		return Info{}, serverError(err)
	}
	return t.kind.parse(v)
}

// infoCall returns a call of the script info.
func (t *target) infoCall() *remote.Call {
	return &remote.Call{Script: t.kind.Info, Lock: t.Lock, Keys: t.appendInfoKeys(nil), Args: t.withValues(), Apart: remote.Apart{OnSource: true}}
}

// maxKeys is the number of KEYS of most scripts, at most.
const maxKeys = 8

// baseKeys returns the KEYS of force: the lock, its channel and the kind's own.
func (t *target) baseKeys() []string { return t.appendBaseKeys(make([]string, 0, maxKeys)) }

func (t *target) appendBaseKeys(dst []string) []string {
	return append(append(dst, t.Name, t.Channel), t.ownKeys...)
}

// readKind is storedKind, except for a write lock: then it is the kind of the read lock.
func (t *target) readKind() *kind {
	if t.kind.isWrite() {
		return t.kind.twin
	}
	return t.storedKind()
}

// ownerKeys returns the KEYS of a script about one owner. For a read-write lock, the lease of the owner's first read hold precedes the
// latch, and the leases of further read holds follow: reads in all, at least 1.
func (t *target) ownerKeys(owner string, reads int64, latch string) []string {
	if !t.kind.Reads {
		return t.withLine(append(t.baseKeys(), latch))
	}
	leases := kinds.ReadLeases(t.Name, strings.TrimSuffix(owner, t.kind.Suffix), reads)
	return t.withLine(append(append(t.baseKeys(), leases[0], latch), leases[1:]...))
}

// withLine appends the key of the line to keys, if the kind has a line.
func (t *target) withLine(keys []string) []string {
	if t.Line == "" {
		return keys
	}
	return append(keys, t.Line)
}

// appendHandOverKeys appends the KEYS of handover without latches to dst, which is empty.
func (t *target) appendHandOverKeys(dst []string) []string {
	if t.tokenKey != "" {
		return append(dst, t.Name, t.tokenKey)
	}
	return t.appendBaseKeys(dst)
}

// appendInfoKeys appends the KEYS of info, and those of an acquire ahead of the latch, to dst, which is empty.
func (t *target) appendInfoKeys(dst []string) []string {
	if t.tokenKey == "" && t.ownKeys == nil {
		return append(dst, t.Name)
	}
	return t.appendHandOverKeys(dst)
}

// overlaps reports whether t and other are locks of one group with a value in common, or locks without values.
func (t *target) overlaps(other *target) bool {
	if t.values == "" {
		return true
	}
	mine := strings.Fields(t.values)
	return slices.ContainsFunc(strings.Fields(other.values), func(v string) bool {
		_, found := slices.BinarySearch(mine, v)
		return found
	})
}

// exclusive reports whether the lock has a single owner at a time. Owners of a group may hold different values of it.
func (t *target) exclusive() bool { return t.kind.afterGrant == wakeNobody && t.values == "" }

// withValues returns args followed by the values, if the lock has values.
func (t *target) withValues(args ...any) []any {
	if t.values == "" {
		return args
	}
	return append(args, t.values)
}

// checkName rejects names for which the rule of prefixes would produce another hash slot. By the Redis cluster specification,
// the hash tag is the text between the first { and the next }, unless empty.
func checkName(name string) error {
	if name == "" {
		return invalidf("empty name")
	}
	open := strings.IndexByte(name, '{')
	if open < 0 {
		if strings.Contains(name, "}") {
			return invalidf("a name with } but no { breaks its hash tag")
		}
		return nil
	}
	switch strings.IndexByte(name[open:], '}') {
	case -1:
		return invalidf("a name with { but no } behind it breaks its hash tag")
	case 1:
		return invalidf("a name with {} as its first braces has an empty hash tag")
	}
	return nil
}

// checkCountdown rejects all names with braces. Redisson wraps the name in another pair of braces, so the channel of
// such a latch would have another hash tag than its key.
func checkCountdown(name string) error {
	if strings.ContainsAny(name, "{}") {
		return invalidf("the channel of a countdown latch is in another hash slot if the name has braces")
	}
	return checkName(name)
}
