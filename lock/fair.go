package lock

import (
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed fair_acquire.lua
var fairAcquire string

//go:embed fair_release.lua
var fairRelease string

//go:embed fair_undo.lua
var fairUndo string

//go:embed fair_force.lua
var fairForce string

//go:embed fair_pass.lua
var fairPass string

//go:embed fair_info.lua
var fairInfo string

var fairKind = &lazy[*kind]{make: newFairKind}

func newFairKind() *kind {
	like := reentrantKind.get()
	return &kind{
		name:    "fair",
		like:    like,
		channel: lockChannel,
		keys:    fairKeys,
		args:    fairArgs,
		parse:   parseFair,
		queued:  true,
		joins:   true,
		acquire: script.New(fairAcquire),
		release: script.New(fairRelease),
		undo:    script.New(fairUndo),
		renew:   like.renew,
		force:   script.New(fairForce),
		info:    script.New(fairInfo),
		pass:    script.New(fairPass),
	}
}

var nonReentrantFairKind = &lazy[*kind]{make: newNonReentrantFairKind}

func newNonReentrantFairKind() *kind {
	k := variant("nonreentrantfair", fairKind.get())
	k.args = nonReentrantFairArgs
	return k
}

// minFairWait is several times as long as a waiter may leave the server without a sign.
const minFairWait = 30 * time.Second

// Fair is Redisson's fair RLock (getFairLock): an exclusive lock that goes to those who wait for it in the order in which
// the server has put them in its queue, whichever process they are in. An [Owner] who has it may take it again. TryLock
// does not stand in the queue, and gets nothing while somebody else is in it.
//
// Who stops waiting leaves the queue. A waiter whose process has died is passed over a second or two after the lock has
// come to it, if the server knows that nobody listens on the waiter's channel any more; one that is connected but does not
// come for the lock is passed over after 15 seconds, and stands at the end of the queue when it does come. The times in
// the queue are the server's. To Redisson's clients it is the same lock and the same queue.
//
// Each waiter talks to the server itself and has a channel of its own: a fair lock costs more than a [Reentrant] one.
type Fair struct{ Handle }

// Fair returns the lock of that name. What is wrong with a name is said by the first call that uses it.
func (c *Client) Fair(name string) *Fair { return &Fair{c.handle(fairKind.get(), name)} }

// NonReentrantFair is Redisson's RLock of getNonReentrantFairLock: a [Fair] lock that an [Owner] who has it may not take
// again. It gets [ErrReentry] at once. To the server it is the lock that Fair of the same name is.
type NonReentrantFair struct{ Handle }

// NonReentrantFair returns the lock of that name. What is wrong with a name is said by the first call that uses it.
func (c *Client) NonReentrantFair(name string) *NonReentrantFair {
	return &NonReentrantFair{c.handle(nonReentrantFairKind.get(), name)}
}

func fairKeys(name string) []string {
	return []string{prefixName(queuePrefix, name), prefixName(timeoutPrefix, name), prefixName(idlePrefix, name)}
}

func fairArgs(c *Client, r request) []any {
	return []any{c.queueWait(r).Milliseconds(), c.stands(r), true}
}

func nonReentrantFairArgs(c *Client, r request) []any {
	return []any{c.queueWait(r).Milliseconds(), c.stands(r), false}
}

// queueWait is by how much r's deadline in the queue lies behind the one before it.
func (c *Client) queueWait(r request) time.Duration {
	if r.deadline.IsZero() {
		return c.cfg.FairWait
	}
	return max(min(r.deadline.Sub(r.since), c.cfg.FairWait), time.Millisecond)
}

// parseFair is what a reply says of the number of waiters, of each of them and how long it counts as alive, and of the
// holders.
func parseFair(v resp.Value) (Info, error) {
	n, err := v.At(0).Int()
	if err == nil && (n < 0 || n > int64(v.Len())/2) {
		err = errors.New("a queue that is not there")
	}
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	var queue []Waiter
	for i := range int(n) {
		owner, err := v.At(1 + 2*i).Text()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: queue: %w", err)
		}
		left, err := v.At(2 + 2*i).Int()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: queue: %w", err)
		}
		queue = append(queue, Waiter{owner, max(milliseconds(left), 0)})
	}
	info, err := parseHolders(v, 1+2*int(n))
	info.Queue = queue
	return info, err
}
