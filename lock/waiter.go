package lock

import (
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/claim"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/pubsub"
)

// waiter is a waiting call of Lock. It stands in the line of its process, or by itself if the server keeps the line.
//
// The caller sleeps in awaitFront until the waiter is at the front, and then in contend.
type waiter struct {
	request // a holder who has claimed the waiter reads it

	// Constant.
	left  time.Duration // remaining lease of the holder at the start of the wait
	entry *entry        // entry of the line; nil if the server keeps the line
	wake  chan struct{} // buffered, 1: signalled after a change of front, claim or head

	front atomic.Bool             // the waiter stands at the front
	claim claim.Claim[handedOver] // may be changed by others too
	head  *head                   // owned by the waiter at the front
	timer *time.Timer             // for the next look; nil before the waiter is at the front

	questions questions // owned by the waiter at the front

	counted bool // in Client.queued; constant after join

	next, prev *waiter // guarded by table.mu
}

// head is the state of the waiter at the front. It passes from waiter to waiter with the turn.
type head struct {
	looks.Looks
	events *pubsub.Watch
}

// questions has the times at which a waiter asks; zero for never.
type questions struct {
	last time.Time // for the error
	warn time.Time // for the log
}

// handedOver is the outcome of a hand-over for the waiter.
type handedOver struct {
	granted bool
	owner   string // the owner of the continuing hold; "" for the waiter's own
	unknown bool   // no reply, or an unexpected reply
	start   clock.Instant
	token   int64
	latch   string // an undo leaves this key
	last    int64  // the latest time at which the hand-over may take effect
	series  series
}

// shareGrant signals the waiters able to share the lock just acquired by r: all waiters of a kind for everybody, and waiters
// of the same owner for other kinds.
func (r *request) shareGrant() {
	c := r.client
	all := r.target.kind.others == everybody
	if !all && r.state == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	key := r.target.key()
	if e := c.table.entries[key]; e != nil {
		for w := e.first; w != nil; w = w.next {
			if all || w.state == r.state {
				notify(w.look)
			}
		}
	}
	if r.state == nil {
		return
	}
	for _, p := range r.state.queued {
		if p.key == key && p.look != r.look {
			notify(p.look)
		}
	}
}

// notify sends a signal to a channel of capacity 1. A second signal before a receive has no effect.
func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
