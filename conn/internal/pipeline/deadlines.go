package pipeline

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/lockwire/lockwire/resp"
)

const (
	// ticksPerTimeout is the number of ticks of a busy link within the time limit of an answer. An overdue answer is
	// noticed at most one tick late.
	ticksPerTimeout = 16

	// longestPeriod limits the time between two ticks of a busy link.
	longestPeriod = 500 * time.Millisecond

	// progressBytes is the number of bytes of an unfinished reply that count as progress. A byte now and then does
	// not.
	progressBytes = 16 << 10

	// maxTicks is the longest wait of a command in ticks, and stands for any time.
	maxTicks = math.MaxUint32 / 4
)

// deadlines is the timer of a link. The age of a command is a number of ticks, so sending needs no look at the clock.
// An idle link only ticks for the next PING and for its owner's deadlines.
//
// The link's mu guards all fields except the constants. The link's wg counts an armed timer.
type deadlines struct {
	timeout time.Duration // constant; 0 without a limit
	ping    time.Duration // constant; 0 without PINGs
	period  time.Duration // constant: time between ticks of a busy link; 0 without ticks
	overdue uint32        // constant: ticks without progress before an answer is overdue
	longest time.Duration // constant: limit of time without progress for a later deadline of a ctx; 0 without a limit

	timer          *time.Timer
	armed          bool          // the timer is set
	ticks          uint32        // ticks at least a period apart
	progress       progress      // progress seen at the last tick
	since          uint32        // tick that saw the last progress
	alive          time.Duration // time of the last progress; of the last byte received if no command was outstanding
	last           time.Duration // time of the last counted tick; like the following, since the link's start
	slow           bool          // the next tick is more than a period away
	next           time.Duration // time of the next tick
	heard          int64         // bytes received before the last tick
	quiet          time.Duration // begin of the silence
	dueAt          time.Duration // time to call Owner.Due; 0 for never
	giveUp         time.Duration // time to fail the link; 0 for never
	why            error         // reason to fail at giveUp
	pingsSuspended bool          // send no PING: within a MULTI the server would queue it

	silence silence
}

// progress is the state of the answers to a link's commands.
type progress struct {
	entries int64 // entries answered
	replies int32 // replies to the first unanswered entry
	bytes   int64 // bytes received within replies
	written int64 // the link's wrote, as of when the first unanswered entry was part of the last write
}

// listenLocked records bytes and progress since the last call, and reports whether bytes were received.
func (l *Link) listenLocked(now time.Duration) (heard bool) {
	received := l.from.received.Load()
	heard, l.heard = received != l.heard, received
	p := progress{l.answered + l.pos.Load(), l.part.Load(), l.from.within.Load(), l.progress.written}
	if p.entries >= l.writeFrom {
		p.written = l.wrote.Load()
	}
	if last := l.progress; p.entries != last.entries || p.replies != last.replies || p.written != last.written ||
		p.bytes-last.bytes >= progressBytes {
		l.progress, l.since, l.alive = p, l.ticks, now
	}
	if heard && l.outstandingLocked() == 0 {
		l.alive = now
	}
	return heard
}

// startDeadlinesLocked starts the timer of a new link, whose handshake has just ended.
func (l *Link) startDeadlinesLocked(cfg Config) {
	l.timeout, l.ping = max(cfg.Timeout, 0), max(cfg.PingInterval, 0)
	if most := l.timeout; most > 0 || l.ping > 0 {
		if most == 0 {
			most = l.ping
		}
		l.period = min(divideUp(most, ticksPerTimeout), longestPeriod)
		l.overdue = uint32(min(divideUp(most, l.period), math.MaxUint32/2))
		if l.shared && l.ping > 0 {
			l.longest = l.timeout + l.ping - 2*l.period // progress, and the lack of progress, are each noticed up to a period late
		}
	}
	// A PING is sent a little early, since a missing answer is noticed a little late.
	l.ping = max(l.ping-2*l.period, l.ping/2)
	if l.silence.tell = cfg.OnSilent; l.silence.tell != nil && l.period == 0 {
		l.period = SilentPeriod
	}
	l.heard = l.from.received.Load()
	l.scheduleLocked(0, false)
}

func divideUp(d, by time.Duration) time.Duration { return (d-1)/by + 1 }

// ticksOf returns the ticks of a busy link within d, or maxTicks.
func (l *Link) ticksOf(d time.Duration) uint32 {
	if l.timeout == 0 {
		return maxTicks
	}
	return uint32(min(divideUp(d, l.period), maxTicks))
}

func (l *Link) stopDeadlinesLocked() {
	if l.armed && l.timer.Stop() {
		l.armed = false
		l.wg.Done()
	}
}

// wakeDeadlinesLocked returns to frequent ticks when a command comes after an idle time.
func (l *Link) wakeDeadlinesLocked() {
	if !l.slow || l.period == 0 {
		return
	}
	l.slow = false
	now := time.Since(l.Start)
	l.silence.since = now
	l.armLocked(now, l.period)
}

// SetDue makes the Link call Owner.Due at time at, counted from Start; 0 is never. It replaces the time set before.
func (l *Link) SetDue(at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dueAt = min(at, Never/2) // sums with it do not overflow
	if at > 0 {
		l.tickWithinLocked(l.dueAt - time.Since(l.Start))
	}
}

// giveUpLocked fails the link with why after d; 0 is never.
func (l *Link) giveUpLocked(d time.Duration, why error) {
	l.giveUp, l.why = 0, why
	if d > 0 {
		l.giveUp = time.Since(l.Start) + d
		l.tickWithinLocked(d)
	}
}

// SuspendPings stops or resumes PINGs.
func (l *Link) SuspendPings(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pingsSuspended = on
}

func (l *Link) tickWithinLocked(d time.Duration) {
	if now := time.Since(l.Start); l.err == nil && (!l.armed || now+d < l.next) {
		l.armLocked(now, max(d, 0))
	}
}

// armLocked sets the timer to fire after d. A tick already running takes the place of the new one.
func (l *Link) armLocked(now, d time.Duration) {
	l.next = now + d
	switch {
	case l.timer == nil:
		l.wg.Add(1)
		l.armed = true
		l.timer = time.AfterFunc(d, l.tick)
	case !l.armed:
		l.wg.Add(1)
		l.armed = true
		l.timer.Reset(d)
	case l.timer.Stop():
		l.timer.Reset(d)
	}
}

// tick runs in the timer's goroutine. It may block while writing a PING; a later tick then closes the connection.
func (l *Link) tick() {
	defer l.wg.Done()
	l.mu.Lock()
	l.armed = false
	now := time.Since(l.Start)
	if now-l.last >= l.period {
		l.ticks++
		l.last = now
	}
	heard := l.listenLocked(now)
	if err := l.overdueLocked(now); err != nil && l.failLocked(err) {
		l.hangUp()
	}
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	due := l.dueAt > 0 && now >= l.dueAt
	if due {
		l.dueAt = 0
	}
	silent := l.silentLocked(now, heard)
	if ping := l.scheduleLocked(now, heard || l.outstandingLocked() > 0); ping {
		l.postLocked(resp.Cmd("PING"), true)
	}
	l.mu.Unlock()
	if silent {
		l.silence.tell(l.Addr)
	}
	if due {
		l.owner.Due(l)
	}
}

// scheduleLocked sets the timer for the next tick and reports whether to send a PING. busy means that bytes came
// since the last tick, or that a command is outstanding.
func (l *Link) scheduleLocked(now time.Duration, busy bool) (ping bool) {
	wait := Never
	switch {
	case l.period == 0:
	case busy || l.pingsSuspended:
		l.quiet, wait = now-l.period, l.period
	case l.ping == 0:
	case now-l.quiet >= l.ping:
		ping, wait = true, l.period
	default:
		wait = l.quiet + l.ping - now
	}
	if !busy && !l.writing {
		l.pending, l.spare, l.waiting = nil, nil, nil // free the buffers of an idle link
	}
	l.slow = wait > l.period
	for _, at := range [...]time.Duration{l.dueAt, l.giveUp} {
		if at > 0 {
			wait = min(wait, max(at-now, 0))
		}
	}
	if wait < Never {
		l.armLocked(now, wait)
	}
	return ping
}

// overdueLocked returns the reason to fail the link at this tick, or nil.
func (l *Link) overdueLocked(now time.Duration) error {
	if l.giveUp > 0 && now >= l.giveUp {
		return l.why
	}
	if l.timeout == 0 {
		return nil
	}
	oldest := l.oldestLocked()
	switch {
	case oldest == nil:
		return nil
	case oldest.wait == maxTicks: // a blocking command delays all commands behind it
		return nil
	case min(l.ticks-oldest.tick, l.ticks-l.since) <= l.overdue+oldest.wait:
		return nil // not overdue, counted from the last progress or from sending
	case l.longest > 0 && now-l.alive >= l.longest:
	case l.allowedLocked(now):
		return nil
	}
	return fmt.Errorf("no answer within %v: %w", l.timeout, os.ErrDeadlineExceeded)
}

// allowedLocked reports whether a ctx allows any command more time than the timeout. All commands on a link fail
// together, so any one command is enough.
func (l *Link) allowedLocked(now time.Duration) bool {
	for _, list := range [...][]entry{l.batch[l.pos.Load():], l.inflight, l.waiting} {
		for i := range list {
			if e := &list[i]; now < e.limit {
				return true
			}
		}
	}
	return false
}
