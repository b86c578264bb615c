package conn

import (
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
)

// switchGrace is how long commands sent to the former master may wait for replies. A living master answers in this
// time; a dead one may be the reason of the failover.
const switchGrace = 250 * time.Millisecond

// switched records the master, the change number seq of the resolver, and replaces the connections to a former master.
// Commands sent on these are answered within switchGrace or fail, unless their server is the master again. With the first
// master, switched starts the goroutines that follow the sentinels.
func (p *Pool) switched(from, to string, seq uint64) {
	p.mu.Lock()
	if p.isClosed() || seq <= p.seq {
		p.mu.Unlock()
		return
	}
	first := p.seq == 0
	p.seq, p.addr = seq, to
	if first {
		p.wg.Go(func() { p.resolver.Follow(p.life) })
		p.wg.Go(func() { p.resolver.Watch(p.life) })
	} else {
		p.switches++
		close(p.changed)
	}
	p.changed = make(chan struct{})
	p.notBefore = time.Time{}
	links, streams := p.leaveOutdatedLocked()
	p.mu.Unlock()
	for _, l := range links {
		l.Drain(switchGrace)
	}
	for _, s := range streams {
		_ = s.fail(sentinel.ErrSwitched)
	}
	if !first {
		p.losses.Call()
		if t := p.cfg.Trace; t != nil && t.Switch != nil {
			t.Switch(SwitchInfo{Master: p.cfg.Sentinel.Master, From: from, To: to})
		}
		warn(&p.cfg, "another server is the master", "from", from, "to", to)
	}
}

// leaveOutdatedLocked takes the shared connections to a former master out of use and dials others. It returns all links
// and streams to the former master, for the caller to end.
func (p *Pool) leaveOutdatedLocked() (links []*pipeline.Link, streams []*Stream) {
	for _, s := range p.sharedConns {
		if l := s.current.Load(); l != nil && p.outdatedLocked(l.Addr) {
			s.current.Store(nil)
			s.dialAnywayLocked()
		}
	}
	for l := range p.links {
		if p.outdatedLocked(l.Addr) {
			links = append(links, l)
		}
	}
	for s := range p.streams {
		if p.outdatedLocked(s.Addr()) {
			streams = append(streams, s)
		}
	}
	return links, streams
}

// enlist registers a Stream, to be closed when the master changes.
func (p *Pool) enlist(s *Stream) (*Stream, error) {
	if p.resolver == nil {
		return s, nil
	}
	s.onEnd = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.streams, s)
	}
	p.mu.Lock()
	outdated := p.outdatedLocked(s.Addr())
	if !outdated {
		p.streams[s] = struct{}{}
	}
	p.mu.Unlock()
	if outdated {
		return nil, &Error{Op: "dial", Addr: s.Addr(), Err: s.fail(sentinel.ErrSwitched)}
	}
	return s, nil
}
