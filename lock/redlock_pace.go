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

// streaks has the streaks of the first node's client.
func (r *Redlock) streaks() *streaks[entryKey] { return &r.nodes[0].client.streaks }

// giveWay pauses after a streak of full length, for longer than the others pause after the message of the last release.
func (r *Redlock) giveWay(ctx context.Context) error {
	first := r.nodes[0].client
	last, full := r.streaks().full(r.line(), func(s series) bool {
		return s.mayGoOn(first.cfg.HandOvers, first.cfg.HandOverFor, r.term, false)
	})
	if !full {
		return nil
	}
	pause := 2*redlockSpreadMin*last.unit + rand.N(2*redlockSpreadMin*last.unit)
	return first.sleep(ctx, pause-time.Since(last.released))
}
