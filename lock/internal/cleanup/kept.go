package cleanup

import (
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

// No replica acknowledges a release or an undo: each would take as long again, and so would the next owner's wait. If the master is
// replaced right after its reply, the next master may know nothing of it. So a server with replicas gets the latest work again after
// each loss of a connection or master.

const (
	// keptFor is the age up to which confirmed work is sent again. Clients hear of a healthy master's replacement a second or two
	// after it.
	keptFor = 5 * time.Second
	// keptMost limits the memory for confirmed work.
	keptMost = 1024
	// resendAfter gives a replaced master the time for its last replies.
	resendAfter = 300 * time.Millisecond
	// resendPause is the minimum interval between two repetitions, since connections may be lost repeatedly.
	resendPause = time.Second
)

// Confirmed is work that the server has confirmed, and a master that takes the server's place may not know.
type Confirmed interface {
	// Again returns a request without effect on a server that knows the work, and the end of its purpose.
	Again() (w Work, until time.Time)
}

// kept is confirmed work.
type kept struct {
	Confirmed
	at time.Time
}

// Keep has the work sent again after each loss within keptFor.
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

// resend adds jobs for the kept work to the agenda, some time after a loss.
func (u *Cleanup) resend(a *agenda, at time.Time, closing bool) {
	switch {
	case closing:
		a.resend = time.Time{}
		return
	case !a.resend.IsZero() && !at.Before(a.resend):
		a.resend, a.resent = time.Time{}, at
		a.pending = append(a.pending, u.keptJobs(at)...)
	}
	if a.resend.IsZero() && u.lost.Swap(false) {
		a.resend = clock.Later(at.Add(resendAfter), a.resent.Add(resendPause))
	}
}

// keptJobs returns a job for each kept work.
func (u *Cleanup) keptJobs(at time.Time) (jobs []*Job) {
	u.mu.Lock()
	all := slices.Clone(u.kept)
	u.mu.Unlock()
	for _, k := range all {
		if at.Sub(k.at) <= keptFor {
			w, until := k.Again()
			jobs = append(jobs, NewJob(w, until, false))
		}
	}
	return jobs
}
