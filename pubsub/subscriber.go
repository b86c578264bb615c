package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Dialer opens the connections of a Subscriber. A *conn.Pool is one.
type Dialer interface {
	// Stream returns a new connection that the Subscriber closes. It is bounded by ctx, and by limits of its own.
	Stream(ctx context.Context) (*conn.Stream, error)
}

// errClosed is what a closed Subscriber returns.
var errClosed = fmt.Errorf("pubsub: the subscriber is closed: %w", conn.ErrClosed)

var errNoChannel = errors.New("pubsub: no channel given")

// Subscriber has the subscriptions to one server, all on one connection, or those to a cluster, on one connection to each of
// the servers concerned (see [Router]). Its methods may be called by any goroutine.
type Subscriber struct {
	// Constant after New.
	dialer Dialer
	cfg    Config

	// On a cluster what New returns is the root, which has a part for each of the servers. All share keeper and mu.
	router Router // nil: there is one server
	server string // of a part
	root   *Subscriber

	keeper *sync.WaitGroup
	wake   chan struct{} // holds one token while the keeper has something to look at

	// Owned by the keeper, of which there is one at a time.
	failures int       // connections in a row that were not made or did not last
	redial   time.Time // when the next connection may be dialled

	mu *sync.Mutex // guards the following

	parts   map[string]*Subscriber // of the root, by server
	closed  bool
	running bool               // whether there is a keeper
	stop    context.CancelFunc // of the keeper

	channels      [kinds]map[string]*channel
	count         int // of channels
	subscriptions int

	// The present connection.
	connected bool
	changed   []*channel // about which the server may have to be told something
	asked     requests
	refused   map[*channel]time.Time // when to ask again
	answered  time.Time              // the last answer to anything asked
	answers   bool                   // whether there was one
	pinged    time.Time              // the PING without an answer; zero if there is none
	received  int                    // bytes of messages since then
	doubted   time.Time              // when the Router was told last that it has none
	idle      time.Time              // since when there has been no channel; zero if there is one

	lost       bool // whether the connection was lost, and there is no new one yet
	lostCause  error
	reconnects int64
	dropped    int64
}

// New returns a Subscriber that gets its connections from d. It dials nothing and starts nothing before the first
// subscription. The caller closes it, before d.
func New(d Dialer, cfg Config) *Subscriber {
	if d == nil {
		panic("pubsub: New without a Dialer")
	}
	s := &Subscriber{
		dialer:  d,
		cfg:     cfg.withDefaults(),
		keeper:  new(sync.WaitGroup),
		wake:    make(chan struct{}, 1),
		mu:      new(sync.Mutex),
		refused: make(map[*channel]time.Time),
	}
	s.root = s
	s.router, _ = d.(Router)
	return s
}

// Subscribe subscribes to channels and returns when the server has confirmed all of them: what is published from then on
// is received. It waits for a server that cannot be reached as long as ctx lasts.
//
// When the server refuses one of the channels, or the credentials, the error holds its resp.Error; when ctx ends, its
// cause; after Close, conn.ErrClosed. With an error there is no Subscription, and nothing remains of it.
func (s *Subscriber) Subscribe(ctx context.Context, channels ...string) (*Subscription, error) {
	return s.await(ctx, plain, channels)
}

// PSubscribe is Subscribe for all channels that match one of the glob-style patterns. A message that matches two patterns
// is received twice.
func (s *Subscriber) PSubscribe(ctx context.Context, patterns ...string) (*Subscription, error) {
	return s.await(ctx, pattern, patterns)
}

// SSubscribe is Subscribe for shard channels, which SPUBLISH publishes to. Servers have them since Redis 7.0. In a cluster
// the Dialer must be a Router, or lead to the node that serves the channels.
func (s *Subscriber) SSubscribe(ctx context.Context, channels ...string) (*Subscription, error) {
	return s.await(ctx, shard, channels)
}

// Listen is Subscribe without the wait: it returns at once, and the server's confirmation is the first Resumed event. Until
// then the Subscription is as good as interrupted. A refusal is an Interrupted event. The only errors are conn.ErrClosed,
// after Close, and that no channel is given.
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
		return nil, fmt.Errorf("pubsub: subscribe: %w", context.Cause(ctx))
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
		return nil, s.abandon(sub, context.Cause(ctx))
	}
}

// abandon closes a Subscription whose Subscribe has waited too long, and says why it had to wait.
func (s *Subscriber) abandon(sub *Subscription, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.ready = nil
	var lost error
	for _, in := range sub.channels {
		if home := in.ch.home; !home.connected && home.lostCause != nil {
			lost = home.lostCause
		}
	}
	s.removeLocked(sub)
	if lost != nil {
		return fmt.Errorf("pubsub: subscribe: %w; no connection: %v", cause, lost)
	}
	return fmt.Errorf("pubsub: subscribe: %w", cause)
}

// add makes a Subscription with a queue. Its confirmation goes to ready, or if that is nil to the consumer.
func (s *Subscriber) add(k kind, names []string, ready chan error) (*Subscription, error) {
	sub := &Subscription{queue: newQueue(s.cfg.QueueBytes), ready: ready}
	if err := s.enlist(k, names, sub); err != nil {
		return nil, err
	}
	return sub, nil
}

// enlist subscribes for sub.
func (s *Subscriber) enlist(k kind, names []string, sub *Subscription) error {
	if len(names) == 0 {
		return errNoChannel
	}
	sub.subscriber, sub.channels = s, make([]membership, 0, len(names))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.subscriptions++
	for _, name := range names {
		s.homeLocked(k, name).joinLocked(sub, k, name)
	}
	if sub.missing == 0 {
		sub.resumeLocked()
	}
	for _, in := range sub.channels {
		in.ch.home.startLocked()
	}
	return nil
}

// startLocked starts the keeper, if there is none.
func (s *Subscriber) startLocked() {
	if s.running || s.closed {
		return
	}
	s.running = true
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.keeper.Go(func() { s.keep(ctx) })
}

// Stats is a look at a Subscriber.
type Stats struct {
	Channels      int   // channels, patterns and shard channels, each counted once
	Subscriptions int   // not yet closed
	Connected     bool  // whether there is a connection, confirmed or not; in a cluster, to any server
	Reconnects    int64 // connections that took the place of a lost one
	Dropped       int64 // messages dropped because a queue was full, in all
}

// Stats returns the present figures.
func (s *Subscriber) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Subscriptions: s.subscriptions, Reconnects: s.reconnects, Dropped: s.dropped}
	for _, p := range s.allLocked() {
		stats.Channels += p.count
		stats.Connected = stats.Connected || p.connected
	}
	return stats
}

// Close closes all Subscriptions and the connection, and returns when the goroutines of the Subscriber have ended. A
// Subscribe that waits returns conn.ErrClosed. Close returns nil, also the second time.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	for _, p := range s.allLocked() {
		p.closed = true
		p.eachLocked(func(sub *Subscription) {
			if sub.ready != nil {
				sub.failLocked(errClosed)
				return
			}
			s.removeLocked(sub)
		})
		if p.running {
			p.stop()
		}
	}
	s.mu.Unlock()
	s.keeper.Wait()
	return nil
}

// eachLocked calls fn for each Subscription, for some more than once; fn may remove it.
func (s *Subscriber) eachLocked(fn func(*Subscription)) {
	for _, channels := range s.channels {
		for _, ch := range channels {
			for i := len(ch.subs) - 1; i >= 0; i-- {
				fn(ch.subs[i].sub)
			}
		}
	}
}

func (s *Subscriber) wakeKeeper() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
