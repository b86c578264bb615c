package lock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/turns"
	"github.com/lockwire/lockwire/pubsub"
)

// A waiting Redlock listens to the lock's channel on each server, as a visitor. After a lost ballot a server counts as free if it
// granted the lock, or has published anything since the begin of the ballot. The next ballot is due when a majority may be
// free. Messages of a minority start no ballot: a waiter releases its useless grants, and two waiters would wake each other for
// ever.

// listener has the watches of a waiting Redlock, for a single goroutine.
type listener struct {
	lock    *Redlock
	wake    chan struct{}   // buffered, 1: signalled by every watch
	watches []*pubsub.Watch // by node; nil without a watch
	spread  int             // the random part of a pause, in units

	began time.Time // the begin of the last ballot
	seen  []uint64  // by node: the number of events before

	question <-chan time.Time // when the servers are to be asked for the holder; nil for never
	history  *waited          // gets the answer
}

// listen returns the listener of a wait until ctx ends, with the watches that an earlier wait has parked.
func (r *Redlock) listen(ctx context.Context, history *waited) *listener {
	l := &listener{lock: r, wake: make(chan struct{}, 1), watches: make([]*pubsub.Watch, len(r.members)), seen: make([]uint64, len(r.members)),
		spread: redlockSpreadMin, history: history}
	for i, h := range r.members {
		if l.watches[i] = h.client.table.unpark(h.target.watchKey()); l.watches[i] != nil {
			l.watches[i].Move(l.wake)
		}
	}
	deadline, _ := ctx.Deadline()
	if at := lastQuestion(deadline, time.Now()); !at.IsZero() {
		l.question = time.After(time.Until(at))
	}
	return l
}

// subscribe makes the missing watches. A node has none if its kind is silent or its client is closed.
func (l *listener) subscribe() {
	for i, h := range l.lock.members {
		if l.watches[i] == nil && !h.target.kind.silent {
			l.watches[i], _ = h.target.watch(h.client, l.wake, h.target.Channel)
		}
	}
}

// beginBallot notes the time and the number of events at the begin of a ballot: later events may be about releases after the refusals.
func (l *listener) beginBallot() {
	l.began = time.Now()
	for i, w := range l.watches {
		if w != nil {
			l.seen[i], _ = w.Count()
		}
	}
}

// close parks the watches for the next wait of this process.
func (l *listener) close() {
	for i, h := range l.lock.members {
		if l.watches[i] != nil {
			h.park(l.watches[i])
		}
	}
}

// await waits until the next ballot is due, after a ballot with the given votes and error.
func (l *listener) await(ctx context.Context, votes []vote, lost error) error {
	first := l.lock.first
	l.widenSpread(votes)
	poll, pause := l.poll(), l.pause(votes)
	last := time.Now().Add(first.pace.Ceiling - rand.N(first.pace.Ceiling/10))
	l.subscribe()
	for {
		free, missed, ends := l.prospects(votes)
		more, at := l.lock.quorum-free, last
		if more > 0 && more <= len(ends) { // the ends of other owners' leases free a majority
			at = clock.Earlier(at, ends[more-1].Add(first.pace.Slack+pause))
		}
		switch {
		case errors.Is(lost, ErrLost):
			at = poll
		case more <= 0:
			return first.sleep(ctx, pause)
		case missed || !errors.Is(lost, ErrNotAcquired):
			at = clock.Earlier(at, poll)
		}
		select {
		case <-l.wake:
		case <-l.question:
			l.askHolder(ctx, votes)
		case <-time.After(time.Until(at)):
			return nil
		case <-ctx.Done():
			return netfail.Ended(ctx)
		case <-first.done:
			return ErrClosed
		}
	}
}

// pause returns the time from the messages of a majority to the next ballot. Half of the first ballots are due at once: Redisson's
// clients ask at once, so behind a pause they would always be first. The other half waits, so that processes seldom split the votes.
func (l *listener) pause(votes []vote) time.Duration {
	if l.spread == redlockSpreadMin && rand.N(2) == 0 {
		return 0
	}
	return rand.N(min(2*time.Duration(l.spread)*unit(votes, l.lock.quorum), redlockPauseMax))
}

// askHolder asks the servers that have refused the lock for its owner, and keeps an owner of the process on the most of them. A
// process may have an owner on each server.
func (l *listener) askHolder(ctx context.Context, votes []vote) {
	found := make([]*seenHolder, len(votes))
	atOnce(l.lock.members, func(i int, h *Handle) {
		if votes[i].result == voteRefused {
			found[i] = h.client.askHolder(ctx, &h.target)
		}
	})
	counts, most := make(map[string]int), 0
	for _, h := range found {
		if h == nil || h.owner == "" {
			continue
		}
		process := cmp.Or(h.process, h.owner)
		if counts[process]++; counts[process] > most {
			most, l.history.holder = counts[process], h
		}
	}
}

// prospects returns the number of servers whose lock may be free, and in ascending order the known ends of the leases on those that refused. missed: a
// message of one of these may be missing. A server without an answer or vote does not count, even if it publishes: the message may be about another
// waiter's useless grant.
func (l *listener) prospects(votes []vote) (free int, missed bool, ends []time.Time) {
	for i, v := range votes {
		news, up := l.heard(i)
		switch {
		case v.result == voteFailed:
		case news || v.result == voteGranted:
			free++
		case v.result == voteRefused:
			missed = missed || !up
			if !v.ends.IsZero() {
				ends = append(ends, v.ends)
			}
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	return free, missed, ends
}

// heard returns whether node i may have published since the begin of the last ballot, and whether messages arrive now.
func (l *listener) heard(i int) (news, up bool) {
	w := l.watches[i]
	if w == nil {
		return false, false
	}
	count, up := w.Count()
	if !up {
		h := l.lock.members[i]
		h.client.channels.NoteRefusal(h.target.Lock, w.Err())
	}
	return count != l.seen[i], up
}

// park keeps a watch for the next wait, if the watch is in place.
func (h *Handle) park(watch *pubsub.Watch) {
	c, key := h.client, h.target.watchKey()
	_, up := watch.Count()
	c.table.mu.Lock()
	if c.table.closed || !up || c.table.parked[key].watch != nil {
		c.table.mu.Unlock()
		watch.Close()
		return
	}
	c.waiters.Add(1) // Close waits until the sweeps have begun
	c.table.parkLocked(key, watch)
	c.table.mu.Unlock()
	c.cleanup.StartSweeps()
	c.waiters.Done()
}

const (
	// redlockSpreadMin and redlockSpread bound the random part of a pause, in units.
	redlockSpreadMin, redlockSpread = 2, 32
	// redlockPause limits the base pause with slow servers, and redlockPauseMax the random part after split votes.
	redlockPause, redlockPauseMax = 250 * time.Millisecond, time.Second
	// redlockUnit is the least unit of pauses after messages, and redlockTurn the least pause after a streak: a client of Redisson
	// asks some milliseconds after a message.
	redlockUnit, redlockTurn = 250 * time.Microsecond, 4 * time.Millisecond
)

// unit returns the time that a majority took to answer, the unit of pauses after messages.
func unit(votes []vote, quorum int) time.Duration {
	var took []time.Duration
	for _, v := range votes {
		if v.result == voteGranted || v.result == voteRefused {
			took = append(took, v.took)
		}
	}
	if len(took) == 0 {
		return redlockUnit
	}
	slices.Sort(took)
	return min(max(took[min(quorum, len(took))-1], redlockUnit), redlockPause)
}

// poll returns the time of the next ballot without messages.
func (l *listener) poll() time.Time {
	base := max(l.lock.cfg.Pause, min(2*time.Since(l.began), redlockPause))
	return time.Now().Add(base + rand.N(max(2*base, min(time.Duration(l.spread)*base, redlockPauseMax))))
}

// widenSpread doubles the spread after a split vote. Beyond the maximum the spread begins anew: the votes may also be split because
// the lock of one server has other users, whose short breaks a waiter with long pauses would miss.
func (l *listener) widenSpread(votes []vote) {
	split := slices.ContainsFunc(votes, func(v vote) bool { return v.result == voteGranted })
	if l.spread *= 2; !split || l.spread > redlockSpread {
		l.spread = redlockSpreadMin
	}
}

// pauseAfterStreak pauses after a streak of full length, for longer than the others pause after the message of the last release.
func (r *Redlock) pauseAfterStreak(ctx context.Context) error {
	cfg := &r.first.cfg
	last, full := r.first.streaks.Full(r.key, func(s turns.Series) bool { return s.MayGoOn(cfg.HandOvers, cfg.HandOverFor, r.term) })
	if !full {
		return nil
	}
	r.first.gates.Note(r.key, nil)              // others want the lock
	longest := 2 * redlockSpreadMin * last.Unit // of the others, unless they have split the votes
	pause := max(longest, redlockTurn) + rand.N(longest)
	return r.first.sleep(ctx, pause-time.Since(last.Released))
}
