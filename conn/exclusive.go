package conn

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// drainTime is how long a returned connection may take to answer what its borrower did not wait for.
const drainTime = time.Second

var errAbandoned = fmt.Errorf("an abandoned reply has not come: %w", os.ErrDeadlineExceeded)

// lending is the part of a Pool that lends exclusive connections. open = idle + lent + dialing never exceeds
// Config.MaxConns; as long as a caller waits none is idle. All is guarded by the Pool's mu.
type lending struct {
	idle    []*member // the one used last at the end, to be lent first
	lent    int       // with those that are being drained
	dialing int
	queue   list.List     // of *turn, in the order of their arrival
	acked   time.Duration // what a batch that ends in WAIT takes
}

// member is an exclusive connection, and the owner of its link. Its fields but l are guarded by the Pool's mu.
type member struct {
	p       *Pool
	l       *link
	where   place
	aged    time.Time // when it is MaxAge old; zero: never
	expires time.Time // when it has been idle for IdleTimeout; zero: never
}

// place is what is done with a member.
type place uint8

const (
	isNew place = iota // not counted yet
	isIdle
	isLent
	isGone // not counted any more
)

// turn is a caller that waits for a connection. It is guarded by the Pool's mu until ready is closed.
type turn struct {
	ready chan struct{} // closed when one of the following is set
	m     *member
	err   error
	tries attempts
}

// With lends fn a connection that nobody else uses, for what needs one: WATCH, MULTI and EXEC by hand, blocking
// commands. Those who wait for a connection get one in the order in which they came; ctx bounds that wait. With
// returns what fn returns.
//
// The Conn must not be used after fn has returned. Its connection is lent again if it is in the state that it was
// given out in; one with an open WATCH or MULTI, another database, user or name is closed instead.
func (p *Pool) With(ctx context.Context, fn func(*Conn) error) error {
	m, err := p.borrow(ctx)
	if err != nil {
		return &Error{Op: "With", Addr: p.cfg.Addr, Err: err}
	}
	c := &Conn{l: m.l, trace: p.cfg.Trace}
	defer func() { // also when fn panics
		changed, readOnly := c.end()
		if readOnly {
			p.suspectMaster(m.l)
		}
		p.giveBack(m, changed)
	}()
	return fn(c)
}

// borrow returns a member that is the caller's.
func (p *Pool) borrow(ctx context.Context) (*member, error) {
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, p.cause
	case ctx.Err() != nil:
		p.mu.Unlock()
		return nil, ended(ctx)
	}
	if m := p.takeIdleLocked(); m != nil {
		p.mu.Unlock()
		return m, nil
	}
	t := &turn{ready: make(chan struct{}), tries: attempts{policy: &p.cfg.Retry}}
	at := p.queue.PushBack(t)
	p.dialMoreLocked()
	p.mu.Unlock()

	select {
	case <-t.ready:
		return t.m, t.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-t.ready: // at the same moment
		p.mu.Unlock()
		if t.m != nil {
			p.giveBack(t.m, false)
		}
		return nil, ended(ctx)
	default:
	}
	err := p.waitErrorLocked(ctx)
	p.queue.Remove(at)
	p.mu.Unlock()
	return nil, err
}

// takeIdleLocked lends the idle member that was used last, if there is one.
func (p *Pool) takeIdleLocked() *member {
	for n := len(p.idle); n > 0; n = len(p.idle) {
		m := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		if m.l.failed.Load() {
			m.where = isGone
			continue
		}
		m.where = isLent
		p.lent++
		return m
	}
	return nil
}

// giveBack ends a loan. The member is put to use again when all that was sent on it is answered, if that does not
// take too long; or it is closed.
func (p *Pool) giveBack(m *member, changed bool) {
	p.mu.Lock()
	old := !m.aged.IsZero() && !time.Now().Before(m.aged)
	p.mu.Unlock()
	if changed || old || m.l.failed.Load() {
		m.leave()
		m.l.fail(errRetired)
		return
	}
	m.l.drain(drainTime, errAbandoned)
}

// leave takes m out of the counts, if that has not been done.
func (m *member) leave() {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	m.leaveLocked()
}

func (m *member) leaveLocked() {
	p := m.p
	switch m.where {
	case isIdle:
		p.idle = slices.DeleteFunc(p.idle, func(other *member) bool { return other == m })
	case isLent:
		p.lent--
	}
	m.where = isGone
	p.dialMoreLocked()
}

// placeLocked gives a member that is lent, or new, to the caller who has waited longest, or makes it idle.
func (p *Pool) placeLocked(m *member) {
	if at := p.queue.Front(); at != nil {
		t := p.queue.Remove(at).(*turn)
		t.m = m
		close(t.ready)
		return
	}
	p.lent--
	m.where = isIdle
	p.idle = append(p.idle, m)
	due := m.aged
	m.expires = time.Time{}
	if p.cfg.IdleTimeout > 0 {
		m.expires = time.Now().Add(p.cfg.IdleTimeout)
		if due.IsZero() || m.expires.Before(due) {
			due = m.expires
		}
	}
	if !due.IsZero() {
		m.l.setDue(due.Sub(m.l.start))
	}
}

// dialMoreLocked starts dialling for those who wait, as far as MaxConns permits.
func (p *Pool) dialMoreLocked() {
	for !p.closed && p.dialing < min(p.queue.Len(), dialsAtOnce) && p.openLocked() < p.cfg.MaxConns && p.dialWantedLocked() {
		p.dialing++
		p.wg.Go(p.dialMember)
	}
}

// openLocked returns the number of exclusive connections, with those being dialled.
func (p *Pool) openLocked() int { return len(p.idle) + p.lent + p.dialing }

// worthLocked reports whether anybody waits who has attempts left, or will not get a connection otherwise.
func (p *Pool) dialWantedLocked() bool {
	if p.lent == 0 {
		return p.queue.Len() > 0
	}
	for at := p.queue.Front(); at != nil; at = at.Next() {
		if !at.Value.(*turn).tries.over {
			return true
		}
	}
	return false
}

// dialMember adds a connection for the caller who will have waited longest when it is there.
func (p *Pool) dialMember() {
	m := &member{p: p}
	l, err := p.dial(m, true, p.dialWantedLocked)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing--
	switch {
	case l != nil && m.where == isGone: // lost before it could be used
		p.dialFailedLocked(l.lostEarly())
	case l != nil:
		m.l, m.where = l, isLent
		p.lent++
		if p.cfg.MaxAge > 0 {
			m.aged = l.start.Add(jitter(p.cfg.MaxAge))
		}
		p.placeLocked(m)
	case err != nil:
		p.dialFailedLocked(err)
	}
	p.dialMoreLocked()
}

// disappointLocked counts a failed dial against all who wait. Those who have no attempts left get its error, unless a
// connection that is lent may become free.
func (p *Pool) dialFailedLocked(err error) {
	hopeless := judge(err, false) == netfail.Final
	var next *list.Element
	for at := p.queue.Front(); at != nil; at = next {
		next = at.Next()
		t := at.Value.(*turn)
		more := t.tries.failed(0)
		if hopeless {
			t.tries.over, more = true, false
		}
		if more || p.lent > 0 {
			continue
		}
		p.queue.Remove(at)
		t.err = err
		close(t.ready)
	}
}

// refuseWaitersLocked gives err to all who wait.
func (p *Pool) refuseWaitersLocked(err error) {
	for at := p.queue.Front(); at != nil; at = p.queue.Front() {
		t := p.queue.Remove(at).(*turn)
		t.err = err
		close(t.ready)
	}
}

func (m *member) push(*link, resp.Value) {}

// due closes a member that has been idle for long, or is old and idle.
func (m *member) due(l *link) {
	m.p.mu.Lock()
	now := time.Now()
	reached := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	over := m.where == isIdle && (reached(m.aged) || reached(m.expires))
	if over {
		m.leaveLocked()
	}
	m.p.mu.Unlock()
	if over {
		l.fail(errRetired)
	}
}

func (m *member) drained(l *link) {
	m.p.mu.Lock()
	outdated := m.p.outdatedLocked(l.addr)
	if m.where == isLent && !outdated {
		m.p.placeLocked(m)
	}
	m.p.mu.Unlock()
	if outdated {
		l.fail(errSwitched)
	}
}

func (m *member) lost(l *link, outstanding int, err error) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	m.leaveLocked()
	delete(m.p.links, l)
	m.p.reportLocked(l, true, outstanding, err)
}
