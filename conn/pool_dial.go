package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// dialsAtOnce limits the concurrent dials of a Pool.
const dialsAtOnce = 2

// dial makes a session for linkLocked. It waits for one of dialTokens and, after failed dials, for the backoff. It then calls
// wanted with mu held, and returns nil and no error if no caller needs the connection any more. A goroutine counted by p.wg
// must call dial.
func (p *Pool) dial(exclusive bool, wanted func() bool) (*pipeline.Session, error) {
	if p.isClosed() {
		return nil, p.cause()
	}
	d := &dialState{}
	p.mu.Lock()
	p.pendingDials[d] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pendingDials, d)
	}()
	ctx := context.WithValue(p.life, dialStateKey{}, d)
	select {
	case p.dialTokens <- struct{}{}:
		defer func() { <-p.dialTokens }()
	case <-ctx.Done():
		return nil, p.cause()
	}
	p.mu.Lock()
	pause, switched := time.Until(p.notBefore), p.changed
	p.mu.Unlock()
	if pause > 0 && netfail.SleepUnless(ctx, pause, switched, sentinel.ErrSwitched) != nil && ctx.Err() != nil {
		return nil, p.cause()
	}
	p.mu.Lock()
	if !wanted() {
		p.mu.Unlock()
		return nil, nil
	}
	p.dials++
	p.mu.Unlock()
	begin := time.Now()
	s, err := p.connect(ctx)
	p.noteDial(begin, exclusive, s, err)
	return s, err
}

// linkLocked makes a link for an owner, given the results of dial. Without a session it returns no link.
func (p *Pool) linkLocked(o pipeline.Owner, exclusive bool, s *pipeline.Session, err error) (*pipeline.Link, error) {
	switch {
	case p.isClosed():
		if s != nil {
			s.HangUp()
		}
		return nil, p.cause()
	case s == nil:
		return nil, err
	case p.outdatedLocked(s.Addr):
		s.HangUp()
		return nil, &Error{Op: "dial", Addr: s.Addr, Err: sentinel.ErrSwitched}
	}
	l := pipeline.New(s, p.cfg.linkConfig(!exclusive), o, &p.wg)
	p.links[l] = struct{}{}
	if !exclusive && p.nameLocked() != s.Name { // changed since the handshake
		p.renameLocked(l)
	}
	return l, nil
}

// noteDial records the outcome of a dial and reports it to Trace and Logger.
func (p *Pool) noteDial(begin time.Time, exclusive bool, s *pipeline.Session, err error) {
	now := time.Now()
	p.mu.Lock()
	if p.isClosed() {
		p.mu.Unlock()
		return
	}
	before := p.failures
	if err != nil {
		p.dialErrors++
		p.lastErr, p.lastAt = errors.Unwrap(err), now
		p.notBefore = now.Add(p.cfg.Retry.dialPause(p.failures))
		p.failures++
	} else {
		p.failures = 0
	}
	p.mu.Unlock()
	p.cfg.Trace.dial(begin, p.dialAddr(s, err), exclusive, s, err)
	switch {
	case err != nil && before == 0:
		warn(&p.cfg, "server not reachable", "error", err)
	case err == nil && before > 0:
		warn(&p.cfg, "server reachable again", "dials", before+1)
	}
}

// forgetLocked forgets a failed link, and reports it unless this program has closed it.
func (p *Pool) forgetLocked(l *pipeline.Link, exclusive bool, outstanding int, err error) {
	delete(p.links, l)
	if !p.isClosed() && !onPurpose(err) {
		p.lostLinks++
		p.losses.Call()
		report(&p.cfg, &p.wg, l, exclusive, outstanding, err)
	}
}

// waitErrorLocked returns the error for a caller whose ctx ended while waiting for a connection.
func (p *Pool) waitErrorLocked(ctx context.Context) error {
	n := p.countLocked()
	text := fmt.Sprintf("waiting for a connection (%d shared; exclusive: %d open, %d idle, %d lent, %d being dialled, "+
		"%d waiting)", n.Shared, n.Open, n.Idle, n.Lent, n.Dialing, n.Waiting)
	for d := range p.pendingDials {
		text += "; a dial under way: " + d.String()
	}
	if p.failures == 0 {
		return fmt.Errorf("%s: %w", text, netfail.Ended(ctx))
	}
	ago := time.Since(p.lastAt).Round(time.Millisecond)
	return fmt.Errorf("%s: %w; last dial, %v ago: %w", text, netfail.Ended(ctx), ago, p.lastErr)
}

func (p *Pool) connect(ctx context.Context) (*pipeline.Session, error) {
	if p.resolver != nil {
		return p.resolver.Dial(ctx)
	}
	return dial(ctx, &p.cfg, false)
}

// dialAddr returns the address that a dial led to, or tried.
func (p *Pool) dialAddr(s *pipeline.Session, err error) string {
	if s != nil {
		return s.Addr
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Addr != "" {
		return e.Addr
	}
	return p.cfg.Addr
}

// renameLocked sends CLIENT SETNAME, unless the handshake had to do without such commands.
func (p *Pool) renameLocked(l *pipeline.Link) {
	if l.Named {
		l.Post(resp.Cmd("CLIENT", "SETNAME", p.nameLocked()))
	}
}
