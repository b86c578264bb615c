package lock

import (
	"errors"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

var fairKind = &kinds.Lazy[*kind]{Make: func() *kind {
	return &kind{
		Kind:             kinds.Fair.Get(),
		storedAs:         reentrantKind.Get(),
		args:             fairArgs(true),
		parse:            parseFair,
		reentersOnSource: true,
	}
}}

var nonReentrantFairKind = &kinds.Lazy[*kind]{Make: func() *kind {
	k := variant(kinds.NonReentrantFair.Get(), fairKind.Get())
	k.args = fairArgs(false)
	return k
}}

// Fair is Redisson's fair RLock (getFairLock): an exclusive lock granted in the order of the server's queue, to
// waiters of any process. An [Owner] that has the lock may take it again. TryLock does not join the queue, and fails
// while another owner is queued.
//
// A waiter that gives up leaves the queue. A waiter whose process has died is passed over a second or two after its
// turn has come, if the server knows that nobody listens on the waiter's channel any more. A connected waiter that
// does not take the lock is passed over after 15 seconds, and moves to the end of the queue when it returns. The
// server's clock measures all times in the queue. Redisson's clients share the lock and the queue.
//
// Each waiter talks to the server itself and has a channel of its own, so a fair lock costs more than a [Reentrant]
// lock.
type Fair struct{ Handle }

// Fair returns the lock with the given name. An invalid name is reported by the first method that uses the lock, not
// here.
func (c *Client) Fair(name string) *Fair { return &Fair{c.handle(fairKind.Get(), name)} }

// NonReentrantFair is Redisson's RLock of getNonReentrantFairLock: a [Fair] lock without reentry. An [Owner] that
// already has the lock gets [ErrReentry] at once. On the server it is the same lock as Fair of the same name.
type NonReentrantFair struct{ Handle }

// NonReentrantFair returns the lock with the given name. An invalid name is reported by the first method that uses
// the lock, not here.
func (c *Client) NonReentrantFair(name string) *NonReentrantFair {
	return &NonReentrantFair{c.handle(nonReentrantFairKind.Get(), name)}
}

func fairArgs(reentrant bool) func(wish) []any {
	return func(w wish) []any { return []any{w.wait.Milliseconds(), w.inQueue, reentrant} }
}

// parseFair parses a reply with the number of waiters, the owner and remaining time of each, and the holders.
func parseFair(v resp.Value) (Info, error) {
	e := elements{of: v}
	n := e.number()
	if e.err == nil && (n < 0 || n > int64(v.Len())/2) {
		return Info{}, errors.New("lock: info: the length of a queue without the queue")
	}
	var queue []Waiter
	for range n {
		queue = append(queue, Waiter{e.text(), max(e.time(), 0)})
	}
	info := e.holders()
	info.Queue = queue
	return e.done(info)
}
