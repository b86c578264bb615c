package conn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// calm is how long after a READONLY another one counts as new, and not as the same server found again.
const calm = 10 * time.Second

// slot is the place of one shared connection in a Pool, and owns the links that fill it one after the other.
type slot struct {
	p       *Pool
	current atomic.Pointer[link] // changed under the Pool's mu
	attempt *attempt             // the dial in progress; guarded by the Pool's mu
}

// ready returns the link if there is one that works.
func (s *slot) ready() *link {
	if l := s.current.Load(); l != nil && !l.failed.Load() {
		return l
	}
	return nil
}

// get returns the link. If there is none it waits for a dial, together with all others that want it.
func (s *slot) get(ctx context.Context) (*link, error) {
	if l := s.ready(); l != nil {
		return l, nil
	}
	a, err := s.join(ctx)
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
func (s *slot) join(ctx context.Context) (*attempt, error) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, ended(ctx)
	}
	if l := s.ready(); l != nil {
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
		case l == nil && old != nil:
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

// retire takes l, whose server has turned out to be read-only, out of use. The next dial resolves the name anew; if
// that leads to the same server, the one after it waits.
func (s *slot) retire(l *link) {
	p := s.p
	p.doubt(l)
	p.mu.Lock()
	if !s.current.CompareAndSwap(l, nil) {
		p.mu.Unlock()
		return
	}
	now := time.Now()
	if now.Sub(p.demotedAt) > calm {
		p.demotions = 0
	}
	if p.demotions > 0 {
		p.notBefore = now.Add(p.cfg.Retry.backoff(p.demotions-1, rand.Float64()))
	}
	p.demotions++
	p.demotedAt = now
	first := p.demotions == 1
	p.mu.Unlock()
	if first {
		warn(&p.cfg, "server is read-only: connecting again")
	}
	l.drain(0, nil)
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
		l, err := s.get(ctx)
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

// sendBatch sends cmds, and again what of them was not executed.
func (p *Pool) sendBatch(ctx context.Context, s *slot, cmds []resp.Command) ([]resp.Value, error) {
	a := attempts{policy: &p.cfg.Retry}
	values, l, err := p.sendOnce(ctx, &a, s, cmds)
	if err != nil {
		return values, err
	}
	for {
		refused, why := notExecuted(cmds, values)
		if len(refused) == 0 || p.persist(ctx, &a, s, l, request{cmds: cmds}, why) != nil {
			return values, nil
		}
		rest := make([]resp.Command, len(refused))
		for i, at := range refused {
			rest[i] = cmds[at]
		}
		var replies []resp.Value
		replies, l, err = p.sendOnce(ctx, &a, s, rest)
		for i, v := range replies {
			values[refused[i]] = v
		}
		switch {
		case err == nil:
		case SafeToRetry(err): // what the server has said stands
			return values, nil
		default:
			return values[:refused[len(replies)]], err
		}
	}
}

// sendOnce sends cmds until they have been written, and returns the link that they were sent on.
func (p *Pool) sendOnce(ctx context.Context, a *attempts, s *slot, cmds []resp.Command) ([]resp.Value, *link, error) {
	for {
		l, err := s.get(ctx)
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

// notExecuted returns the indexes of the commands that the server says it did not execute, and one of the errors; if
// there is a READONLY, that one. Neither an ASKING nor what is behind it may be repeated by itself.
func notExecuted(cmds []resp.Command, values []resp.Value) (indexes []int, why error) {
	for i := range values {
		err := values[i].Err()
		if err == nil || judgeReply(err) == final {
			continue
		}
		if ruleOf(cmds[i].Name()) == asks || i > 0 && ruleOf(cmds[i-1].Name()) == asks {
			continue
		}
		if why == nil || judgeReply(err) == redial {
			why = err
		}
		indexes = append(indexes, i)
	}
	return indexes, why
}

// persist decides what follows from the failure err of an attempt to send q, on l if there was a connection. It
// returns nil when it is time for the next attempt, and otherwise the error for the caller.
func (p *Pool) persist(ctx context.Context, a *attempts, s *slot, l *link, q request, err error) error {
	pause := a.pause()
	verdict := judge(err, l != nil)
	switch {
	case verdict == redial:
		s.retire(l)
	case l == nil:
		pause = 0 // the Pool makes dials wait
	case a.made == 0 && SafeToRetry(err):
		pause = 0 // the connection was lost in the meantime
	}
	if verdict == final || ctx.Err() != nil || !a.failed(pause) {
		return p.finalError(l, q, err)
	}
	p.retries.Add(1)
	p.cfg.Trace.retry(p.cfg.Addr, q, a.made, pause, err)
	if pause > 0 {
		if ended := sleep(ctx, p.closing, pause); ended != nil {
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
