package lock

import (
	"errors"
	"fmt"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

var fairKind = &kinds.Lazy[*kind]{Make: newFairKind}

func newFairKind() *kind {
	return &kind{
		Kind:     kinds.Fair(),
		storedAs: reentrantKind.Get(),
		args:     fairArgs,
		parse:    parseFair,
		queued:   true,
		joins:    true,
	}
}

var nonReentrantFairKind = &kinds.Lazy[*kind]{Make: newNonReentrantFairKind}

func newNonReentrantFairKind() *kind {
	k := variant(kinds.NonReentrantFair(), fairKind.Get())
	k.args = nonReentrantFairArgs
	return k
}

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

func fairArgs(w wish) []any {
	return []any{w.wait.Milliseconds(), w.stands, true}
}

func nonReentrantFairArgs(w wish) []any {
	return []any{w.wait.Milliseconds(), w.stands, false}
}

// parseFair parses a reply with the number of waiters, the owner and remaining time of each, and the holders.
func parseFair(v resp.Value) (Info, error) {
	n, err := v.At(0).Int()
	if err == nil && (n < 0 || n > int64(v.Len())/2) {
		err = errors.New("the length of a queue without the queue")
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
