package pubsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Router is a Dialer for a cluster: each channel belongs to one of its servers. A *cluster.Cluster is one. A Subscriber on a
// Router has a connection to each server that any of its channels belongs to, and moves those of a server that it loses, or
// that says that it is no longer the one. Patterns belong to no server; for them it has a connection by Stream.
//
// The methods but for the dials must not block, and must not call the Subscriber.
type Router interface {
	Dialer

	// Route returns the server that a channel belongs to at present, or "" if there is none.
	Route(channel string) (server string)

	// StreamTo is Stream for one server.
	StreamTo(ctx context.Context, server string) (*conn.Stream, error)

	// Refused tells the Router that a server, or if that is "" one that it chose, has refused a channel, ended the
	// subscription to it, or does not answer a PING, so that the next Route may be another.
	Refused(server string, err error)
}

// branch is the Dialer of the part of a Subscriber that is on one server.
type branch struct {
	router Router
	server string
}

// Stream opens a connection to the server.
func (b branch) Stream(ctx context.Context) (*conn.Stream, error) {
	return b.router.StreamTo(ctx, b.server)
}

// homeLocked returns the part of the Subscriber that has, or is to have, a channel.
func (s *Subscriber) homeLocked(k kind, name string) *Subscriber {
	if s.router == nil || k == pattern {
		return s
	}
	if s.channels[k][name] != nil {
		return s
	}
	for _, p := range s.parts {
		if p.channels[k][name] != nil {
			return p
		}
	}
	return s.partLocked(s.router.Route(name))
}

// partLocked returns the part of s, which is the root, that is on a server.
func (s *Subscriber) partLocked(server string) *Subscriber {
	if server == "" {
		return s
	}
	if p := s.parts[server]; p != nil {
		return p
	}
	p := &Subscriber{
		dialer:  branch{s.router, server},
		router:  s.router,
		server:  server,
		root:    s,
		cfg:     s.cfg,
		keeper:  s.keeper,
		wake:    make(chan struct{}, 1),
		mu:      s.mu,
		refused: make(map[*channel]time.Time),
	}
	if s.parts == nil {
		s.parts = make(map[string]*Subscriber)
	}
	s.parts[server] = p
	return p
}

// allLocked returns s, which is the root, and its parts.
func (s *Subscriber) allLocked() []*Subscriber {
	all := []*Subscriber{s}
	for _, p := range s.parts {
		all = append(all, p)
	}
	return all
}

// rerouteLocked moves a channel about which nothing is being asked to where it belongs, if that is another place, and
// reports whether it is.
func (s *Subscriber) rerouteLocked(ch *channel) bool {
	if s.router == nil || ch.kind == pattern || len(ch.subs) == 0 {
		return false
	}
	to := s.root.partLocked(s.router.Route(ch.name))
	if to == s {
		return false
	}
	delete(s.channels[ch.kind], ch.name)
	delete(s.refused, ch)
	if ch.changed {
		ch.changed = false
		s.changed = slices.DeleteFunc(s.changed, func(other *channel) bool { return other == ch })
	}
	if s.count--; s.count == 0 {
		s.wakeKeeper()
	}
	if to.channels[ch.kind] == nil {
		to.channels[ch.kind] = make(map[string]*channel)
	}
	to.channels[ch.kind][ch.name] = ch
	to.count++
	ch.home, ch.state = to, absent
	to.touchLocked(ch)
	to.startLocked()
	return true
}

// rerouteAllLocked moves the channels of a part without a connection to where they belong.
func (s *Subscriber) rerouteAllLocked() {
	if s.router == nil {
		return
	}
	for _, channels := range s.channels {
		var all []*channel // the map changes
		for _, ch := range channels {
			all = append(all, ch)
		}
		for _, ch := range all {
			s.rerouteLocked(ch)
		}
	}
}

// movesAtOnce is how often a channel follows its server without a pause. If it is sent further than that, the servers do
// not agree yet.
const movesAtOnce = 2

// divertLocked is told that the server has refused ch. It reports whether ch now is where it will be granted.
func (s *Subscriber) divertLocked(ch *channel, err error) bool {
	if s.router == nil || ch.kind == pattern {
		return false
	}
	s.router.Refused(s.server, err)
	if !isRedirect(err) || len(ch.subs) == 0 || s.root.partLocked(s.router.Route(ch.name)) == s {
		return false
	}
	ch.leave(absent)
	ch.refusals = min(ch.refusals+1, 100)
	for _, m := range ch.subs {
		m.sub.interruptLocked(ch.event(Interrupted, err))
	}
	s.rerouteLocked(ch)
	if to := ch.home; ch.refusals > movesAtOnce {
		ch.state = refused
		to.refused[ch] = time.Now().Add(to.pauseLocked(ch, err))
		to.wakeKeeper()
	}
	return true
}

// pauseLocked is how long a channel that was refused for the reason err is left alone.
func (s *Subscriber) pauseLocked(ch *channel, err error) time.Duration {
	n := int(ch.refusals) - 1
	if s.router != nil && (passing(err) || isRedirect(err)) {
		return netfail.Backoff(n, s.cfg.MinBackoff, s.cfg.MaxBackoff, rand.Float64()) // it passes when a replica has taken over
	}
	return netfail.Backoff(n, s.cfg.MaxBackoff, max(longestRefusal, s.cfg.MaxBackoff), rand.Float64())
}

func isRedirect(err error) bool { return errors.Is(err, resp.ErrMoved) || errors.Is(err, resp.ErrAsk) }
