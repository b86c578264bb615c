package pipeline

import (
	"cmp"
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

	// progressBytes is the number of bytes of an unfinished reply that count as progress. A byte now and then does not.
	progressBytes = 16 << 10

	// maxTicks is the longest wait of a command in ticks, and stands for any time.
	maxTicks = math.MaxUint32 / 4
)

// deadlines is the timer of a link. The age of a command is a number of ticks, so sending needs no look at the clock.
// An idle link only ticks for the next PING and for its owner's deadlines. For example, with a timeout of 5 s:
//
//	period        5 s / ticksPerTimeout = 312.5 ms
//	overdueTicks  16, counted from the last progress, or from sending if that was later
//
// The link's mu guards all fields except the constants. The link's wg counts an armed timer.
type deadlines struct {
	// Constant.
	timeout         time.Duration // 0 without a limit
	ping            time.Duration // silence before a PING; 0 without PINGs
	period          time.Duration // time between ticks of a busy link; 0 without ticks
	overdueTicks    uint32        // ticks without progress before an answer is overdue
	longestExtended time.Duration // longest time without progress if a ctx allows more than timeout; 0 without a limit
	onSilent        func(addr string)

	timer          *time.Timer
	armed          bool     // the timer is set
	ticks          uint32   // ticks at least a period apart
	progress       progress // as of the last tick
	progressTick   uint32   // tick that saw the last progress
	lastReceived   int64    // bytes received before the last tick
	infrequent     bool     // the next tick is more than a period away
	pingsSuspended bool     // send no PING: within a MULTI the server would queue it

	// Times since Link.Start.
	progressAt  time.Duration // the last progress; if no command was outstanding, the last byte received
	lastTick    time.Duration // the last tick counted in ticks
	nextTick    time.Duration
	quietSince  time.Duration // begin of the silence, a period early at most
	silentSince time.Duration // begin of the silence for onSilent, or its last call during a blocking command
	dueAt       time.Duration // call Owner.Due; 0 for never
}

// progress is the state of the answers to a link's commands.
type progress struct {
	entries int64 // entries answered
	replies int32 // replies to the first unanswered entry
	bytes   int64 // bytes received within replies
	written int64 // largeWritten while the first unanswered entry is part of the last write, and constant otherwise
}

// noteReceivedLocked records bytes and progress since the last call, and reports whether bytes were received.
func (l *Link) noteReceivedLocked(now time.Duration) (heard bool) {
	received := l.from.received.Load()
	heard, l.lastReceived = received != l.lastReceived, received
	p := progress{l.answeredBefore + l.pos.Load(), l.repliesRead.Load(), l.from.replyBytes.Load(), l.progress.written}
	if p.entries >= l.writeFrom {
		p.written = l.largeWritten.Load()
	}
	if last := l.progress; p.entries != last.entries || p.replies != last.replies || p.written != last.written ||
		p.bytes-last.bytes >= progressBytes {
		l.progress, l.progressTick, l.progressAt = p, l.ticks, now
	}
	if heard && l.outstandingLocked() == 0 {
		l.progressAt = now
	}
	return heard
}

// startDeadlinesLocked starts the timer of a new link, whose handshake has just ended.
func (l *Link) startDeadlinesLocked(cfg Config) {
	l.timeout, l.ping = max(cfg.Timeout, 0), max(cfg.PingInterval, 0)
	if most := cmp.Or(l.timeout, l.ping); most > 0 {
		l.period = min(divideUp(most, ticksPerTimeout), longestPeriod)
		l.overdueTicks = uint32(min(divideUp(most, l.period), math.MaxUint32/2))
		if cfg.Shared && l.ping > 0 {
			l.longestExtended = l.timeout + l.ping - 2*l.period // progress, and the lack of progress, are each noticed up to a period late
		}
	}
	// A PING is sent a little early, since a missing answer is noticed a little late.
	l.ping = max(l.ping-2*l.period, l.ping/2)
	if l.onSilent = cfg.OnSilent; l.onSilent != nil && l.period == 0 {
		l.period = SilentPeriod
	}
	l.lastReceived = l.from.received.Load()
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
	if !l.infrequent || l.period == 0 {
		return
	}
	l.infrequent = false
	l.silentSince = time.Since(l.Start)
	l.tickWithinLocked(l.period)
}

// SetDue makes the Link call Owner.Due once, when at has passed since Start; 0 is never. It replaces the time set before.
func (l *Link) SetDue(at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dueAt = min(at, Never/2) // sums with it do not overflow
	if at > 0 {
		l.tickWithinLocked(l.dueAt - time.Since(l.Start))
	}
}

// SuspendPings stops or resumes PINGs.
func (l *Link) SuspendPings(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pingsSuspended = on
}

// tickWithinLocked makes the next tick come after d at the latest.
func (l *Link) tickWithinLocked(d time.Duration) {
	if now := time.Since(l.Start); l.err == nil && (!l.armed || now+d < l.nextTick) {
		l.armLocked(now, max(d, 0))
	}
}

// armLocked sets the timer to fire after d. If a tick has already begun to run, armLocked only sets nextTick: the tick
// itself arms the timer again.
func (l *Link) armLocked(now, d time.Duration) {
	l.nextTick = now + d
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
	if now-l.lastTick >= l.period {
		l.ticks++
		l.lastTick = now
	}
	heard := l.noteReceivedLocked(now)
	if err := l.overdueLocked(now); err != nil && l.failLocked(err) {
		l.HangUp()
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
		l.onSilent(l.Addr)
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
		l.quietSince, wait = now-l.period, l.period
	case l.ping == 0:
	case now-l.quietSince >= l.ping:
		ping, wait = true, l.period
	default:
		wait = l.quietSince + l.ping - now
	}
	if !busy && l.writer == nobody {
		l.pending, l.freeBuffer, l.waiting = nil, nil, nil // free the buffers of an idle link
	}
	l.infrequent = wait > l.period
	if l.dueAt > 0 {
		wait = min(wait, max(l.dueAt-now, 0))
	}
	if wait < Never {
		l.armLocked(now, wait)
	}
	return ping
}

// overdueLocked returns the reason to fail the link at this tick, or nil.
func (l *Link) overdueLocked(now time.Duration) error {
	if l.timeout == 0 {
		return nil
	}
	oldest := l.oldestLocked()
	switch {
	case oldest == nil:
		return nil
	case oldest.wait == maxTicks: // a blocking command may delay all commands behind it
		return nil
	case min(l.ticks-oldest.tick, l.ticks-l.progressTick) <= l.overdueTicks+oldest.wait: // in time
		return nil
	case l.longestExtended > 0 && now-l.progressAt >= l.longestExtended: // beyond the extension by any ctx
	case l.extendedLocked(now):
		return nil
	}
	return fmt.Errorf("no answer within %v: %w", l.timeout, os.ErrDeadlineExceeded)
}

// extendedLocked reports whether the ctx of any outstanding command ends later than now. All commands of a link fail
// together, so one is enough.
func (l *Link) extendedLocked(now time.Duration) bool {
	for e := range l.unansweredLocked {
		if now < e.deadline {
			return true
		}
	}
	return false
}
