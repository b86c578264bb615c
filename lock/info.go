package lock

import (
	"fmt"
	"strings"
	"time"

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

// writeSuffix follows the owner's id in the owner of a write lock.
const writeSuffix = ":write"

// parseHolder decodes the owner, hold count and lease in ms from index i on.
func parseHolder(v resp.Value, i int) (h Holder, err error) {
	owner, err := v.At(i).Text()
	if err != nil {
		return h, fmt.Errorf("lock: info: %w", err)
	}
	holds, err := v.At(i + 1).Int()
	if err != nil {
		return h, fmt.Errorf("lock: info: %w", err)
	}
	ms, err := v.At(i + 2).Int()
	if err != nil {
		return h, fmt.Errorf("lock: info: %w", err)
	}
	return Holder{owner, holds, milliseconds(ms)}, nil
}

// parseReadWrite decodes a reply of the remaining lease in ms, the mode, and for each holder the owner, hold count and lease
// in ms. The result covers the given half; "" is both halves.
func parseReadWrite(v resp.Value, half Mode) (Info, error) {
	left, err := v.At(0).Int()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	mode, err := v.At(1).Text()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	info := Info{Mode: Mode(mode)}
	for i := 2; i+2 < v.Len(); i += 3 {
		h, err := parseHolder(v, i)
		if err != nil {
			return Info{}, err
		}
		if half == "" || strings.HasSuffix(h.Owner, writeSuffix) == (half == ModeWrite) {
			info.Holders = append(info.Holders, h)
		}
	}
	if info.Locked = len(info.Holders) > 0; info.Locked {
		info.Remaining = milliseconds(left)
	}
	return info, nil
}

// parseBothHalves is parseReadWrite for the whole lock.
func parseBothHalves(v resp.Value) (Info, error) { return parseReadWrite(v, "") }
