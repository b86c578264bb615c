// Package looks decides when the waiter at the front of a line looks next, that is, tries to acquire the lock again.
//
// Invariants:
//
//   - After an event the next look is due at once. After two sorts of looks the event may be the look's own undo, which frees the
//     lock: without enough acknowledgements the pause stays, and without an answer the next look is due after PollMin.
//   - Without an event there is a next look all the same: by the end of the holder's lease, by the Ceiling, and by PollMax
//     while no subscription is in place; only after looks in a row that came too late to the server it may come a minute later.
//   - A look never follows a refusal before the Floor, however short the holder's lease is.
package looks

import (
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

// Pace has the times of looks without an event.
type Pace struct {
	// Floor and Ceiling bound the time to the next look. Floor keeps a waiter from spinning near the end of the holder's
	// lease; Ceiling covers a wake-up lost by the server.
	Floor, Ceiling time.Duration
	// PollMin and PollMax bound the growing pauses between looks while there is no subscription or no server.
	PollMin, PollMax time.Duration
	// Slack is added to the holder's remaining lease, so that the key has expired at the next look.
	Slack time.Duration
}

// Usual returns the Pace of all clients. Three times without a sign of life are longer than the Ceiling: lineLife in all_line.lua (a place in
// the line), announceFor (a waiting writer) and minFairWait (a place in the queue of a fair lock).
func Usual() Pace {
	return Pace{Floor: 10 * time.Millisecond, Ceiling: 10 * time.Second, PollMin: 50 * time.Millisecond, PollMax: time.Second, Slack: 2 * time.Millisecond}
}

// Looks is the knowledge at the front of a line. It passes from waiter to waiter with the front, and only the waiter at the
// front uses it. The zero Looks have not begun.
type Looks struct {
	pace      *Pace // constant once begun
	up        bool  // the subscription is in place
	woken     bool  // an event has arrived since the last look
	next      time.Time
	floor     time.Duration // the pause after a refusal near the end of a lease; doubles until an event
	poll      time.Duration
	notBefore time.Time     // no look is due before, in spite of an event
	failing   time.Time     // start of the first look of a series without an answer
	failure   error         // of the last look in the series
	late      time.Duration // the longest pause after the last late look; 0 after another look
	polls     int           // of looks at a kind that publishes no release
	lastPause time.Duration // of such a kind
}

// Begin returns the Looks of the first waiter of a line.
func Begin(p *Pace) Looks { return Looks{pace: p, poll: p.PollMin, floor: p.Floor} }

// Begun reports whether a waiter has been at the front.
func (l *Looks) Begun() bool { return l.pace != nil }

// Up reports whether the subscription is in place.
func (l *Looks) Up() bool { return l.up }

// Woken reports whether an event has arrived since the last look.
func (l *Looks) Woken() bool { return l.woken }

// Wake makes a look due.
func (l *Looks) Wake() { l.woken = true }

// At returns the time of the next look, in the past if a look is due.
func (l *Looks) At() time.Time {
	if l.woken {
		return l.notBefore
	}
	return l.next
}

// Note records the state of the subscription at the time at, and whether it has had an event.
func (l *Looks) Note(at time.Time, news, up bool) {
	if l.up && !up {
		l.poll = l.pace.PollMin
		soon := at.Add(l.poll)
		l.next, l.notBefore = clock.Earlier(l.next, soon), clock.Earlier(l.notBefore, soon)
	}
	if l.up, l.woken = up, l.woken || news; news {
		l.floor = l.pace.Floor
	}
}

// Refused sets the next look after a refusal. left is the remaining lease of the holder, negative if unknown. backoff returns
// the pause of a kind that publishes no release; nil for all other kinds.
func (l *Looks) Refused(at time.Time, left time.Duration, backoff func(looks int, last time.Duration) time.Duration) {
	l.failing, l.notBefore, l.late = time.Time{}, time.Time{}, 0
	if l.up {
		l.poll = l.pace.PollMin
	}
	if backoff != nil {
		l.lastPause = backoff(l.polls, l.lastPause)
		l.polls++
		l.next = at.Add(l.lastPause)
		return
	}
	l.next = at.Add(l.pause(left))
}

func (l *Looks) pause(left time.Duration) time.Duration {
	d := l.pace.Ceiling - rand.N(l.pace.Ceiling/10)
	switch {
	case left < 0:
	case left <= l.floor:
		d = l.floor
		l.floor = min(2*l.floor, l.pace.PollMax)
	default:
		l.floor = l.pace.Floor
		d = min(d, min(left, d)+l.pace.Slack)
	}
	if !l.up {
		d = min(d, l.jittered())
		l.poll = min(2*l.poll, l.pace.PollMax)
	}
	return d
}

func (l *Looks) jittered() time.Duration { return l.poll - rand.N(l.poll/4) }

// Acquired sets the next look, of the waiter behind. An exclusive lock needs no look before its lease ends or it is released;
// more: the waiter behind has to look at once.
func (l *Looks) Acquired(at time.Time, lease time.Duration, backoff func(int, time.Duration) time.Duration, more bool) {
	l.floor = l.pace.Floor
	l.polls, l.lastPause = 0, 0
	l.Refused(at, lease, backoff)
	l.woken = more
}

// Used records that a look came after all events so far.
func (l *Looks) Used() { l.woken = false }

// Failed sets the next look after one without a lock and without a refusal.
func (l *Looks) Failed(at time.Time) {
	l.woken, l.failing, l.notBefore, l.late = false, time.Time{}, time.Time{}, 0
	l.next = at.Add(l.jittered())
	l.poll = min(2*l.poll, l.pace.PollMax)
}

// mostLate limits the pause after a late look.
const mostLate = time.Minute

// Late is Failed after a look, begun at began, whose request came too late to the server. A first one may be an exception, and the lock may be free. After
// further ones in a row the pause is random, at most twice the time of the look at first, and grows: if all waiters soon looked again, a server with too
// much to do would have all requests too late.
func (l *Looks) Late(at, began time.Time) {
	before := l.late
	l.Failed(at)
	if l.late = 1; before > 0 {
		l.late = min(max(2*before, 2*at.Sub(began)), mostLate)
		l.next = clock.Later(l.next, at.Add(rand.N(l.late)))
	}
}

// Unreplicated is Failed after a grant that too few replicas have acknowledged. The look has already taken the time of the wait for
// replicas, or the next request clears the cause: the pauses do not grow.
func (l *Looks) Unreplicated(at time.Time) {
	l.Failed(at)
	l.notBefore, l.poll = l.next, l.pace.PollMin
}

// Unanswered is Failed after a look, begun at began, to which the server gave no answer.
func (l *Looks) Unanswered(at, began time.Time, failure error) {
	first := l.failing
	if first.IsZero() {
		first = began
	}
	l.Failed(at)
	l.failing, l.failure, l.notBefore = first, failure, at.Add(l.pace.PollMin)
}

// Hopeless reports whether looks have had no answer for patience, counted at the earliest from since, and returns the last
// failure.
func (l *Looks) Hopeless(at, since time.Time, patience time.Duration) (failure error, hopeless bool) {
	return l.failure, !l.failing.IsZero() && at.Sub(l.failing) >= patience && at.Sub(since) >= patience
}
