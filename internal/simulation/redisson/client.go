// Package redisson is a client with Redisson's behaviour toward a server: its keys, its fields, its scripts (from a
// description, in words of our own), its watchdog, and its way to wait, including its weaknesses. It is for tests of
// compatibility.
//
// A holder is not told of a loss, as Redisson's is not: [Hold.ValidUntil] says until when the server has granted the hold.
package redisson

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/pubsub"
)

// Redisson's defaults.
const (
	subscribeLimit = 7500 * time.Millisecond
	fairWait       = 5 * time.Minute
	latchLife      = 16 * time.Second
	publish        = "PUBLISH"
)

// ErrNotOwner is an IllegalMonitorStateException: a release without a hold.
var ErrNotOwner = errors.New("redisson: not locked by this thread")

// Client is an instance of Redisson.
type Client struct {
	id     string // constant, like the following
	pool   *conn.Pool
	events *pubsub.Subscriber
	lease  time.Duration
	end    chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the following
	entries map[string]*entry
	renewed []*Hold // by the watchdog
	closed  bool
}

// New returns a Client on a pool, which stays the caller's. lease is the lockWatchdogTimeout.
func New(pool *conn.Pool, lease time.Duration) *Client {
	var id [16]byte
	rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	text := hex.EncodeToString(id[:])
	c := &Client{
		id:   text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:],
		pool: pool, events: pubsub.New(pool, pubsub.Config{}), lease: lease,
		end: make(chan struct{}), entries: map[string]*entry{},
	}
	c.wg.Go(c.watchdog)
	return c
}

// ID is the client's part of its owners.
func (c *Client) ID() string { return c.id }

// Close ends the watchdog and the subscriptions. Holds stay until the end of their leases.
func (c *Client) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.end)
	}
	c.mu.Unlock()
	_ = c.events.Close()
	c.wg.Wait()
}

func requestID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// entry is the waiting of a client for a channel. The first waiter subscribes, the last waiter ends the subscription.
type entry struct {
	refs  int
	ready chan struct{} // closed when subscribed, or failed with err
	sub   *pubsub.Subscription
	err   error

	// Guarded by the client's mu.
	saved  int             // wake-ups for the next waiters
	parked []chan struct{} // waiters, in order
}

// enter joins the wait for the channel. wakes returns the number of waiters woken by a message, among a number of waiters, and
// whether wake-ups are kept for later waiters.
func (c *Client) enter(ctx context.Context, channel string, wakes func(payload string, parked int) (n int, saves bool)) (*entry, error) {
	c.mu.Lock()
	e := c.entries[channel]
	first := e == nil
	if first {
		e = &entry{ready: make(chan struct{})}
		c.entries[channel] = e
	}
	e.refs++
	c.mu.Unlock()
	if first {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), subscribeLimit)
		e.sub, e.err = c.events.Subscribe(limit, channel)
		cancel()
		if e.err == nil {
			c.wg.Go(func() { c.hear(e, wakes) })
		}
		close(e.ready)
	}
	select {
	case <-e.ready:
	case <-c.end:
		return e, conn.ErrClosed
	}
	return e, e.err
}

func (c *Client) leave(channel string, e *entry) {
	c.mu.Lock()
	e.refs--
	last := e.refs == 0
	if last && c.entries[channel] == e {
		delete(c.entries, channel)
	}
	c.mu.Unlock()
	if !last {
		return
	}
	<-e.ready
	if e.sub != nil {
		_ = e.sub.Close()
	}
}

// hear wakes waiters as messages come.
func (c *Client) hear(e *entry, wakes func(string, int) (int, bool)) {
	for event := range e.sub.Events() {
		if event.Kind != pubsub.Message {
			continue
		}
		c.mu.Lock()
		n, saves := wakes(event.Payload, len(e.parked))
		for ; n > 0 && len(e.parked) > 0; n-- {
			close(e.parked[0])
			e.parked = e.parked[1:]
		}
		if saves {
			e.saved += n
		}
		c.mu.Unlock()
	}
}

// wait waits for a wake-up for at most d, or without an end if d is below 0. It reports whether a wake-up came.
func (c *Client) wait(ctx context.Context, e *entry, d time.Duration) (woken bool, err error) {
	c.mu.Lock()
	if e.saved > 0 {
		e.saved--
		c.mu.Unlock()
		return true, nil
	}
	turn := make(chan struct{})
	e.parked = append(e.parked, turn)
	c.mu.Unlock()
	var over <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-turn:
		return true, nil
	case <-over:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.end:
		err = conn.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range e.parked {
		if e.parked[i] == turn {
			e.parked = append(e.parked[:i:i], e.parked[i+1:]...)
			return false, err
		}
	}
	e.saved++ // woken in this very moment
	return false, err
}

// The keys and channels of a lock.
func prefixed(prefix, name string) string { return prefix + ":{" + name + "}" }

func owner(id string, thread int64) string { return fmt.Sprint(id, ":", thread) }
