package lock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

var fasterMultiKind = &kinds.Lazy[*kind]{Make: func() *kind {
	return &kind{
		Kind:      kinds.FasterMulti.Get(),
		parse:     parseValueHolders,
		show:      func(owner string) string { return owner[:strings.IndexByte(owner, ' ')] },
		divisible: true,
	}
}}

// maxValues limits the values of a lock, because the server is blocked while it looks at them, and at those of all who wait.
const maxValues = 1000

// FasterMulti is Redisson's lock of getMultiLock with a group and values: a lock of several values of a group, all or none,
// at the cost of a single lock. Two locks of a group exclude each other if they have a value in common. One hash, whose
// key is the group, has all values of the group that are taken, with the end of each lease by the server's clock.
//
// A [Lease] is lost with the first lost value. Unlock releases the remaining values. [AtLeast] is refused, and a [Multi] or
// [Redlock] cannot contain a FasterMulti.
//
// An [Owner] may take values again, alone or together with further values. The server counts the holds of each value: Unlock
// of one lease frees the values that no other lease of the Owner has. An Owner that waits for further values keeps its own, so
// two Owners can wait for each other until the context of one ends.
//
// Processes that want a value in common have it in the order of their coming; a release wakes those that find all their values
// free. The first that waits for several values, and lacks one, leaves the others to who comes for some 32 ms, then keeps them for
// itself for some 32 ms, and so on with twice as long each time, up to 8 s. TryLock takes them at any time. Who waits behind it for
// several values may have to wait for both times. While a client of Redisson waits, there is no order: a release wakes one waiter of
// each process, and the fastest has the lock.
//
// [Client.List], [Client.Inspect] and [Client.Watch] know a group by its name, with the owners of all its values, each once.
// Watch tells the end of the lease of one owner among several with the next change, as a release. [Client.ForceUnlockOwner]
// refuses a group; use ForceUnlock of its values.
//
// # Beside Redisson
//
// Redisson's clients (3.38.0 and newer, with StringCodec) take part, and judge leases by their own clocks: a clock ahead by
// more than a lease has left takes the lock of another holder, who learns of it by the next renewal. Locks taken by this
// package alone depend on the clock of the server only.
type FasterMulti struct{ Handle }

// FasterMulti returns the lock of 1 to 1000 values of a group. Any text is a value, and equal values count once. The
// group's name is the key on the server. An invalid name or number of values is reported by the first method that uses
// the lock, not here.
func (c *Client) FasterMulti(group string, values ...string) *FasterMulti {
	h := c.handle(fasterMultiKind.Get(), group)
	fields := make([]string, len(values))
	for i, value := range values {
		fields[i] = kinds.ValueField(value)
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	if n := len(fields); h.err == nil && (n == 0 || n > maxValues) {
		h.err = c.invalid(group, "%d values", n)
	}
	h.target.values = strings.Join(fields, " ")
	h.target.lineName = group + " " + h.target.values
	return &FasterMulti{h}
}

// parseValueHolders parses the owner, hold count and remaining lease of each value that is taken.
func parseValueHolders(v resp.Value) (info Info, err error) {
	if v.Kind() != resp.Array || v.Len()%3 != 0 {
		return Info{}, fmt.Errorf("lock: info: unexpected reply of kind %v", v.Kind())
	}
	e := elements{of: v}
	for e.more(3) {
		next := e.holder()
		info.Locked, info.Remaining = true, max(info.Remaining, next.Remaining)
		same := slices.IndexFunc(info.Holders, func(h Holder) bool { return h.Owner == next.Owner })
		if same < 0 {
			info.Holders = append(info.Holders, next)
			continue
		}
		h := &info.Holders[same]
		h.Holds, h.Remaining = max(h.Holds, next.Holds), max(h.Remaining, next.Remaining)
	}
	return e.done(info)
}
