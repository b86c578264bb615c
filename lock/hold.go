package lock

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// hold is a hold of a lock: one that is wanted, had, or taken back.
type hold struct {
	client *Client
	target *target
	state  *ownerState // of the Owner passed by As, or made for a single call in the server's queue; nil without an Owner
	owner  string
}

// shownOwner returns the owner as text: see Lease.Owner.
func (h *hold) shownOwner() string {
	if show := h.target.kind.show; show != nil {
		return show(h.owner)
	}
	return h.owner
}

// counted reports whether an Owner's tally counts the hold. Of the values of a group each lease is its own record.
func (h *hold) counted() bool { return h.state != nil && h.target.values == "" }

// own returns the Owner's record of the lock; nil without an Owner.
func (h *hold) own() *ownedLock { return h.state.lockOf(h.target.Name) }

// tally returns the Owner's record of the holds; the zero tally without an Owner.
func (h *hold) tally() tally { return h.own().tally(h.target.storedKind()) }

// ownerKeys returns the KEYS of a script that takes or ends the hold. Among the leases of a reader is one more than in the tally, for a hold that
// the client does not know yet, or no longer.
func (h *hold) ownerKeys(latch string) []string {
	return h.target.ownerKeys(h.owner, h.own().tally(h.target.readKind()).maxCount+1, latch)
}

// otherLeases returns the leases of the Owner on the lock, or on its values, without except.
func (h *hold) otherLeases(except *Lease) []*Lease {
	return slices.DeleteFunc(h.client.table.holdsOf(h.target.heldAs(), "", except), func(l *Lease) bool {
		return l.state != h.state || !h.target.overlaps(l.target)
	})
}

// leaseOfOthers returns the lease in ms that the lock needs after the end of the hold: the longest of the Owner's leases without except; 0
// for none.
func (h *hold) leaseOfOthers(except *Lease) int64 {
	if h.state == nil {
		return 0
	}
	var longest time.Duration
	for _, l := range h.otherLeases(except) {
		longest = max(longest, l.neededFor())
	}
	return inMilliseconds(longest)
}

// keptByOwner returns the first argument of release and undo: what the lock needs for the Owner's leases without except.
func (h *hold) keptByOwner(except *Lease) any {
	if h.target.values != "" && h.state != nil {
		return h.target.keptValues(h.otherLeases(except))
	}
	return h.leaseOfOthers(except)
}

// inMilliseconds rounds d up.
func inMilliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// keptValues returns what others, further leases of an Owner, need of the values of t: for each value its hold count and lease
// in ms, all with spaces in between; 0 if they need nothing.
func (t *target) keptValues(others []*Lease) any {
	type kept struct {
		holds int
		left  time.Duration
	}
	all := make(map[string]kept)
	for _, l := range others {
		left := l.neededFor()
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
