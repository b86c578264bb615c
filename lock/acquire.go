package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// lock acquires t, waiting for as long as ctx allows.
func (c *Client) lock(ctx context.Context, t *target, opts []Option) (*Lease, error) {
	r, err := c.newRequest(t, opts)
	if err != nil {
		return nil, err
	}
	if c.crowded(&r) {
		return c.wait(ctx, &r, noTTL)
	}
	lease, left, err := c.attempt(ctx, &r)
	switch {
	case lease != nil:
		return lease, nil
	case err == nil:
	case ctx.Err() != nil:
		return nil, c.gaveUp(ctx, err)
	case !passing(err):
		return nil, err
	default:
		left = noTTL
		c.renewOwner(&r)
	}
	return c.wait(ctx, &r, left)
}

// tryLock acquires t if that can be done at once.
func (c *Client) tryLock(ctx context.Context, t *target, opts []Option) (*Lease, error) {
	r, err := c.newRequest(t, opts)
	if err != nil {
		return nil, err
	}
	lease, _, err := c.attempt(ctx, &r)
	if lease == nil && err == nil {
		err = ErrNotAcquired
	}
	return lease, err
}

// gaveUp is the error of a wait that ended with ctx or with the client; last is what went wrong at the last attempt, if
// the server could not be asked.
func (c *Client) gaveUp(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return ErrClosed
	case last != nil && errors.Is(last, cause):
		return last
	case last != nil:
		return fmt.Errorf("lock: %w, and the server could not be asked: %w", cause, last)
	}
	return fmt.Errorf("%w: %w", ErrNotAcquired, cause)
}

// crowded reports whether r has to stand in line: somebody in this process waits for the lock, or has it. An owner that
// has the lock itself does not wait for itself.
func (c *Client) crowded(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[r.target.key()]
	if e == nil {
		return false
	}
	for l := e.leases; l != nil; l = l.next {
		if r.state != nil && l.state == r.state {
			return false
		}
	}
	return e.first != nil || e.leases != nil
}

// noTTL stands for a lock that never becomes free by itself, or of which that is not known.
const noTTL = time.Duration(-1)

// milliseconds is a PTTL as a duration: noTTL below zero, the longest there is for what is longer.
func milliseconds(ms int64) time.Duration {
	switch {
	case ms < 0:
		return noTTL
	case ms > int64(math.MaxInt64/time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// attempt runs the acquire script once. It returns the lease, or nil and how long the holder's lease still lasts. What it
// did not get an answer to is undone behind its back.
func (c *Client) attempt(ctx context.Context, r *request) (*Lease, time.Duration, error) {
	if r.state != nil {
		if err := r.state.take(ctx); err != nil {
			return nil, 0, err
		}
	}
	start := c.now()
	v, err := r.target.kind.acquire.Run(ctx, c.server, r.target.lockKey, r.lease.Milliseconds(), r.owner)
	if err != nil {
		if uncertain(err) {
			c.undo(r, start, ctx.Err() == nil)
		} else {
			r.giveTurn()
		}
		return nil, 0, serverError(err)
	}
	switch v.Kind() {
	case resp.Integer:
		r.giveTurn()
		left, _ := v.Int()
		return nil, milliseconds(left), nil
	case resp.Null, resp.SimpleString:
		return c.granted(r, start, v)
	}
	c.undo(r, start, false)
	return nil, 0, fmt.Errorf("lock: unexpected reply to acquire: %v", v.Kind())
}

// granted makes the lease that the server has just given.
func (c *Client) granted(r *request, start instant, v resp.Value) (*Lease, time.Duration, error) {
	l := newLease(c, r, start)
	if r.state != nil {
		count := int64(1)
		if text, err := v.Text(); err == nil {
			count, _ = strconv.ParseInt(text, 10, 64)
		}
		l.tallied = r.state.grant(r.target.key(), count)
	}
	if !c.register(l) {
		if r.state != nil {
			r.state.ungrant(r.target.key())
		}
		c.undo(r, start, false)
		return nil, 0, ErrClosed
	}
	r.giveTurn()
	if l.renewed {
		c.watchdog.add(l)
	}
	c.counters.acquired.Add(1)
	return l, 0, nil
}

// renewOwner gives the request another owner after an attempt without an answer: what is undone behind that one must
// not meet the next.
func (c *Client) renewOwner(r *request) {
	if r.state == nil {
		r.owner = c.nextOwner()
	}
}

func (r *request) giveTurn() {
	if r.state != nil {
		r.state.give()
	}
}
