package conn

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// drainTime limits the wait for outstanding replies on a returned connection.
const drainTime = time.Second

var errAbandoned = fmt.Errorf("the reply to an abandoned command did not arrive: %w", os.ErrDeadlineExceeded)

// With lends fn an exclusive connection: for WATCH, for MULTI and EXEC by hand, for blocking commands. Callers get
// connections in the order of their calls; ctx bounds the wait. With returns the result of fn.
//
// fn must not keep the Conn. After fn returns, the Pool lends the connection again if the connection's state is
// unchanged. The Pool closes a connection with an open WATCH or MULTI, with another database, user or name, or with a
// call still in progress.
func (p *Pool) With(ctx context.Context, fn func(*Conn) error) error {
	m, err := p.borrow(ctx)
	if err != nil {
		return &Error{Op: "With", Addr: p.cfg.Addr, Err: err}
	}
	c := &Conn{l: m.l, cfg: &p.cfg}
	defer func() { // also after a panic of fn
		changed, readOnly := c.end()
		if readOnly {
			p.suspectMaster(m.l)
		}
		p.giveBack(m, changed)
	}()
	return fn(c)
}

func (p *Pool) borrow(ctx context.Context) (*member, error) {
	p.mu.Lock()
	if err := p.over(ctx); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	if m := p.takeIdleLocked(); m != nil {
		p.mu.Unlock()
		return m, nil
	}
	b := &borrower{ready: make(chan struct{}), budget: retryBudget{policy: &p.cfg.Retry}}
	e := p.queue.PushBack(b)
	p.dialMoreLocked()
	p.mu.Unlock()
	begin := time.Now()
	m, err := p.awaitMember(ctx, b, e)
	p.cfg.Trace.waited(ctx, begin, p.cfg.Addr, true, err)
	return m, err
}

// awaitMember waits until b, the element e of the queue, gets a member.
func (p *Pool) awaitMember(ctx context.Context, b *borrower, e *list.Element) (*member, error) {
	select {
	case <-b.ready:
		return b.m, b.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-b.ready: // ready at the same moment
		p.mu.Unlock()
		if b.m != nil {
			p.giveBack(b.m, false)
		}
		return nil, netfail.Ended(ctx)
	default:
	}
	err := p.waitErrorLocked(ctx)
	p.queue.Remove(e)
	p.mu.Unlock()
	return nil, err
}

// takeIdleLocked lends the most recently used idle member, or returns nil.
func (p *Pool) takeIdleLocked() *member {
	for n := len(p.idle); n > 0; n = len(p.idle) {
		m := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		m.state = isLent
		if !m.l.Failed() {
			return m
		}
	}
	return nil
}

// giveBack ends a loan. The member can be lent again once all its commands are answered, within drainTime. It is closed
// if they are not, and if changed is set.
func (p *Pool) giveBack(m *member, changed bool) {
	p.mu.Lock()
	unfit := changed || m.l.Failed() || !m.aged.IsZero() && !time.Now().Before(m.aged)
	if !unfit {
		m.state, m.due = isReturned, time.Now().Add(drainTime)
	}
	p.mu.Unlock()
	if unfit {
		m.l.Fail(errRetired)
		return
	}
	m.l.Drain(drainTime)
}

// placeLocked gives a returned or new member to the first waiting borrower, or makes the member idle.
func (p *Pool) placeLocked(m *member) {
	if e := p.queue.Front(); e != nil {
		m.state = isLent
		p.settle(e, m, nil)
		return
	}
	m.state = isIdle
	p.idle = append(p.idle, m)
	m.due = m.aged
	if p.cfg.IdleTimeout > 0 {
		if expires := time.Now().Add(p.cfg.IdleTimeout); m.due.IsZero() || expires.Before(m.due) {
			m.due = expires
		}
	}
	if !m.due.IsZero() {
		m.l.SetDue(m.due.Sub(m.l.Start))
	}
}

// dialMoreLocked starts dials for waiting borrowers, within MaxConns.
func (p *Pool) dialMoreLocked() {
	for !p.isClosed() && p.dialing < min(p.queue.Len(), dialsAtOnce) && p.open < p.cfg.MaxConns && p.dialWantedLocked() {
		p.open++
		p.dialing++
		p.wg.Go(p.dialMember)
	}
}

// dialWantedLocked reports whether a waiting borrower needs a dial. Borrowers without budget only wait for a lent
// connection; they need a dial if none is lent.
func (p *Pool) dialWantedLocked() bool {
	for e := p.queue.Front(); e != nil; e = e.Next() {
		if p.lent() == 0 || !e.Value.(*borrower).budget.spent {
			return true
		}
	}
	return false
}

// dialMember dials a connection and places it.
func (p *Pool) dialMember() {
	m := &member{p: p}
	s, err := p.dial(true, p.dialWantedLocked)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing--
	if m.l, err = p.linkLocked(m, true, s, err); m.l != nil {
		if p.cfg.MaxAge > 0 {
			m.aged = m.l.Start.Add(netfail.Jitter(p.cfg.MaxAge))
		}
		p.placeLocked(m)
	} else {
		p.open--
	}
	if err != nil {
		p.dialFailedLocked(err)
	}
	p.dialMoreLocked()
}

// dialFailedLocked counts a failed dial for all waiting borrowers. A borrower whose budget is spent gets the error, or
// goes on waiting if a lent connection may become free.
func (p *Pool) dialFailedLocked(err error) {
	final := classify(err, false) == netfail.Final
	var next *list.Element
	for e := p.queue.Front(); e != nil; e = next {
		next = e.Next()
		b := e.Value.(*borrower)
		b.budget.countFailure(0)
		b.budget.spent = b.budget.spent || final
		if b.budget.spent && p.lent() == 0 {
			p.settle(e, nil, err)
		}
	}
}

func (m *member) Push(*pipeline.Link, resp.Value) {}

// Due closes a member whose time is over: an idle one that has reached MaxAge or IdleTimeout, a returned one that owes
// replies, and one to a former master, even while lent.
func (m *member) Due(l *pipeline.Link) {
	var why error
	m.p.mu.Lock()
	switch over := !m.due.IsZero() && !time.Now().Before(m.due); {
	case m.p.outdatedLocked(l.Addr):
		why = sentinel.ErrSwitched
	case m.state == isReturned && over:
		why = errAbandoned
	case m.state == isIdle && over:
		m.endIdlenessLocked()
		m.state = isLent
		why = errRetired
	case m.state != isLent && !m.due.IsZero(): // Drain has set an earlier time, after a switch there and back
		l.SetDue(m.due.Sub(l.Start))
	}
	m.p.mu.Unlock()
	if why != nil {
		l.Fail(why)
	}
}

// Drained places a returned member. A connection to a former master is closed, even while lent; it stays open if its
// server has become the master again.
func (m *member) Drained(l *pipeline.Link) {
	m.p.mu.Lock()
	outdated := m.p.outdatedLocked(l.Addr)
	if m.state == isReturned && !outdated {
		m.p.placeLocked(m)
	}
	m.p.mu.Unlock()
	if outdated {
		l.Fail(sentinel.ErrSwitched)
	}
}

func (m *member) Lost(l *pipeline.Link, outstanding int, err error) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	m.endIdlenessLocked()
	m.state = isGone
	m.p.open--
	m.p.dialMoreLocked()
	m.p.forgetLocked(l, true, outstanding, err)
}

func (m *member) endIdlenessLocked() {
	m.p.idle = slices.DeleteFunc(m.p.idle, func(other *member) bool { return other == m })
}
