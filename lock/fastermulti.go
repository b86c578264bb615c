package lock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

var fasterMultiKind = &kinds.Lazy[*kind]{Make: newFasterMultiKind}

func newFasterMultiKind() *kind {
	return &kind{
		Kind:   kinds.FasterMulti(),
		parse:  parseValueHolders,
		show:   func(owner string) string { return owner[:strings.IndexByte(owner, ' ')] },
		parted: true,
	}
}

// maxValues limits the values of a lock, because the server is blocked while it looks at them.
const maxValues = 1000

// FasterMulti is Redisson's lock of getMultiLock with a group and values: a lock of several values of a group, all or none,
// at the cost of a single lock. Two locks of a group exclude each other if they have a value in common. One hash, whose
// key is the group, has all values of the group that are taken, with the end of each lease by the server's clock.
//
// A [Lease] is lost with the first lost value. Unlock gives back those that are left. [AtLeast] has no meaning for the lock,
// and a [Multi] or [Redlock] cannot contain it.
//
// An [Owner] may take values again, alone or together with further values. The server counts the holds of each value: Unlock
// of one lease frees the values that no other lease of the Owner has. An Owner that waits for further values keeps its own, so
// two Owners can wait for each other until the context of one ends.
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
		h.err = invalidf("%d values", n)
	}
	h.target.values = strings.Join(fields, " ")
	h.target.waits = group + " " + h.target.values
	return &FasterMulti{h}
}

// owned returns t for an Owner, who waits in a line of its own: in a common one it could stand behind callers that wait for a
// value of its own.
func (t *target) owned(by *ownerState) *target {
	own := *t
	own.waits += " " + by.id
	return &own
}

// keptValues returns what others, the further leases of an Owner, keep of the values of t: for each value the hold count and the
// lease in ms, with spaces between them; 0 for nothing.
func (t *target) keptValues(others []*Lease) any {
	type kept struct {
		holds int
		left  time.Duration
	}
	all := make(map[string]kept)
	for _, l := range others {
		left := l.leaseLeft()
		if left == 0 {
			continue
		}
		for value := range strings.FieldsSeq(l.target.values) {
			k := all[value]
			all[value] = kept{k.holds + 1, max(k.left, left)}
		}
	}
	if len(all) == 0 {
		return 0
	}
	var text []string
	for value := range strings.FieldsSeq(t.values) {
		k := all[value]
		text = append(text, strconv.Itoa(k.holds), strconv.FormatInt(inMilliseconds(k.left), 10))
	}
	return strings.Join(text, " ")
}

// lostToAnother reports whether the Owner of a lost lease of a group has some of the values by other leases: the server cannot tell
// the holds of an owner apart.
func (l *Lease) lostToAnother() bool {
	if l.state == nil || l.target.values == "" {
		return false
	}
	l.mu.Lock()
	lost := l.lost != nil
	l.mu.Unlock()
	return lost && len(l.client.table.besides(l.target, l.state, l)) > 0
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
