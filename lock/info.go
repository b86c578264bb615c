package lock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Info is the state of a lock on the server.
type Info struct {
	Locked bool
	// Holders are the owners of the lock, in all clients including Redisson's.
	Holders []Holder
	// Remaining is the time until the lock becomes free by itself: 0 if the lock is free, negative if the lock has no
	// lease and only a release frees it.
	Remaining time.Duration
	// Mode is the mode of a [ReadWrite] lock as a whole, for either half; "" if the lock is free, and for other
	// kinds.
	Mode Mode
	// Token is the last fencing token of a [Fenced] lock, even if the lock is free.
	Token int64
	// Permits are the permits of a [Semaphore] or a [PermitSemaphore]. A semaphore counts as locked while no permit
	// is free.
	Permits Permits
	// Queue holds the waiters for a [Fair] lock, of all clients, in the order in which they will get the lock.
	Queue []Waiter
}

// Permits counts the permits of a semaphore.
type Permits struct {
	Set   bool // somebody has set up the permits
	Free  int  // below 0 if permits are lacking
	Taken int  // of a [PermitSemaphore]
}

// Mode is the mode in which a [ReadWrite] lock is held.
type Mode string

// The modes, as Redisson writes them.
const (
	ModeRead  Mode = "read"
	ModeWrite Mode = "write"
)

// Holder is an owner of a lock.
type Holder struct {
	Owner string // a client's id, a colon, and a number; for a writer, followed by ":write"
	Holds int64  // acquires without a release
	// Remaining is the remaining lease of the holder, negative if the lease never ends. Readers and permits have
	// leases of their own; for other holders Remaining is the lease of the lock. A reader with expired leases only
	// (0) stays until the last living reader goes.
	Remaining time.Duration
}

// Waiter is an owner in the queue of a [Fair] lock.
type Waiter struct {
	Owner string
	// Deadline is the time until the waiter counts as dead; 0 if already dead. Waiters of this package extend the
	// deadline for as long as they wait.
	Deadline time.Duration
}

func (h *Handle) info(ctx context.Context) (Info, error) {
	c, t := h.client, h.target
	v, err := c.scripts.Run(ctx, c.server, &remote.Call{Script: t.kind.Info, Lock: t.remote(), Keys: t.seeing(), Leaves: true})
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

// parseHolders parses the elements of a reply from index first on: the remaining lease in ms, then each owner with
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

func (h *Handle) forceUnlock(ctx context.Context) (bool, error) {
	c, t := h.client, h.target
	if err := c.channels.Settle(ctx, t.remote()); err != nil {
		return false, err
	}
	holds := c.table.holdsOf(t.hold(), "", nil) // collected before the script, to leave out later holds
	v, err := c.scripts.RunInTime(ctx, t.name, func(last int64) *remote.Call {
		return &remote.Call{Script: t.kind.Force, Lock: t.remote(), Keys: t.lined(slices.Clone(t.keys)), Args: t.lineArgs(c, []any{c.channels.Publishing(t.kind.silent), last}),
			Leaves: true, Tells: true}
	})
	if err != nil {
		return false, serverError(err)
	}
	forced, err := v.Bool()
	if err != nil {
		return false, fmt.Errorf("lock: force: %w", err)
	}
	if !forced {
		return false, nil
	}
	for _, l := range holds {
		l.lose(Forced, nil)
		if l.state == nil { // a relay may have passed the hold on
			for _, heir := range c.table.holdsOf(t.hold(), l.owner, l) {
				heir.lose(Forced, nil)
			}
		}
	}
	t.tellForced(ctx, c) // afterwards: it may take long
	return true, nil
}

// tellForced announces a forced unlock to all clients. If the announcement fails, the holder learns of the unlock at
// its next renewal.
func (t *target) tellForced(ctx context.Context, c *Client) {
	if _, err := c.server.Send(remote.Patient(ctx), resp.Cmd(remote.PlainPublish, kinds.ForcedChannel, t.name)); err != nil {
		c.log.Warn("a holder is not told at once that its lock was freed by force", "error", err)
	}
}
