package conn

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// get returns the current link, unless it has failed or is stale, the link that the caller must not use again. Otherwise
// get waits for a dial, which all callers share.
func (s *sharedConn) get(ctx context.Context, stale *pipeline.Link) (*pipeline.Link, error) {
	if l := s.ready(); l != nil && l != stale {
		return l, nil
	}
	p := s.p
	p.mu.Lock()
	if err := p.over(ctx); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	if l := s.ready(); l != nil && l != stale {
		p.mu.Unlock()
		return l, nil
	}
	d := s.dialLocked()
	d.waiting++
	p.mu.Unlock()
	return s.await(ctx, d)
}

// await waits for the end of d, as one of its waiting callers.
func (s *sharedConn) await(ctx context.Context, d *sharedDial) (l *pipeline.Link, err error) {
	trace := s.p.cfg.Trace
	defer func(begin time.Time) { trace.waited(ctx, begin, s.p.cfg.Addr, false, err) }(time.Now())
	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	err = s.p.waitErrorLocked(ctx)
	d.waiting--
	return nil, err
}

// dialAnywayLocked starts a dial that goes on even if no caller waits, for a caller that never leaves.
func (s *sharedConn) dialAnywayLocked() { s.dialLocked().waiting++ }

// dialLocked returns the dial in progress, and starts one if there is none. A dial ends early if no caller waits for it.
func (s *sharedConn) dialLocked() *sharedDial {
	if s.pending == nil {
		d := &sharedDial{done: make(chan struct{})}
		s.pending = d
		s.p.wg.Go(func() { s.redial(d) })
	}
	return s.pending
}

// redial makes a dial for the callers of d, and ends d. After success the old link, if any, stays open until its commands
// are answered. After a failure the old link is due again soon, in case it has reached MaxAge.
func (s *sharedConn) redial(d *sharedDial) {
	p := s.p
	session, err := p.dial(false, func() bool {
		if d.waiting == 0 {
			s.pending = nil // the next caller starts another dial
		}
		return d.waiting > 0
	})
	if session == nil && err == nil {
		return
	}
	p.mu.Lock()
	l, err := p.linkLocked(s, false, session, err)
	s.pending, d.link, d.err = nil, l, err
	old := s.current.Load()
	if l != nil {
		s.current.Store(l)
	}
	switch { // before another step can end the time of a former master
	case l != nil && p.cfg.MaxAge > 0:
		l.SetDue(netfail.Jitter(p.cfg.MaxAge))
	case old != nil && p.cfg.MaxAge > 0:
		old.SetDue(time.Since(old.Start) + p.cfg.Retry.MaxBackoff)
	}
	close(d.done)
	p.mu.Unlock()
	if l != nil && old != nil {
		old.Drain(0)
	}
}

// replace starts a dial in place of l, whose server replied READONLY or NOAUTH (why). The dial resolves the host name
// again. Until the dial succeeds, l serves other callers.
//
// replace returns false if the caller should get the reply: fresh connections lead to the same reply, so the server
// is a replica or rejects the user.
func (s *sharedConn) replace(l *pipeline.Link, why error) bool {
	p, most, warning := s.p, 1, "server does not know the user any more: connecting again"
	if !errors.Is(why, resp.ErrNoAuth) {
		p.suspectMaster(l)
		most, warning = 2, "server is read-only: connecting again" // the name may resolve to the former master once more
	}
	p.mu.Lock()
	again, first := true, false // if l is not in use any more, or is being replaced
	if !p.isClosed() && s.current.Load() == l && (s.pending == nil || s.suspect != l) {
		if again, first = s.refused(l, time.Now(), most); again {
			s.dialAnywayLocked()
		}
	}
	p.mu.Unlock()
	if first {
		warn(&p.cfg, warning)
	}
	return again
}

func (s *sharedConn) Push(_ *pipeline.Link, v resp.Value) { s.p.pushes.add(v) }

// Due replaces a link that has reached MaxAge, and ends a link to a former master, which has not answered in time.
func (s *sharedConn) Due(l *pipeline.Link) {
	s.p.mu.Lock()
	outdated := s.p.outdatedLocked(l.Addr)
	if !s.p.isClosed() && s.current.Load() == l {
		s.dialAnywayLocked()
	}
	s.p.mu.Unlock()
	if outdated {
		l.Fail(sentinel.ErrSwitched)
	}
}

func (s *sharedConn) Drained(l *pipeline.Link) { l.Fail(errRetired) }

func (s *sharedConn) Lost(l *pipeline.Link, outstanding int, err error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.current.CompareAndSwap(l, nil)
	s.p.forgetLocked(l, false, outstanding, err)
}

// send sends one command over a shared connection, and repeats it within the limits. x is a part left out of q.
func (p *Pool) send(ctx context.Context, s *sharedConn, q request, x pipeline.Text) (resp.Value, error) {
	return retried(ctx, s, q, func(ctx context.Context, l *pipeline.Link) (resp.Value, error) {
		return q.do(ctx, l, x)
	})
}

// retried is attempts for one method call of a Pool, reported to Trace.
func retried[T any](ctx context.Context, s *sharedConn, q request, send func(context.Context, *pipeline.Link) (T, error)) (T, error) {
	ctx, traced, own := s.p.cfg.Trace.enter(ctx, q)
	v, err := attempts(ctx, s, &s.p.cfg.Retry, q, traced, send)
	own.End(ctx, err)
	return v, err
}

// attempts calls send with a link of s until send succeeds, or retryOrFail ends the call of q.
func attempts[T any](ctx context.Context, s *sharedConn, policy *Retry, q request, traced *Call,
	send func(context.Context, *pipeline.Link) (T, error)) (none T, _ error) {
	a := retryBudget{policy: policy}
	for {
		l, err := s.get(ctx, a.stale)
		v := none
		if err == nil {
			v, err = send(ctx, l)
		}
		traced.attempt(&s.p.cfg, l, err)
		if err == nil {
			return v, nil
		}
		if err = s.p.retryOrFail(ctx, &a, s, l, q, err); err != nil {
			return none, err
		}
	}
}

// sendBatch sends cmds. It repeats the whole batch if no byte was written, and otherwise only commands at the end that
// the server did not execute.
func (p *Pool) sendBatch(ctx context.Context, s *sharedConn, cmds []resp.Command, traced *Call) (values []resp.Value, _ error) {
	begin := 0 // the first command to send
	send := func(ctx context.Context, l *pipeline.Link) (none struct{}, _ error) {
		replies, err := request{Commands: cmds[begin:]}.doBatch(ctx, l)
		switch {
		case SafeToRetry(err): // nothing was sent
			return none, err
		case err != nil: // some may have run
			values = append(values[:begin], replies...)
			return none, err
		case values == nil:
			values = replies
		}
		copy(values[begin:], replies)
		n, why := refusedTail(cmds[begin:], replies)
		if n > 0 && (n == len(cmds) || ctx.Value(Whole) != true) {
			begin = len(cmds) - n
			return none, why
		}
		if netfail.Reply(why) == netfail.Redial {
			s.replace(l, why)
		}
		return none, nil
	}
	_, err := attempts(ctx, s, &p.cfg.Retry, request{Commands: cmds}, traced, send)
	if values != nil && !errors.Is(err, ErrUncertain) { // the refusals are the replies
		return values, nil
	}
	return values, err
}

// retryOrFail decides after an attempt to send q has failed with err. l is the connection used, or nil without one.
// For another attempt, retryOrFail waits for the backoff and returns nil. Otherwise it returns the error for the caller.
func (p *Pool) retryOrFail(ctx context.Context, a *retryBudget, s *sharedConn, l *pipeline.Link, q request, err error) error {
	pause, verdict := a.pause(), classify(err, l != nil)
	switch {
	case verdict == netfail.Redial:
		a.stale = l
		if !s.replace(l, err) {
			verdict = netfail.Final
		}
	case l == nil:
		pause = 0 // the wait for a dial includes a backoff
	case a.extra == 0 && errors.Is(err, errRetired) && SafeToRetry(err):
		pause, a.extra = 0, 1 // l has reached MaxAge since get returned it: no failure
	case a.made == a.extra && SafeToRetry(err):
		pause = 0 // the link failed while idle: try a new one at once
	}
	if verdict == netfail.Final || ctx.Err() != nil || !a.countFailure(pause) {
		if _, ok := err.(*Error); l != nil || ok && q.name() == "dial" {
			return err
		}
		return &Error{Op: q.name(), Addr: p.cfg.Addr, Err: err} // without a connection nothing was sent
	}
	p.retries.Add(1)
	p.cfg.Trace.retry(ctx, p.cfg.Addr, q, a.made, pause, err)
	if pause > 0 {
		if ended := p.sleep(ctx, pause); ended != nil {
			return &Error{Op: q.name(), Addr: p.cfg.Addr, Err: fmt.Errorf("%w; last answer: %w", ended, err)}
		}
	}
	return nil
}

// sharedFor returns the shared connection for a routing key: always the same connection for the same key, and a
// random connection without a key.
func (p *Pool) sharedFor(key string, keyed bool) *sharedConn {
	n := uint64(len(p.sharedConns))
	switch {
	case n == 1:
		return p.sharedConns[0]
	case keyed:
		return p.sharedConns[maphash.String(p.seed, key)%n]
	}
	return p.sharedConns[rand.Uint64N(n)]
}
