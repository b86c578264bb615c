package lock

import (
	"context"
	"slices"

	"github.com/lockwire/lockwire/lock/internal/remote"
)

// The waiters of a fair lock stand in a queue on the server, each with an owner of its own. An Owner has one place in a queue,
// however many of its calls wait there.

// pass makes the server check a queue that is stuck although the lock is free, and reports whether r is now first. On
// an error r just waits.
func (r *request) pass(ctx context.Context) bool {
	c := r.client
	t := r.target
	v, err := t.kind.Pass.Run(remote.Patient(ctx), c.server, t.keys(), r.owner, c.channels.Publishing(t.kind.silent), c.channels.CountsListeners(t.kind.silent))
	mine, failed := v.Bool()
	return err == nil && failed == nil && mine
}

// enterQueue registers r as possibly queued on the server, and reports false if the client is closed. Pair enterQueue
// with leaveQueue, and with c.queued.Done when the call returns.
func (r *request) enterQueue() bool {
	c := r.client
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if c.table.closed {
		return false
	}
	c.queued.Add(1)
	r.look = make(chan struct{}, 1)
	r.state.queued = append(r.state.queued, place{key: r.target.key(), look: r.look})
	return true
}

// leaveQueue ends the wait of r. The place in the server's queue then belongs to other waiting calls of the same
// owner for the same lock, if any. leaveQueue records in r.asked whether there may be a place.
func (r *request) leaveQueue() {
	c := r.client
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	r.state.queued = slices.DeleteFunc(r.state.queued, func(p place) bool {
		r.asked = r.asked || p.look == r.look && p.asked
		return p.look == r.look
	})
}
