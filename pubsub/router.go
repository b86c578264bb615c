package pubsub

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Router is a Dialer for a cluster, where each channel belongs to one of the servers. A
// *cluster.Cluster is a Router.
//
// A Subscriber on a Router connects to each server with subscribed channels. When a connection is
// lost, or a server refuses a channel, the Subscriber asks Route again and moves the channels.
// Patterns belong to no server; their connection comes from Stream.
//
// Stream and StreamTo may block. Every other method must neither block nor call the Subscriber.
type Router interface {
	Dialer

	// Route returns the present server of a channel, or "" if unknown.
	Route(channel string) (server string)

	// StreamTo is Stream for one server.
	StreamTo(ctx context.Context, server string) (*conn.Stream, error)

	// Refused informs the Router of a problem, so that Route may choose another server: the server
	// refused a channel, ended a subscription or does not answer PING. server is "" for a
	// connection from Stream.
	Refused(server string, err error)
}

// serverDialer is the Dialer for the part of a Subscriber on one server.
type serverDialer struct {
	router Router
	server string
}

// Stream opens a connection to the server.
func (b serverDialer) Stream(ctx context.Context) (*conn.Stream, error) {
	return b.router.StreamTo(ctx, b.server)
}

// partForLocked returns the part of the Subscriber that has a channel, or is to get a new channel.
func (s *Subscriber) partForLocked(k kind, name string) *Subscriber {
	if ch := s.channels[k][name]; ch != nil {
		return ch.part
	}
	if s.router == nil || k == pattern {
		return s
	}
	return s.partLocked(s.router.Route(name))
}

// partLocked returns the part for a server. s is the root.
func (s *Subscriber) partLocked(server string) *Subscriber {
	if server == "" {
		return s
	}
	if p := s.parts[server]; p != nil {
		return p
	}
	p := &Subscriber{
		dialer:  serverDialer{s.router, server},
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

// allLocked returns the root s and its parts.
func (s *Subscriber) allLocked() []*Subscriber {
	return slices.AppendSeq([]*Subscriber{s}, maps.Values(s.parts))
}

// channelsLocked yields the channels whose part is s.
func (s *Subscriber) channelsLocked() iter.Seq[*channel] {
	return func(yield func(*channel) bool) {
		for _, channels := range s.root.channels {
			for _, ch := range channels {
				if ch.part == s && !yield(ch) {
					return
				}
			}
		}
	}
}

// rerouteLocked moves a channel without an outstanding request to the server chosen by Route. It
// reports whether the channel has moved.
func (s *Subscriber) rerouteLocked(ch *channel) bool {
	if s.router == nil || ch.kind == pattern || len(ch.subs) == 0 {
		return false
	}
	to := s.root.partLocked(s.router.Route(ch.name))
	if to == s {
		return false
	}
	if ch.changed {
		ch.changed = false
		s.changed = slices.DeleteFunc(s.changed, func(other *channel) bool { return other == ch })
	}
	s.forgetLocked(ch)
	to.count++
	ch.part, ch.state = to, absent
	to.updateLocked(ch)
	to.startLocked()
	return true
}

// rerouteAllLocked moves the channels of a disconnected part to the servers chosen by Route.
func (s *Subscriber) rerouteAllLocked() {
	for ch := range s.channelsLocked() {
		s.rerouteLocked(ch)
	}
}

// movesAtOnce is the number of redirections that a channel follows without a pause. Further
// redirections mean that the servers do not agree yet.
const movesAtOnce = 2

// redirectLocked handles a refusal of ch. It reports whether ch has moved to another server.
func (s *Subscriber) redirectLocked(ch *channel, err error) bool {
	if s.router == nil || ch.kind == pattern {
		return false
	}
	s.router.Refused(s.server, err)
	if !isRedirect(err) || len(ch.subs) == 0 || s.root.partLocked(s.router.Route(ch.name)) == s {
		return false
	}
	ch.deactivate(absent)
	ch.refusals = min(ch.refusals+1, 100)
	for _, m := range ch.subs {
		m.sub.interruptLocked(ch.event(Interrupted, err))
	}
	s.rerouteLocked(ch)
	if to := ch.part; ch.refusals > movesAtOnce {
		ch.state = refused
		to.refused[ch] = time.Now().Add(to.pauseLocked(ch, err))
		to.wakeKeeper()
	}
	return true
}

// pauseLocked returns the pause before a channel refused with err is requested again.
func (s *Subscriber) pauseLocked(ch *channel, err error) time.Duration {
	n := int(ch.refusals) - 1
	if s.router != nil && (temporary(err) || isRedirect(err)) {
		return netfail.Backoff(n, s.cfg.MinBackoff, s.cfg.MaxBackoff, rand.Float64()) // the reason goes away when a replica has taken over
	}
	return netfail.Backoff(n, s.cfg.MaxBackoff, max(longestRefusal, s.cfg.MaxBackoff), rand.Float64())
}

func isRedirect(err error) bool { return errors.Is(err, resp.ErrMoved) || errors.Is(err, resp.ErrAsk) }
