package lock

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/gates"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/lock/internal/processes"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/lock/internal/watchdog"
	"github.com/lockwire/lockwire/pubsub"
)

// Client is the shared state of the locks of one process on one server. Any number of goroutines may use a Client at
// once. Close the Client before its server.
type Client struct {
	// Constant.
	server          Server
	cfg             Config
	id              string                          // the first half of each owner
	tryPlace        any                             // the place of an acquire that does not wait: in no line
	readerID        string                          // in the place of waiting readers: see waiterID
	writerID        string                          // in the place of waiting writers with PreferWriters
	pace            looks.Pace                      // of all waiters
	boot            func(t time.Time) time.Duration // the clock that includes sleep, at the recent time t
	stopLossReports func()                          // unregisters the watchdog from loss reports
	removeTitle     func()                          // removes the client's title from the names of connections

	// The server, and what is known of it. Each value guards itself.
	nature   nature
	events   *pubsub.Subscriber
	remote   *remote.Server
	channels *remote.Channels
	replicas *remote.Replicas
	clocks   *remote.Clocks
	identity *remote.Identity
	scripts  *remote.Runner
	log      *logs.Log

	processNames processes.Names // of owners of other processes

	// The jobs of the client. Each value guards itself.
	table    table                      // the locks held and awaited
	watchdog *watchdog.Watchdog[*Lease] // keeps the leases
	cleanup  *cleanup.Cleanup           // takes back and repeats
	bounds   *bounds.Bounds             // limits the time of releases
	gates    gates.Gates[entryKey]      // admits callers of Redlocks whose first node is here
	wanted   gates.Marks[entryKey]      // the same Redlocks that other processes want, too
	unlike   gates.Marks[entryKey]      // the same Redlocks whose nodes other processes have in another order
	kept     gates.Marks[entryKey]      // locks of members here whose owner does not have the Redlock
	owners   atomic.Int64               // the number of the last owner
	counters struct {                   // of Stats; the watchdog has its own
		waiting                                  atomic.Int64
		acquired, released, lost, unacknowledged atomic.Uint64
	}

	// The life of the client; see close.
	done       chan struct{}   // closed when Close begins
	life       context.Context // for background work and waiters; ended by Close
	endLife    context.CancelFunc
	closeDone  chan struct{}      // closed at the end of Close
	closeErr   error              // the result of Close; set before closeDone is closed
	hurryClose context.CancelFunc // ends the time of Close; nil until closed; guarded by table.mu
	acquires   bounds.Calls       // attempts to acquire that are under way
	changes    bounds.Calls       // changes that are under way
	timers     sync.WaitGroup     // armed deadline timers of leases
	waiters    sync.WaitGroup     // calls that wait, or may be in a queue on the server; entered under table.mu unless closed
	tasks      sync.WaitGroup     // goroutines that acquire or release the parts of a lease; see bounds.Context
}

// ID returns the client's identity in the names of its owners: a random UUID, as for Redisson's clients.
func (c *Client) ID() string { return c.id }

// Server returns the Server passed to New, for commands on keys beside the locks.
func (c *Client) Server() Server { return c.server }

// NewOwner returns a new owner, unique among all owners of all clients.
func (c *Client) NewOwner() Owner {
	return Owner{&ownerState{id: c.nextOwner(), client: c.id, holds: c.table.holds}}
}

func (c *Client) nextOwner() string {
	var buf [64]byte
	b := append(buf[:0], c.id...)
	b = append(b, ':')
	return string(strconv.AppendInt(b, c.owners.Add(1), 10))
}

func (c *Client) isClosed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// background runs fn in a goroutine that Close waits for. If the client is closed, background does nothing and
// reports false.
func (c *Client) background(fn func()) bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if c.table.closed {
		return false
	}
	c.tasks.Go(fn)
	return true
}

// untilClose returns a context that ends with ctx or with the client.
func (c *Client) untilClose(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return c.untilCloseOnly(ctx), func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// untilCloseOnly returns a context that ends with the client alone and has the values of ctx, such as the span of the caller.
func (c *Client) untilCloseOnly(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return c.life
	}
	return remote.WithValues(c.life, ctx)
}

// now returns the present on all clocks that measure leases.
func (c *Client) now() clock.Instant {
	t := time.Now()
	return clock.Instant{Time: t, Boot: c.boot(t)}
}

// publishing returns the command for waking waiters of t: see remote.Channels.
func (c *Client) publishing(t *target) string { return c.channels.Publishing(t.kind.silent) }

// listenersKnown returns what the server of t knows of the listeners: see remote.Channels.
func (c *Client) listenersKnown(t *target) int { return c.channels.ListenersKnown(t.kind.silent) }

// sleep waits for d. It returns an error if ctx or the client ends earlier.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	return netfail.SleepUnless(ctx, d, c.done, ErrClosed)
}
