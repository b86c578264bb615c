package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// calm is how long after a READONLY another one counts as new, and not as the same server found again.
const calm = 10 * time.Second

// rechecked is how long the word of a fresh connection, that its server is not the one to ask, is believed before another one
// is dialled.
const rechecked = time.Second

// slot is the place of one shared connection in a Pool, and owns the links that fill it one after the other.
type slot struct {
	p       *Pool
	current atomic.Pointer[link] // changed under the Pool's mu

	// Guarded by the Pool's mu.
	attempt *attempt // the dial in progress
	misled
}

// misled is about connections that lead to the wrong server, or as the wrong user, by what the server says.
type misled struct {
	suspect *link     // the last of them
	times   int       // how many there were in a row
	last    time.Time // when suspect turned out to be one
	recheck time.Time // suspect is not replaced before
}

// ready returns the link if there is one that works.
func (s *slot) ready() *link {
	if l := s.current.Load(); l != nil && !l.failed.Load() {
		return l
	}
	return nil
}

// get returns the link, if it is another one than stale. Otherwise it waits for a dial, together with all others that want
// it.
func (s *slot) get(ctx context.Context, stale *link) (*link, error) {
	if l := s.ready(); l != nil && l != stale {
		return l, nil
	}
	a, err := s.join(ctx, stale)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	err = s.p.waitErrorLocked(ctx)
	a.waiting--
	return nil, err
}

// join returns the dial to wait for, and starts it if necessary.
func (s *slot) join(ctx context.Context, stale *link) (*attempt, error) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, p.cause
	case ctx.Err() != nil:
		return nil, ended(ctx)
	}
	if l := s.ready(); l != nil && l != stale {
		done := make(chan struct{})
		close(done)
		return &attempt{link: l, done: done}, nil
	}
	a := s.dialLocked()
	a.waiting++
	return a, nil
}

func (s *slot) dialLocked() *attempt {
	if s.attempt == nil {
		a := &attempt{done: make(chan struct{})}
		s.attempt = a
		s.p.wg.Go(func() { s.redial(a) })
	}
	return s.attempt
}

// redial puts a new link into the slot, if anybody waits for it. A link that is there still goes on until it has
// answered what it was sent.
func (s *slot) redial(a *attempt) {
	p := s.p
	for {
		l, err := p.dial(s, false, func() bool { return a.waiting > 0 })
		p.mu.Lock()
		if l == nil && err == nil && a.waiting > 0 { // somebody joined a moment too late
			p.mu.Unlock()
			continue
		}
		s.attempt, a.link, a.err = nil, l, err
		old := s.current.Load()
		if l != nil {
			s.current.Store(l)
		}
		close(a.done)
		p.mu.Unlock()
		switch {
		case l != nil && p.cfg.MaxAge > 0:
			l.setDue(jitter(p.cfg.MaxAge))
		case l == nil && old != nil && old != s.suspect:
			old.setDue(time.Since(old.start) + p.cfg.Retry.MaxBackoff)
		}
		if l != nil && old != nil {
			old.drain(0, nil)
		}
		return
	}
}

// jitter returns d give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/5)
}

// replace has a connection dialled in the place of l, whose server has answered with why: it is read-only, or does not know
// the user any more. The dial resolves the name anew. Until then l serves those who do not mind.
//
// It reports false if the caller is to be told: fresh connections lead to the same answer, so the server is a replica, or does
// not let the user in.
func (s *slot) replace(l *link, why error) bool {
	if errors.Is(why, resp.ErrNoAuth) {
		again, first := s.replaceUnless(l, 1)
		if first {
			warn(&s.p.cfg, "server does not know the user any more: connecting again")
		}
		return again
	}
	s.p.doubt(l)
	again, first := s.replaceUnless(l, 2) // a name may lead to the former master once more
	if first {
		warn(&s.p.cfg, "server is read-only: connecting again")
	}
	return again
}

// replaceUnless is replace, unless more fresh connections than most have led to the same answer. It also reports whether l is
// the first to do so.
func (s *slot) replaceUnless(l *link, most int) (again, first bool) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || s.current.Load() != l {
		return true, false
	}
	now, news := time.Now(), s.suspect != l
	switch {
	case news:
		if now.Sub(s.last) > calm {
			s.times = 0
		}
		s.suspect, s.last = l, now
		s.times++
	case s.attempt != nil:
		return true, false
	case now.Before(s.recheck):
		return false, false
	}
	s.recheck = now.Add(rechecked)
	if news && s.times > most {
		return false, false
	}
	s.dialLocked().waiting++
	return true, news && s.times == 1
}

func (s *slot) push(_ *link, v resp.Value) { s.p.pushes.add(v) }

// due begins to replace a link that has reached its age.
func (s *slot) due(l *link) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if !s.p.closed && s.current.Load() == l {
		s.dialLocked().waiting++
	}
}

func (s *slot) drained(l *link) { l.fail(errRetired) }

func (s *slot) lost(l *link, outstanding int, err error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.current.CompareAndSwap(l, nil)
	delete(s.p.links, l)
	s.p.reportLocked(l, false, outstanding, err)
}

// send sends one command over the shared connection, as often as necessary and permitted.
func (p *Pool) send(ctx context.Context, s *slot, q request) (resp.Value, error) {
	start := p.cfg.Trace.begin()
	a := attempts{policy: &p.cfg.Retry}
	for {
		l, err := s.get(ctx, a.stale)
		if err == nil {
			var v resp.Value
			v, err = l.do(ctx, q, 0)
			if err == nil {
				err = v.Err()
			}
			if err == nil {
				p.cfg.Trace.command(start, p.cfg.Addr, q, nil)
				return v, nil
			}
		}
		if err = p.persist(ctx, &a, s, l, q, err); err != nil {
			p.cfg.Trace.command(start, p.cfg.Addr, q, err)
			return resp.Value{}, err
		}
	}
}

// sendBatch sends cmds, and again those at their end that were not executed.
func (p *Pool) sendBatch(ctx context.Context, s *slot, cmds []resp.Command) ([]resp.Value, error) {
	a := attempts{policy: &p.cfg.Retry}
	values, l, err := p.sendOnce(ctx, &a, s, cmds)
	if err != nil {
		return values, err
	}
	for begin := 0; ; {
		n, why := refusedTail(cmds[begin:], values[begin:])
		begin = len(cmds) - n
		if n == 0 && netfail.Reply(why) == netfail.Redial {
			s.replace(l, why)
		}
		if n == 0 || p.persist(ctx, &a, s, l, request{cmds: cmds}, why) != nil {
			return values, nil
		}
		var replies []resp.Value
		replies, l, err = p.sendOnce(ctx, &a, s, cmds[begin:])
		copy(values[begin:], replies)
		switch {
		case err == nil:
		case SafeToRetry(err): // the last answer of the server stands
			return values, nil
		default:
			return values[:begin+len(replies)], err
		}
	}
}

// sendOnce sends cmds until they have been written, and returns the link that they were sent on.
func (p *Pool) sendOnce(ctx context.Context, a *attempts, s *slot, cmds []resp.Command) ([]resp.Value, *link, error) {
	for {
		l, err := s.get(ctx, a.stale)
		if err == nil {
			var values []resp.Value
			values, err = l.doBatch(ctx, request{cmds: cmds}, 0)
			if err == nil || !SafeToRetry(err) {
				return values, l, err
			}
		}
		if err = p.persist(ctx, a, s, l, request{cmds: cmds}, err); err != nil {
			return nil, l, err
		}
	}
}

// refusedTail returns how many commands at the end of a batch the server has not executed, by its replies: those may be
// repeated without changing the order. It also returns the reason, of any of the commands: a reason for another connection, if
// there is one. A command is not repeated without the ASKING in front of it.
func refusedTail(cmds []resp.Command, values []resp.Value) (n int, why error) {
	for i := range values {
		err := values[i].Err()
		verdict := netfail.Reply(err)
		if verdict == netfail.Final {
			n = 0
			continue
		}
		if n++; n == 1 && i > 0 && ruleOf(cmds[i-1].Name()) == asks {
			n = 0
		}
		if why == nil || verdict == netfail.Redial {
			why = err
		}
	}
	return n, why
}

// persist decides what follows from the failure err of an attempt to send q, on l if there was a connection. It
// returns nil when it is time for the next attempt, and otherwise the error for the caller.
func (p *Pool) persist(ctx context.Context, a *attempts, s *slot, l *link, q request, err error) error {
	pause := a.pause()
	verdict := judge(err, l != nil)
	switch {
	case verdict == netfail.Redial:
		a.stale = l
		if !s.replace(l, err) {
			verdict = netfail.Final
		}
	case l == nil:
		pause = 0 // the Pool makes dials wait
	case a.made == 0 && SafeToRetry(err):
		pause = 0 // the connection was lost in the meantime
	}
	if verdict == netfail.Final || ctx.Err() != nil || !a.failed(pause) {
		return p.finalError(l, q, err)
	}
	p.retries.Add(1)
	p.cfg.Trace.retry(p.cfg.Addr, q, a.made, pause, err)
	if pause > 0 {
		if ended := p.sleep(ctx, pause); ended != nil {
			return &Error{Op: q.name(), Addr: p.cfg.Addr, Err: fmt.Errorf("%w; last answer: %w", ended, err)}
		}
	}
	return nil
}

// finalError returns err as the caller of q is to see it. Without a connection nothing was sent.
func (p *Pool) finalError(l *link, q request, err error) error {
	switch {
	case l != nil:
		return err
	case len(q.cmds) > 0 || len(q.encoded) > 0:
		return &Error{Op: q.name(), Addr: p.cfg.Addr, Err: err}
	}
	if _, ok := err.(*Error); ok {
		return err
	}
	return &Error{Op: "dial", Addr: p.cfg.Addr, Err: err}
}
