package pubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
)

// Dialer opens the connections of a Subscriber. A *conn.Pool is a Dialer.
type Dialer interface {
	// Stream returns a new connection, which the Subscriber closes. ctx and the Dialer's own limits
	// bound the wait.
	Stream(ctx context.Context) (*conn.Stream, error)
}

// errClosed is the error of a closed Subscriber.
var errClosed = fmt.Errorf("pubsub: the subscriber is closed: %w", conn.ErrClosed)

var errNoChannel = errors.New("pubsub: no channel given")

// Subscriber holds subscriptions to a server, all on one connection, or to a cluster, on one
// connection per server concerned (see [Router]). Any goroutine may call its methods.
type Subscriber struct {
	// Constant after New.
	dialer Dialer
	router Router // the dialer; nil without a cluster
	cfg    Config

	life   context.Context // of the keepers; ended under mu, by Close
	end    context.CancelFunc
	keeper sync.WaitGroup // joins the goroutines

	mu            sync.Mutex       // guards the following, and the fields so marked of part, channel and Subscription
	parts         map[string]*part // by server
	channels      [kindCount]map[string]*channel
	subscriptions int
	reconnects    int64
	dropped       int64
}

// part is the connection of a Subscriber to one server, over all its reconnects, with the channels on it. A Subscriber
// without a Router has one part.
type part struct {
	// Constant.
	subscriber *Subscriber
	server     string        // "" for connections of the Dialer's Stream
	wake       chan struct{} // capacity 1; signals work for the keeper

	// Owned by the keeper. A part has at most one keeper.
	failures int       // consecutive connections that failed or did not last
	redial   time.Time // earliest time of the next dial

	// The Subscriber's mu guards the following.
	running bool // a keeper runs
	count   int  // number of channels

	// The present connection.
	connected   bool
	changed     []*channel             // channels for which a request may be due
	unanswered  []request              // requests in the order sent, in which the server answers: an error reply belongs to the first
	doubts      int                    // subscriptions whose end may get an error yet, before the answer to the first of unanswered
	pingDue     bool                   // a PING shows whether the first of unanswered has had its answer
	refused     map[*channel]time.Time // time at which to request the channel again
	lastAnswer  time.Time              // time of the last answer to a request, or of the connect
	hasAnswered bool                   // the server has answered a request
	pingSent    time.Time              // time of the unanswered PING, or zero
	received    int                    // bytes of messages since the PING
	reportAt    time.Time              // time of the next report to the Router about an unanswered PING
	idleSince   time.Time              // time when the last channel went, or zero

	lost          bool  // the last connection was lost, and no other was made yet
	lostCause     error // why there is no connection; nil while there is one, and before the first failure
	failureLogged bool  // the Logger knows of a failure, and of no answer since
}

// New returns a Subscriber on connections from d. New neither dials nor starts a goroutine; the
// first subscription does. Close the Subscriber before d.
func New(d Dialer, cfg Config) *Subscriber {
	if d == nil {
		panic("pubsub: New without a Dialer")
	}
	s := &Subscriber{dialer: d, cfg: cfg.withDefaults(), parts: make(map[string]*part)}
	for k := range s.channels {
		s.channels[k] = make(map[string]*channel)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.router, _ = d.(Router)
	return s
}

// Subscribe subscribes to channels and returns when the server has confirmed all of them. Every
// message published from then on is received. While the server is unreachable, Subscribe waits
// until ctx ends.
//
// On an error Subscribe leaves nothing behind. Errors:
//
//   - The server refused a channel or the credentials: wraps its resp.Error.
//   - The dial failed in another way that a repetition cannot mend, for example in TLS: the dial's
//     error.
//   - ctx ended: matches its cause and its Err.
//   - The Subscriber or its Dialer is closed: conn.ErrClosed.
func (s *Subscriber) Subscribe(ctx context.Context, channels ...string) (*Subscription, error) {
	return s.await(ctx, plain, channels)
}

// PSubscribe is Subscribe for all channels that match a glob-style pattern. A message that matches
// two patterns is received twice.
func (s *Subscriber) PSubscribe(ctx context.Context, patterns ...string) (*Subscription, error) {
	return s.await(ctx, pattern, patterns)
}

// SSubscribe is Subscribe for shard channels, the channels of SPUBLISH in Redis 7.0 and later. In a
// cluster the Dialer must be a Router, or connect to the node that serves the channels.
func (s *Subscriber) SSubscribe(ctx context.Context, channels ...string) (*Subscription, error) {
	return s.await(ctx, shard, channels)
}

// Listen is Subscribe without waiting. The first Resumed event is the server's confirmation; until
// then messages may be missed. The refusal of a channel is an Interrupted event; a failed dial is
// none, even if the server refused the credentials. Listen returns an error only without a channel,
// and after Close (conn.ErrClosed).
func (s *Subscriber) Listen(channels ...string) (*Subscription, error) {
	return s.add(plain, channels, nil)
}

// SListen is Listen for shard channels.
func (s *Subscriber) SListen(channels ...string) (*Subscription, error) {
	return s.add(shard, channels, nil)
}

// await adds a Subscription and waits for its confirmation.
func (s *Subscriber) await(ctx context.Context, k kind, names []string) (*Subscription, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pubsub: subscribe: %w", netfail.Ended(ctx))
	}
	ready := make(chan error, 1)
	sub, err := s.add(k, names, ready)
	if err != nil {
		return nil, err
	}
	select {
	case err := <-ready:
		if err != nil {
			return nil, err
		}
		return sub, nil
	case <-ctx.Done():
		return nil, s.abandon(sub, netfail.Ended(ctx))
	}
}

// abandon closes a Subscription whose Subscribe has ended with ctx. The error names the reason for
// the wait.
func (s *Subscriber) abandon(sub *Subscription, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.ready = nil
	var lost error
	for _, ch := range sub.channels {
		lost = cmp.Or(ch.part.lostCause, lost)
	}
	s.removeLocked(sub)
	if lost != nil {
		return fmt.Errorf("pubsub: subscribe: %w; no connection: %v", cause, lost)
	}
	return fmt.Errorf("pubsub: subscribe: %w", cause)
}

// add makes a Subscription with a queue. ready receives its confirmation; if ready is nil, the
// consumer does.
func (s *Subscriber) add(k kind, names []string, ready chan error) (*Subscription, error) {
	sub := &Subscription{queue: &queue{events: make(chan Event, eventsCap), limit: s.cfg.QueueBytes}, ready: ready}
	if err := s.register(k, names, sub); err != nil {
		return nil, err
	}
	return sub, nil
}

func (s *Subscriber) register(k kind, names []string, sub *Subscription) error {
	if len(names) == 0 {
		return errNoChannel
	}
	sub.subscriber, sub.channels = s, make([]*channel, 0, len(names))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return errClosed
	}
	s.subscriptions++
	for _, name := range names {
		s.addMemberLocked(sub, k, name)
	}
	if sub.missing == 0 {
		sub.resumeLocked()
	}
	for _, ch := range sub.channels {
		ch.part.startLocked()
	}
	return nil
}

func (p *part) startLocked() {
	if s := p.subscriber; !p.running && !s.isClosed() {
		p.running = true
		s.keeper.Go(func() { p.keep(s.life) })
	}
}

func (s *Subscriber) isClosed() bool { return s.life.Err() != nil }

// Stats is a snapshot of a Subscriber.
type Stats struct {
	Channels      int   // channels, patterns and shard channels, each counted once
	Subscriptions int   // open Subscriptions
	Connected     bool  // connected, whether or not channels are confirmed; in a cluster: to any server
	Reconnects    int64 // connections that replaced a lost connection
	Dropped       int64 // total of messages dropped from full queues
}

// Stats returns the present statistics.
func (s *Subscriber) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Subscriptions: s.subscriptions, Reconnects: s.reconnects, Dropped: s.dropped}
	for _, p := range s.parts {
		stats.Channels += p.count
		stats.Connected = stats.Connected || p.connected
	}
	return stats
}

// Close closes all Subscriptions and the connection, and returns when the Subscriber's goroutines
// have ended. A waiting Subscribe returns conn.ErrClosed. Close returns nil, also when called
// again.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.end()
	for _, p := range s.parts {
		p.eachLocked(func(sub *Subscription) {
			if sub.ready != nil {
				sub.failLocked(errClosed)
				return
			}
			s.removeLocked(sub)
		})
	}
	s.mu.Unlock()
	s.keeper.Wait()
	return nil
}

// eachLocked calls fn for each Subscription, once per channel of the Subscription. fn may remove the Subscription.
func (p *part) eachLocked(fn func(*Subscription)) {
	for ch := range p.channelsLocked() {
		for sub := range ch.subs {
			fn(sub)
		}
	}
}
