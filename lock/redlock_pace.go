package lock

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// redlockSpreadMin and redlockSpread bound the random part of a pause, in units.
	redlockSpreadMin, redlockSpread = 2, 32
	// redlockPause limits the base pause with slow servers, and redlockPauseMax the random part after split votes.
	redlockPause, redlockPauseMax = 250 * time.Millisecond, time.Second
	// redlockUnit is the least unit of pauses after messages.
	redlockUnit = 250 * time.Microsecond
)

// unit returns the time that a majority took to answer, the unit of pauses after messages.
func unit(votes []vote, quorum int) time.Duration {
	var took []time.Duration
	for _, v := range votes {
		if v.verdict == voteGranted || v.verdict == voteRefused {
			took = append(took, v.took)
		}
	}
	if len(took) == 0 {
		return redlockUnit
	}
	slices.Sort(took)
	return min(max(took[min(quorum, len(took))-1], redlockUnit), redlockPause)
}

// poll returns the time of the next ballot without messages, after a ballot begun at start.
func (r *Redlock) poll(start time.Time, spread int) time.Time {
	base := max(r.cfg.Pause, min(2*time.Since(start), redlockPause))
	return time.Now().Add(base + rand.N(max(2*base, min(time.Duration(spread)*base, redlockPauseMax))))
}

// widen doubles the spread after a split vote. Beyond the maximum the spread begins anew: the votes may also be split because
// the lock of one server has other users, whose short breaks a waiter with long pauses would miss.
func (l *listener) widen(votes []vote) {
	split := slices.ContainsFunc(votes, func(v vote) bool { return v.verdict == voteGranted })
	if l.spread *= 2; !split || l.spread > redlockSpread {
		l.spread = redlockSpreadMin
	}
}

// streak is a series of leases of one process, with other clients waiting at each release.
type streak struct {
	series   series
	released time.Time
	unit     time.Duration
}

// longer adds a lease to the streak, acquired at since with these votes and just released.
func (r *Redlock) longer(since time.Time, votes []vote) {
	g := r.gate()
	g.mu.Lock()
	defer g.mu.Unlock()
	last, ok := g.streaks[r.line()]
	if !ok {
		last.series.since = since
	}
	if g.streaks == nil || len(g.streaks) > maxTallies {
		g.streaks = make(map[entryKey]streak)
	}
	g.streaks[r.line()] = streak{last.series.next(), time.Now(), unit(votes, r.quorum)}
}

// endStreak ends the streak of this process: another client had the lock, or nobody waits.
func (r *Redlock) endStreak() {
	g := r.gate()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.streaks, r.line())
}

// giveWay pauses after a streak of full length, for longer than the others pause after the message of the last release.
func (r *Redlock) giveWay(ctx context.Context) error {
	g, first := r.gate(), r.nodes[0].client
	g.mu.Lock()
	last, ok := g.streaks[r.line()]
	over := ok && !last.series.mayGoOn(&first.cfg, r.term, false)
	if over {
		delete(g.streaks, r.line())
	}
	g.mu.Unlock()
	if !over {
		return nil
	}
	pause := 2*redlockSpreadMin*last.unit + rand.N(2*redlockSpreadMin*last.unit)
	return first.sleep(ctx, pause-time.Since(last.released))
}
