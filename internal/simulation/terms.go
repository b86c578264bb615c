package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// kept is a lock that AtLeast keeps taken behind its Unlock.
type kept struct {
	owner string
	since time.Time // the grant was not requested before
	until time.Time // nobody gets the lock before
	gone  time.Time // by then the server has ended the rest
}

// keepers are the kinds with AtLeast. The empty kind is [lock.Plain].
var keepers = []string{reentrant, nonReentrant, fenced, spin, "Plain"}

// limit adds AtMost or AtLeast to some requests.
func (k *worker) limit(r *request, kind string) {
	if k.dice.oneIn(8) {
		r.most = k.dice.between(50*time.Millisecond, 3*time.Second).Round(time.Millisecond)
		r.opts, r.text = append(r.opts, lock.AtMost(r.most)), fmt.Sprint(r.text, " at most ", r.most)
	}
	if r.owned || !slices.Contains(keepers, kind) || !k.dice.oneIn(12) {
		return
	}
	r.least = k.dice.upTo(pick(k.dice, []time.Duration{50 * time.Millisecond, time.Second, 4 * time.Second}))
	if r.most > 0 {
		r.least = min(r.least, r.most)
	}
	if r.fixed {
		r.least = min(r.least, r.term)
	}
	r.opts, r.text = append(r.opts, lock.AtLeast(r.least)), fmt.Sprint(r.text, " at least ", r.least)
}

// keepsLocked notes that a lock stays taken, if Unlock has returned nil; otherwise the server may have it for a while.
func (w *world) keepsLocked(h *hold, err error) {
	if h.least == 0 {
		return
	}
	next := kept{owner: h.lease.Owner(), since: h.since, gone: time.Now().Add(h.least)}
	if err == nil {
		next.until = h.since.Add(h.least - h.least/100 - 2*time.Millisecond) // the margin for drifting clocks
		w.report.Events["kept by AtLeast"]++
	}
	now := time.Now()
	h.object.kept = slices.DeleteFunc(h.object.kept, func(k kept) bool { return now.After(k.gone.Add(longestLease)) })
	h.object.kept = append(h.object.kept, next)
}

// judgeKeptLocked fails for a hold of a lock that was to stay taken.
func (w *world) judgeKeptLocked(h *hold) {
	for _, k := range h.object.kept {
		if !h.from.Before(k.until) {
			continue
		}
		w.notice()
		if l := h.object.lastLossSince(k.since, true); l != nil {
			w.report.Excused[l.why.name]++
			continue
		}
		if w.excusedLocked(h) { // its answer came after a forced unlock
			continue
		}
		w.violate(h.object, "%v: AtLeast of %s keeps the lock until %v", h, k.owner, w.since(k.until))
	}
}

// keptLocked reports whether an owner on the server is nobody, with the lock that AtLeast keeps.
func (o *object) keptLocked(owner string) bool {
	return slices.ContainsFunc(o.kept, func(k kept) bool {
		client, number, _ := strings.Cut(k.owner, ":")
		return owner == client+":-"+number && time.Now().Before(k.gone.Add(tick))
	})
}

// judgeMostLocked fails for a hold beyond AtMost.
func (w *world) judgeMostLocked(h *hold) {
	if h.most > 0 && time.Since(h.from) > h.most {
		w.violate(h.object, "%v: Err is nil after %v, and AtMost is %v", h, time.Since(h.from), h.most)
	}
}

// endedByMostLocked judges the news of a hold ended by AtMost, and reports whether the news are such.
func (w *world) endedByMostLocked(h *hold, lost *lock.LostError) bool {
	if lost.Reason != lock.HeldTooLong {
		return false
	}
	w.report.Events["ended by AtMost"]++
	if held := time.Since(h.asked); h.most == 0 || held < h.most {
		w.violate(h.object, "%v: held too long after %v, and AtMost is %v", h, held, h.most)
	}
	return true
}
