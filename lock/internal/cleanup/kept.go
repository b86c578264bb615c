package cleanup

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
)

// No replica acknowledges a release, an undo or a change: each would take as long again, and so would the next owner's wait. If the master is
// replaced right after its reply, the next master may know nothing of it. So a server with replicas gets the latest work again after
// each loss of a connection or master.

const (
	// keptFor is the age up to which confirmed releases and undos are sent again. Clients hear of a healthy master's replacement a second
	// or two after it.
	keptFor = 5 * time.Second
	// ChangeFor is the age up to which confirmed changes are sent again: a number has no lease, so the change would be missing for ever. It
	// is the time of a slow failover.
	ChangeFor = 30 * time.Second
	// keptMost limits the memory for confirmed work of either sort.
	keptMost = 1024
	// resendAfter gives a replaced master the time for its last replies.
	resendAfter = 300 * time.Millisecond
	// resendPause is the minimum interval between two repetitions, since connections may be lost repeatedly.
	resendPause = time.Second
	// unknownMost limits the questions for unknown masters in a repetition.
	unknownMost = 4
)

// Confirmed is work that the server has confirmed, and a master that takes the server's place may not know.
type Confirmed interface {
	// Again returns a request without effect on a server that knows the work, and the end of its purpose; nil if there is no next
	// master yet. known: the present master is known, or need not be.
	Again(ctx context.Context) (w Work, until time.Time, known bool)
}

// kept is confirmed work.
type kept struct {
	Confirmed
	at       time.Time
	failures int // the questions for its master without an answer; owned by sendAgain
}

// keptList is confirmed work in the order of time. The mutex of a Cleanup guards the list.
type keptList struct {
	maxAge time.Duration
	list   []*kept
}

func (l *keptList) add(w Confirmed, now time.Time) {
	old := 0
	for old < len(l.list) && (now.Sub(l.list[old].at) > l.maxAge || len(l.list)-old >= keptMost) {
		old++
	}
	clear(l.list[:old])
	l.list = append(l.list[old:], &kept{Confirmed: w, at: now})
}

// young returns the work for a repetition at the given time.
func (l *keptList) young(now time.Time) []*kept {
	for i, k := range l.list {
		if now.Sub(k.at) <= l.maxAge {
			return slices.Clone(l.list[i:])
		}
	}
	return nil
}

// Keep has a release or an undo sent again after each loss within keptFor.
func (u *Cleanup) Keep(w Confirmed) { u.keep(&u.keptReleases, w) }

// KeepChange has a change sent again after each loss within ChangeFor.
func (u *Cleanup) KeepChange(w Confirmed) { u.keep(&u.keptChanges, w) }

func (u *Cleanup) keep(l *keptList, w Confirmed) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	if !u.started {
		u.startLocked()
	}
	l.add(w, now)
}

// Lost notes that a master may have been replaced. It takes no mutex.
func (u *Cleanup) Lost() {
	u.lost.Store(true)
	netfail.Signal(u.signal)
}

// resend reports whether sendAgain is due: some time after a loss, and again while a master is unknown. loss: there has been a loss since the
// last time.
func (u *Cleanup) resend(a *agenda, at time.Time, closing bool) (due, loss bool) {
	if closing {
		a.resend = time.Time{}
		return false, false
	}
	if due = reached(a.resend, at) && !a.busy[againLane]; due {
		loss = a.loss || u.lost.Load()
		a.resend, a.resent, a.busy[againLane] = time.Time{}, at, true
	}
	if a.resend.IsZero() {
		if a.loss = u.lost.Swap(false); u.unknown.Swap(false) || a.loss {
			a.resend = clock.Later(at.Add(resendAfter), a.resent.Add(resendPause))
		}
	}
	return due, loss
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

// sendAgain makes jobs for the kept work after a loss noticed at the time at. While masters are unknown, such as while the sentinels hang,
// sendAgain runs again and again: for changes only, unless there is another loss.
func (u *Cleanup) sendAgain(at time.Time, loss bool) {
	ctx, cancel := context.WithTimeout(u.asking, resendPause)
	defer cancel()
	u.mu.Lock()
	all := u.keptChanges.young(at)
	if loss {
		all = append(u.keptReleases.young(at), all...)
	}
	u.mu.Unlock()
	slices.SortStableFunc(all, func(a, b *kept) int { return cmp.Compare(a.failures, b.failures) })
	var jobs []*Job
	unknown := 0
	for _, k := range all {
		asked := ctx.Err() == nil
		w, until, known := k.Again(ctx)
		switch {
		case !known:
			u.unknown.Store(true)
			if asked {
				k.failures++
				unknown++
			}
			if unknown == unknownMost {
				cancel()
			}
		case w != nil:
			j := NewJob(w, until, false)
			j.kept = true
			jobs = append(jobs, j)
		}
	}
	u.giveBack(batch{againLane, jobs})
}
