package conn

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/lockwire/lockwire/resp"
)

const (
	// ticksPerTimeout is how often a busy link looks at least whether an answer is overdue, in the time one may take.
	// What is overdue is noticed that much later at most.
	ticksPerTimeout = 16

	// longestPeriod bounds the time between two ticks of a busy link.
	longestPeriod = 500 * time.Millisecond

	// enough is how many bytes of an unfinished reply count as much as a reply. A reply of a byte now and then is none.
	enough = 16 << 10
)

// watch is the one timer of a link. The age of commands is counted in its ticks, which costs no look at the clock when
// they are sent. A link on which nothing happens has no tick but for the next PING and what its owner wants.
//
// All but the constants is guarded by the link's mu. Each time the timer is armed counts in the link's wg.
type watch struct {
	timeout time.Duration // constant; 0: none
	ping    time.Duration // constant; 0: none
	period  time.Duration // constant: between ticks of a busy link; 0: none
	overdue uint32        // constant: how many ticks an answer may take, since the last progress
	longest time.Duration // constant: how long the server may be silent if a ctx allows more; 0: as long as that

	timer    *time.Timer
	armed    bool          // the timer will fire
	ticks    uint32        // how often it has fired, a period or more after the time before
	progress progress      // the last that was found
	since    uint32        // the tick that found it
	alive    time.Duration // when the last sign of life was found, if nothing was outstanding, or else progress
	last     time.Duration // when the timer fired last, as the following since the link's start
	slow     bool          // the next time is not within period
	next     time.Duration // when it is
	heard    int64         // bytes that had been received at the last tick
	quiet    time.Duration // nothing has been heard since
	dueAt    time.Duration // the owner wants to be told; 0: no
	giveUp   time.Duration // the link fails; 0: no
	why      error         // then
	hushed   bool          // no PING: the server has a MULTI open, and would queue it

	silence silence
}

// progress is how far the answers to a link's commands have come.
type progress struct {
	entries int64 // that have been answered
	replies int32 // to the first of the others
	bytes   int64 // received within replies
	written int64 // of what had the first of the others in it, while there was more
}

// listenLocked takes note of what has come since the last time. It reports whether anything has.
func (l *link) listenLocked(now time.Duration) (heard bool) {
	received := l.from.received.Load()
	heard, l.heard = received != l.heard, received
	p := progress{l.answered + l.pos.Load(), l.part.Load(), l.from.within.Load(), l.progress.written}
	if p.entries >= l.writeFrom {
		p.written = l.wrote.Load()
	}
	if last := l.progress; p.entries != last.entries || p.replies != last.replies || p.written != last.written ||
		p.bytes-last.bytes >= enough {
		l.progress, l.since, l.alive = p, l.ticks, now
	}
	if heard && l.outstandingLocked() == 0 {
		l.alive = now
	}
	return heard
}

// startWatchLocked begins watching a link that has just heard from its server.
func (l *link) startWatchLocked(cfg *Config) {
	l.timeout, l.ping = max(cfg.Timeout, 0), max(cfg.PingInterval, 0)
	if most := l.timeout; most > 0 || l.ping > 0 {
		if most == 0 {
			most = l.ping
		}
		l.period = min(divideUp(most, ticksPerTimeout), longestPeriod)
		l.overdue = uint32(min(divideUp(most, l.period), math.MaxUint32/2))
		if l.shared && l.ping > 0 {
			l.longest = l.timeout + l.ping - 2*l.period // a sign of life and its lack are each found a period late
		}
	}
	// A PING is due a little early, as its answer is missed a little late.
	l.ping = max(l.ping-2*l.period, l.ping/2)
	if l.silence.tell = cfg.OnSilent; l.silence.tell != nil && l.period == 0 {
		l.period = silentPeriod
	}
	l.heard = l.from.received.Load()
	l.scheduleLocked(0, false)
}

func divideUp(d, by time.Duration) time.Duration { return (d-1)/by + 1 }

func (l *link) stopWatchLocked() {
	if l.armed && l.timer.Stop() {
		l.armed = false
		l.wg.Done()
	}
}

// wakeWatchLocked makes ticks frequent when a command comes after a time without any.
func (l *link) wakeWatchLocked() {
	if !l.slow || l.period == 0 {
		return
	}
	l.slow = false
	now := time.Since(l.start)
	l.silence.since = now
	l.armLocked(now, l.period)
}

// setDue has the owner told at time at, since start; 0: never.
func (l *link) setDue(at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dueAt = at
	if at > 0 {
		l.tickWithinLocked(at - time.Since(l.start))
	}
}

// giveUpLocked makes the link fail after d; 0: not.
func (l *link) giveUpLocked(d time.Duration, why error) {
	l.giveUp, l.why = 0, why
	if d > 0 {
		l.giveUp = time.Since(l.start) + d
		l.tickWithinLocked(d)
	}
}

// hush stops the link from sending PING, or lets it again.
func (l *link) hush(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hushed = on
}

func (l *link) tickWithinLocked(d time.Duration) {
	if now := time.Since(l.start); l.err == nil && (!l.armed || now+d < l.next) {
		l.armLocked(now, max(d, 0))
	}
}

// armLocked has the timer fire after d. If it is firing at this moment, that tick will do.
func (l *link) armLocked(now, d time.Duration) {
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

// tick runs in a goroutine of the timer's. It may block in writing a PING, and a later tick then ends it.
func (l *link) tick() {
	defer l.wg.Done()
	l.mu.Lock()
	l.armed = false
	now := time.Since(l.start)
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
		l.pingLocked()
	}
	l.mu.Unlock()
	if silent {
		l.silence.tell(l.addr)
	}
	if due {
		l.owner.due(l)
	}
}

// scheduleLocked sets the timer for the next tick and reports whether it is time for a PING. busy tells of a sign of
// life, or that one is due, since the last tick.
func (l *link) scheduleLocked(now time.Duration, busy bool) (ping bool) {
	if busy || l.hushed {
		l.quiet = now - l.period
	}
	ping = l.ping > 0 && now-l.quiet >= l.ping
	wait := never
	switch {
	case (busy || ping) && l.period > 0:
		wait = l.period
	case l.ping > 0:
		wait = l.quiet + l.ping - now
	}
	if !busy && !l.writing {
		l.pending, l.spare, l.waiting = nil, nil, nil // an idle link keeps no buffers
	}
	l.slow = wait > l.period
	for _, at := range [...]time.Duration{l.dueAt, l.giveUp} {
		if at > 0 {
			wait = min(wait, max(at-now, 0))
		}
	}
	if wait < never {
		l.armLocked(now, wait)
	}
	return ping
}

func (l *link) pingLocked() {
	l.appendLocked(entry{replies: 1}, request{cmds: []resp.Command{resp.Cmd("PING")}})
	if !l.writing {
		l.writing = true
		l.flushLocked(nil, true, false)
	}
}

// overdueLocked returns why the link has to fail, if it has.
func (l *link) overdueLocked(now time.Duration) error {
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
	case oldest.limit == never: // holds up those behind it for as long as it likes
		return nil
	case min(l.ticks-oldest.tick, l.ticks-l.since) <= l.overdue:
		return nil // so many periods have not gone by in full since it was sent, and since there was progress
	case l.longest > 0 && now-l.alive >= l.longest:
	case l.allowedLocked(now):
		return nil
	}
	return fmt.Errorf("no answer within %v: %w", l.timeout, os.ErrDeadlineExceeded)
}

// allowedLocked reports whether there is a command that may take longer than the timeout, by its ctx. It does not matter
// which one: they end together.
func (l *link) allowedLocked(now time.Duration) bool {
	for _, list := range [...][]entry{l.batch[l.pos.Load():], l.inflight, l.waiting} {
		for i := range list {
			if e := &list[i]; now < e.limit && e.limit != never {
				return true
			}
		}
	}
	return false
}
