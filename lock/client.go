package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/script"
)

// Client is what the locks of one process on one server share. Its methods may be called by any number of goroutines
// at once. Close it before the server it was made with.
type Client struct {
	server      Server
	cfg         Config
	id          string                          // constant; the first half of each owner
	pace        pace                            // constant
	boot        func(t time.Time) time.Duration // constant; what the clock that goes on while the machine sleeps said at t, a moment ago
	owners      atomic.Int64
	events      *pubsub.Subscriber
	nature      nature // constant, of server
	channels    channels
	rights      rights
	acks        bool // constant: acquires wait for replicas
	replicas    replicas
	bounds      bounds
	leaveBounds func() // constant: bounds.leave
	calm        func() // constant: ends that the watchdog hears of losses
	deaf        bool   // constant, for tests: nobody is heard who frees locks by force

	watchdog watchdog
	cleanup  cleanup
	counters counters

	done    chan struct{}   // closed by Close
	life    context.Context // of what runs in the background and of who waits; ended by Close
	end     context.CancelFunc
	once    sync.Once // of Close
	calls   calls     // attempts to acquire that are under way
	changes calls     // changes that are under way
	clocks  clocks
	timers  sync.WaitGroup // deadline timers of leases, and that of bounds, that are armed
	queued  sync.WaitGroup // callers that may be in a queue on the server, and leave it; entered under mu unless closed
	tasks   sync.WaitGroup // parts of leases that are taken or given back beside each other

	closeErr error // what Close returns; set by once

	identity identity // of the server
	gates    gates

	mu sync.Mutex // guards the following; taken before any Lease's mu
	// entries holds the locks that somebody in this process has or waits for.
	entries map[entryKey]*entry
	parked  map[entryKey]*entry // those with a parked watch
	spare   []*entry
	apart   map[*script.Script]*script.Script // by the script that it is the other form of; nil until a slot has migrated
	closed  bool
}

// New returns a Client on server, which stays the caller's to close. A server of which it cannot find out what it is it refuses with
// [ErrInvalid]: see [Server]. It sends nothing: goroutines and the connection for
// wake-ups start when first needed. The client has a random identity, so every process, and every Client of a process,
// is somebody else to the server.
func New(server Server, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	nature, err := classify(server, cfg.Standalone)
	if err != nil {
		return nil, err
	}
	c := &Client{
		server:  server,
		nature:  nature,
		cfg:     cfg,
		id:      newUUID(),
		pace:    defaultPace,
		boot:    newBootClock().at,
		clocks:  clocks{begin: time.Now()},
		events:  pubsub.New(nature.dialer(server), pubsub.Config{Logger: cfg.Logger}),
		done:    make(chan struct{}),
		entries: make(map[entryKey]*entry),
	}
	switch {
	case cfg.Publish == PublishSharded:
		c.channels.set(shardPublish)
	case cfg.Publish == PublishPlain || nature.spread == nil:
		c.channels.set(plainPublish)
	}
	c.acks = c.replicated()
	c.life, c.end = context.WithCancel(context.Background())
	c.leaveBounds = c.bounds.leave
	c.calls.idle, c.changes.idle = make(chan struct{}), make(chan struct{})
	c.watchdog.init(c)
	c.calm = c.watchdog.onLoss(server)
	c.cleanup.init(c)
	return c, nil
}

// ID returns the identity under which the client's owners stand in the locks: a random UUID, as Redisson's clients have.
func (c *Client) ID() string { return c.id }

func (c *Client) warn(text string, args ...any) {
	if c.cfg.Logger != nil {
		c.cfg.Logger.Warn("lock: "+text, args...)
	}
}

// background runs fn in a goroutine that Close waits for. It reports false, and does not run it, if the client is closed.
func (c *Client) background(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(fn)
	return true
}

// entryKey names a lock among those of one client.
type entryKey struct {
	kind *kind
	name string
}

// key names the lock among those that somebody waits for.
func (t *target) key() entryKey { return entryKey{t.kind, t.name} }

// hold names the lock among those that somebody has: what is one lock to the server has the same name in all its kinds.
func (t *target) hold() entryKey {
	if t.kind.like != nil {
		return entryKey{t.kind.like, t.name}
	}
	return t.key()
}

// entry is a lock that somebody in this process has, by hold, or waits for, by key. Client.mu guards it, but for head.
type entry struct {
	leases      *Lease // list of those held, by next and prev
	first, last *waiter
	head        head          // owned by the first waiter
	parked      *pubsub.Watch // of a line that nobody stands in
	idle        uint8         // sweeps since it was parked
	alone       bool          // the last release that was published had no listener but this client
	turn        turn
}

// heldBy reports whether one of the leases is of state. The entry may be nil.
func (e *entry) heldBy(state *ownerState) bool {
	if e == nil {
		return false
	}
	for l := e.leases; l != nil; l = l.next {
		if l.state == state {
			return true
		}
	}
	return false
}

func (c *Client) entryLocked(key entryKey) *entry {
	e := c.entries[key]
	if e == nil {
		if n := len(c.spare); n > 0 {
			e, c.spare = c.spare[n-1], c.spare[:n-1]
		} else {
			e = new(entry)
		}
		c.entries[key] = e
	}
	return e
}

// spareEntries bounds how many entries are kept for use again.
const spareEntries = 64

func (c *Client) dropLocked(key entryKey, e *entry) {
	if e.leases != nil || e.first != nil || e.parked != nil {
		return
	}
	delete(c.entries, key)
	if len(c.spare) < spareEntries {
		*e = entry{}
		c.spare = append(c.spare, e)
	}
}

// register enters a lease that the server has just granted. It reports false if the client has been closed.
func (c *Client) register(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	e := c.entryLocked(l.target.hold())
	if l.next = e.leases; l.next != nil {
		l.next.prev = l
	}
	e.leases = l
	l.listed = true
	return true
}

// forget takes a lease that is no longer held out of its entry.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.listed {
		return
	}
	l.listed = false
	key := l.target.hold()
	e := c.entries[key]
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		e.leases = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.next, l.prev = nil, nil
	c.dropLocked(key, e)
}

// holdsOf returns the leases of owner on a lock but for except; of every owner if owner is "".
func (c *Client) holdsOf(key entryKey, owner string, except *Lease) []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return nil
	}
	var holds []*Lease
	for l := e.leases; l != nil; l = l.next {
		if l != except && (owner == "" || l.owner == owner) {
			holds = append(holds, l)
		}
	}
	return holds
}

// restingLease is the lease in ms that the server should go back to when a hold of state's owner ends: the longest that
// the owner's other holds have left, and 0 when there is none.
func (c *Client) restingLease(key entryKey, state *ownerState, owner string, except *Lease) int64 {
	if state == nil {
		return 0
	}
	var longest time.Duration
	for _, l := range c.holdsOf(key, owner, except) {
		longest = max(longest, l.leaseLeft())
	}
	return int64((longest + time.Millisecond - 1) / time.Millisecond)
}
