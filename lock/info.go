package lock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
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
		if half == "" || strings.HasSuffix(h.Owner, kinds.WriteSuffix) == (half == ModeWrite) {
			info.Holders = append(info.Holders, h)
		}
	}
	if info.Locked = len(info.Holders) > 0; info.Locked {
		info.Remaining = left
	}
	return e.done(info)
}

var errUnexpected = errors.New("lock: unexpected reply to acquire")

// refusals has the errors for the statuses of acquire after which waiting would not help.
var refusals = map[string]error{"upgrade": ErrUpgrade, "unheld": ErrNotHeld, "reentry": ErrReentry, "unset": ErrNotSet}

// maxHolds is more than any Owner has: a reply with more holds is wrong, and would have the client name as many keys.
const maxHolds = 1 << 20

// parseAcquire parses a reply to acquire: the hold count, with a token for kinds with tokens; or 0 and the remaining
// lease of the lock.
func parseAcquire(v resp.Value, owned bool) (count, token int64, left time.Duration, err error) {
	switch v.Kind() {
	case resp.Null:
		return 1, 0, 0, nil
	case resp.Integer:
		ms, err := v.Int()
		return 0, 0, milliseconds(ms), err
	case resp.SimpleString:
		text, _ := v.Text()
		if err := refusals[text]; err != nil {
			return 0, 0, 0, err
		}
		count, err = strconv.ParseInt(text, 10, 64)
	case resp.Array:
		var failed error
		count, err = v.At(0).Int()
		token, failed = v.At(1).Int()
		if err = errors.Join(err, failed); err == nil && count == 1 {
			return count, token, 0, nil
		}
	}
	if err == nil && count > 1 && count <= maxHolds && owned {
		return count, token, 0, nil
	}
	return 0, 0, 0, fmt.Errorf("%w, of kind %v", errUnexpected, v.Kind())
}

// elements reads the elements of a reply one after another. The first element of another type ends the reading.
type elements struct {
	of  resp.Value
	at  int   // the next element
	err error // why an element could not be read
}

func (e *elements) more(n int) bool { return e.err == nil && e.at+n <= e.of.Len() }

func (e *elements) text() string { return nextElement(e, resp.Value.Text) }

func (e *elements) number() int64 { return nextElement(e, resp.Value.Int) }

// time returns the next element, a PTTL, as a duration.
func (e *elements) time() time.Duration { return milliseconds(e.number()) }

func nextElement[T any](e *elements, convert func(resp.Value) (T, error)) (t T) {
	if e.err == nil {
		if t, e.err = convert(e.of.At(e.at)); e.err != nil {
			e.err = fmt.Errorf("lock: info: %w", e.err)
		}
		e.at++
	}
	return t
}

// noTTL is the remaining time of a lock that never becomes free by itself, or whose remaining time is unknown.
const noTTL = time.Duration(-1)

// milliseconds converts a PTTL to a duration: noTTL below zero, and the longest duration on overflow.
func milliseconds(ms int64) time.Duration {
	switch {
	case ms < 0:
		return noTTL
	case ms > int64(math.MaxInt64/time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
