package pubsub

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
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

// stream opens a connection to the server of the part.
func (p *part) stream(ctx context.Context) (*conn.Stream, error) {
	if p.server == "" {
		return p.subscriber.dialer.Stream(ctx)
	}
	return p.subscriber.router.StreamTo(ctx, p.server)
}

// routeLocked returns the part that a channel belongs to at present, and makes one if there is none.
func (s *Subscriber) routeLocked(k kind, name string) *part {
	server := ""
	if s.router != nil && k != pattern {
		server = s.router.Route(name)
	}
	p := s.parts[server]
	if p == nil {
		p = &part{subscriber: s, server: server, wake: make(chan struct{}, 1), refused: make(map[*channel]time.Time)}
		s.parts[server] = p
	}
	return p
}

// channelsLocked yields the channels whose part is p.
func (p *part) channelsLocked() iter.Seq[*channel] {
	return func(yield func(*channel) bool) {
		for _, channels := range p.subscriber.channels {
			for _, ch := range channels {
				if ch.part == p && !yield(ch) {
					return
				}
			}
		}
	}
}

// rerouteLocked moves a channel without an outstanding request to the server chosen by Route. It
// reports whether the channel has moved.
func (p *part) rerouteLocked(ch *channel) bool {
	if len(ch.subs) == 0 {
		return false
	}
	to := p.subscriber.routeLocked(ch.kind, ch.name)
	if to == p {
		return false
	}
	if ch.changed {
		ch.changed = false
		p.changed = slices.DeleteFunc(p.changed, func(other *channel) bool { return other == ch })
	}
	p.forgetLocked(ch)
	to.count++
	ch.part, ch.state = to, absent
	to.updateLocked(ch)
	to.startLocked()
	return true
}

// movesAtOnce is the number of redirections that a channel follows without a pause. Further
// redirections mean that the servers do not agree yet.
const movesAtOnce = 2

// redirectLocked tells the Router of a refusal of ch, and moves ch if another server has it now. It reports whether ch has
// moved.
func (p *part) redirectLocked(ch *channel, err error, now time.Time) bool {
	if p.subscriber.router == nil || ch.kind == pattern {
		return false
	}
	p.subscriber.router.Refused(p.server, err)
	if !netfail.Redirects(err) || len(ch.subs) == 0 || p.subscriber.routeLocked(ch.kind, ch.name) == p {
		return false
	}
	ch.deactivate(absent)
	for sub := range ch.subs {
		sub.interruptLocked(ch.interrupted(err))
	}
	p.rerouteLocked(ch)
	if ch.refusals > movesAtOnce {
		ch.part.postponeLocked(ch, err, now)
	}
	return true
}

// pauseLocked returns the pause before a channel refused with err is requested again.
func (p *part) pauseLocked(ch *channel, err error) time.Duration {
	n, cfg := int(ch.refusals)-1, &p.subscriber.cfg
	if p.subscriber.router != nil && (temporary(err) || netfail.Redirects(err)) {
		return netfail.Backoff(n, cfg.MinBackoff, cfg.MaxBackoff) // the reason goes away when a replica has taken over
	}
	return netfail.Backoff(n, cfg.MaxBackoff, max(longestRefusal, cfg.MaxBackoff))
}
