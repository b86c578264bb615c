package lock

import (
	"context"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
)

// The waiters of a fair lock stand in a queue on the server, each with an owner of its own. An Owner has one place in a queue,
// however many of its calls wait there.

// pass makes the server check a queue that is stuck although the lock is free, and reports whether r is now first. On
// an error r just waits.
func (c *Client) pass(ctx context.Context, r *request) bool {
	t := r.target
	v, err := t.kind.Pass.Run(remote.Patient(ctx), c.server, t.keys, r.owner, c.channels.Publishing(t.kind.silent), c.channels.CountsListeners(t.kind.silent))
	mine, failed := v.Bool()
	return err == nil && failed == nil && mine
}

// enterQueue registers r as possibly queued on the server, and reports false if the client is closed. Pair enterQueue
// with leaveQueue, and with c.queued.Done when the call returns.
func (c *Client) enterQueue(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.queued.Add(1)
	r.look = make(chan struct{}, 1)
	r.state.queued = append(r.state.queued, place{r.target.key(), r.look})
	return true
}

// leaveQueue ends the wait of r. The place in the server's queue then belongs to other waiting calls of the same
// owner for the same lock, if any.
func (c *Client) leaveQueue(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.state.queued = slices.DeleteFunc(r.state.queued, func(p place) bool { return p.look == r.look })
}

// stands reports whether r, or another call of its owner, waits in the queue of the lock.
func (c *Client) stands(r request) bool {
	if r.waits || r.state == nil {
		return r.waits
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(r.state.queued, func(p place) bool { return p.key == r.target.key() })
}

// queueWait returns the distance between r's deadline in the queue and the deadline of the waiter in front.
func (c *Client) queueWait(r request) time.Duration {
	if r.deadline.IsZero() {
		return c.cfg.FairWait
	}
	return max(min(r.deadline.Sub(r.since), c.cfg.FairWait), time.Millisecond)
}
