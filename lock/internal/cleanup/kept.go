package cleanup

import (
	"context"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

// No replica acknowledges a release, an undo or a change: each would take as long again, and so would the next owner's wait. If the master is
// replaced right after its reply, the next master may know nothing of it. So a server with replicas gets the latest work again after
// each loss of a connection or master.

const (
	// keptFor is the age up to which confirmed work is sent again. Clients hear of a healthy master's replacement a second or two
	// after it.
	keptFor = 5 * time.Second
	// successorFor is the age up to which work of an earlier loss waits for the next master.
	successorFor = 30 * time.Second
	// keptMost limits the memory for confirmed work.
	keptMost = 1024
	// resendAfter gives a replaced master the time for its last replies.
	resendAfter = 300 * time.Millisecond
	// resendPause is the minimum interval between two repetitions, since connections may be lost repeatedly.
	resendPause = time.Second
)

// Confirmed is work that the server has confirmed, and a master that takes the server's place may not know.
type Confirmed interface {
	// Again returns a request without effect on a server that knows the work, and the end of its purpose; nil if no next master
	// is known yet.
	Again(ctx context.Context) (w Work, until time.Time)
}

// kept is confirmed work.
type kept struct {
	Confirmed
	at time.Time
}

// Keep has the work sent again after each loss within keptFor, and later if no next master is known by then.
func (u *Cleanup) Keep(w Confirmed) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	if !u.started {
		u.startLocked()
	}
	old := 0
	for old < len(u.kept) && (now.Sub(u.kept[old].at) > keptFor || len(u.kept)-old >= keptMost) {
		old++
	}
	clear(u.kept[:old])
	u.kept = append(u.kept[old:], kept{w, now})
}

// Lost notes that a master may have been replaced. It takes no mutex.
func (u *Cleanup) Lost() {
	u.lost.Store(true)
	select {
	case u.signal <- struct{}{}:
	default:
	}
}

// againLane is the lane of the goroutine that makes jobs for kept work.
var againLane = lane{again: true, slot: -1}

// resend has jobs made for the kept work, some time after a loss.
func (u *Cleanup) resend(a *agenda, at time.Time, closing bool) (due bool) {
	if closing {
		a.resend = time.Time{}
		return false
	}
	if due = reached(a.resend, at) && !a.busy[againLane]; due {
		a.resend, a.resent, a.busy[againLane] = time.Time{}, at, true
	}
	if a.resend.IsZero() && u.lost.Swap(false) {
		a.resend = clock.Later(at.Add(resendAfter), a.resent.Add(resendPause))
	}
	return due
}

// dropKept ends the jobs for kept work after their first failure: Close waits for unconfirmed work only.
func (a *agenda) dropKept() {
	a.pending = slices.DeleteFunc(a.pending, func(j *Job) bool {
		if j.kept && j.again {
			j.finish(nil)
		}
		return j.over
	})
}

// sendAgain makes jobs for the kept work after a loss noticed at the time at. Work without a next master yet waits for the next loss.
// If there is no time to ask about all masters, sendAgain runs once more, with the rest first.
func (u *Cleanup) sendAgain(at time.Time) {
	ctx, cancel := context.WithTimeout(u.life, resendPause)
	defer cancel()
	var jobs []*Job
	var sent, unasked, waiting []kept
	for _, k := range u.takeKept(at) {
		if ctx.Err() != nil {
			unasked = append(unasked, k)
			continue
		}
		w, until := k.Again(ctx)
		if w == nil {
			waiting = append(waiting, k)
			continue
		}
		j := NewJob(w, until, false)
		j.kept = true
		jobs = append(jobs, j)
		if at.Sub(k.at) <= keptFor {
			sent = append(sent, k)
		}
	}
	waiting = append(unasked, waiting...)
	if ctx.Err() != nil && len(waiting) > 0 {
		u.lost.Store(true)
	}
	if len(waiting) > keptMost {
		slices.SortFunc(waiting, func(a, b kept) int { return b.at.Compare(a.at) })
		waiting = waiting[:keptMost]
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept, u.waiting = append(sent, u.kept...), waiting
	u.returned = append(u.returned, batch{againLane, jobs})
	u.wakeLocked()
}

// takeKept takes the work to be sent again at the time at, first what waits since an earlier loss.
func (u *Cleanup) takeKept(at time.Time) []kept {
	u.mu.Lock()
	defer u.mu.Unlock()
	older := func(than time.Duration) func(kept) bool { return func(k kept) bool { return at.Sub(k.at) > than } }
	all := slices.Concat(slices.DeleteFunc(u.waiting, older(successorFor)), slices.DeleteFunc(u.kept, older(keptFor)))
	u.kept, u.waiting = nil, nil
	return all
}
