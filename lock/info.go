package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Info is what the server knows about a lock.
type Info struct {
	Locked bool
	// Holders are those who have the lock, of this or any other client, Redisson's among them.
	Holders []Holder
	// Remaining is how long the lock stays taken if nothing happens: 0 when it is free, negative when it has no lease
	// and nothing but a release will free it.
	Remaining time.Duration
	// Mode is how a [ReadWrite] lock as a whole is held, whichever half was asked; "" if it is free, and of other kinds.
	Mode Mode
	// Token is the last fencing token of a [Fenced] lock, also when it is free.
	Token int64
	// Permits is what a [Semaphore] or a [PermitSemaphore] has, which is locked while no permit is free.
	Permits Permits
	// Queue holds those who wait for a [Fair] lock in the order in which they will get it, of this or any other client.
	Queue []Waiter
}

// Permits is what a semaphore has.
type Permits struct {
	Set   bool // somebody has set them up
	Free  int  // less than 0 when some are lacking
	Taken int  // of a [PermitSemaphore]
}

// Mode is how a [ReadWrite] lock is held.
type Mode string

// The modes, as Redisson writes them.
const (
	ModeRead  Mode = "read"
	ModeWrite Mode = "write"
)

// Holder is an owner that has a lock.
type Holder struct {
	Owner string // a client's id, a colon, and a number; of a writer with ":write" behind
	Holds int64  // how many times it has taken the lock without releasing it
	// Remaining is how long the holder's lease lasts, negative if it never ends. Readers and permits have leases of their
	// own, and a reader whose leases have all ended, which is 0, goes with the last that lives; else it is the lock's.
	Remaining time.Duration
}

// Waiter is an owner in the queue of a [Fair] lock.
type Waiter struct {
	Owner string
	// Deadline is when the waiter stops counting as alive, as the time from now: 0 if it does not any more. Waiters of
	// this package put it off for as long as they wait.
	Deadline time.Duration
}

func (c *Client) info(ctx context.Context, t *target) (Info, error) {
	v, err := c.run(ctx, c.server, &call{script: t.kind.info, target: t, keys: t.seeing(), leaves: true})
	if err != nil {
		return Info{}, serverError(err)
	}
	return t.kind.parseInfo(v)
}

func (k *kind) parseInfo(v resp.Value) (Info, error) {
	if k.parse != nil {
		return k.parse(v)
	}
	return parseHolders(v, 0)
}

// parseHolders is what a reply says of which the elements from first on are the remaining lease in ms, and each owner and
// its hold count.
func parseHolders(v resp.Value, first int) (Info, error) {
	left, err := v.At(first).Int()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	if left == -2 || v.Len() < first+3 {
		return Info{}, nil
	}
	info := Info{Locked: true, Remaining: milliseconds(left)}
	for i := first + 1; i+1 < v.Len(); i += 2 {
		owner, err := v.At(i).Text()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		holds, err := v.At(i + 1).Int()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		info.Holders = append(info.Holders, Holder{owner, holds, info.Remaining})
	}
	return info, nil
}

func (c *Client) forceUnlock(ctx context.Context, t *target) (bool, error) {
	if err := c.settleChannels(ctx, t); err != nil {
		return false, err
	}
	holds := c.holdsOf(t.hold(), "", nil) // and not those that come after
	v, err := c.run(ctx, c.server, &call{script: t.kind.force, target: t, keys: t.keys, args: []any{c.publishing(t)}, leaves: true, tells: true})
	if err != nil {
		return false, serverError(err)
	}
	forced, err := v.Bool()
	if err != nil {
		return false, fmt.Errorf("lock: force: %w", err)
	}
	if forced {
		c.tellForced(ctx, t)
		for _, l := range holds {
			l.lose(Forced, nil)
		}
	}
	return forced, nil
}
