package lock

import (
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

// holders reads the remaining lease in ms, then each owner with its hold count.
func (e *elements) holders() (info Info) {
	info.Remaining = e.time()
	for e.more(2) {
		info.Holders = append(info.Holders, Holder{e.text(), e.number(), info.Remaining})
	}
	if info.Locked = len(info.Holders) > 0; !info.Locked {
		info.Remaining = 0
	}
	return info
}

// parseHolders parses a reply of the remaining lease and the holders.
func parseHolders(v resp.Value) (Info, error) {
	e := elements{of: v}
	return e.done(e.holders())
}

// done returns the result of the reading.
func (e *elements) done(info Info) (Info, error) {
	if e.err != nil {
		return Info{}, e.err
	}
	return info, nil
}

// writeSuffix follows the owner's id in the owner of a write lock.
const writeSuffix = ":write"

// holder reads an owner, its hold count and its lease in ms.
func (e *elements) holder() Holder { return Holder{e.text(), e.number(), e.time()} }

// parseReadWrite decodes a reply of the remaining lease in ms, the mode, and for each holder the owner, hold count and lease
// in ms. The result covers the given half; "" is both halves.
func parseReadWrite(v resp.Value, half Mode) (Info, error) {
	e := elements{of: v}
	left, info := e.time(), Info{}
	info.Mode = Mode(e.text())
	for e.more(3) {
		h := e.holder()
		if half == "" || strings.HasSuffix(h.Owner, writeSuffix) == (half == ModeWrite) {
			info.Holders = append(info.Holders, h)
		}
	}
	if info.Locked = len(info.Holders) > 0; info.Locked {
		info.Remaining = left
	}
	return e.done(info)
}
