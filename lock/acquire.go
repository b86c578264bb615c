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
		r.refused = true
		return c.wait(ctx, &r, noTTL)
	}
	lease, left, err := c.attempt(ctx, &r)
	switch {
	case lease != nil:
		return lease, nil
	case err == nil:
	case ctx.Err() != nil || c.isClosed():
		return nil, c.gaveUp(ctx, &r, err)
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
	switch {
	case err != nil && c.isClosed():
		return nil, ErrClosed
	case lease == nil && err == nil:
		return nil, ErrNotAcquired
	}
	return lease, err
}

// gaveUp is the error of a wait that ended with ctx or with the client; last is what went wrong at the last attempt, if it
// had no answer.
func (c *Client) gaveUp(ctx context.Context, r *request, last error) error {
	switch {
	case c.isClosed():
		return ErrClosed
	case r.refused:
		return fmt.Errorf("%w: %w", ErrNotAcquired, ended(ctx))
	case last != nil && !errors.Is(last, ended(ctx)):
		return fmt.Errorf("lock: %w, and the server could not be asked: %w", ended(ctx), last)
	case last != nil:
		return last
	}
	return fmt.Errorf("%w: %w", ErrNotAcquired, ended(ctx))
}

// ended is why ctx is over: its error, and its cause if that is another one.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (c *Client) isClosed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
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
	keys := r.target.lockKey
	if ctx.Done() == nil {
		ctx = c.life
	}
	if r.state != nil {
		if err := r.state.take(ctx); err != nil {
			return nil, 0, err
		}
		r.latch = newLatch(r.target)
		keys = []string{r.target.name, r.latch}
	}
	start := c.now()
	v, err := r.target.kind.acquire.Run(c.patient(ctx), c.server, keys, r.lease.Milliseconds(), r.owner)
	if err != nil {
		if uncertain(err) {
			c.undo(r, start, true)
		} else {
			r.giveTurn()
		}
		return nil, 0, serverError(err)
	}
	count, left, err := acquired(v, r.state != nil)
	switch {
	case err != nil:
		c.undo(r, start, false)
		return nil, 0, err
	case count > 0:
		return c.granted(r, start, count)
	}
	r.refused = true
	r.giveTurn()
	return nil, left, nil
}

// acquired is what a reply to acquire says: the hold count, or 0 and how long the lock stays taken.
func acquired(v resp.Value, owned bool) (count int64, left time.Duration, err error) {
	switch v.Kind() {
	case resp.Null:
		return 1, 0, nil
	case resp.Integer:
		ms, err := v.Int()
		return 0, milliseconds(ms), err
	case resp.SimpleString:
		text, _ := v.Text()
		if count, err := strconv.ParseInt(text, 10, 64); err == nil && count > 1 && owned {
			return count, 0, nil
		}
	}
	return 0, 0, fmt.Errorf("lock: unexpected reply to acquire, of kind %v", v.Kind())
}

// granted makes the lease that the server has just given, unless it has ended by now or the client has been closed.
func (c *Client) granted(r *request, start instant, count int64) (*Lease, time.Duration, error) {
	l := newLease(c, r, start)
	key := r.target.key()
	if r.state != nil {
		l.tallied = r.state.grant(key, count)
	}
	var refused error
	if start.elapsed(c.now()) >= validity(l.term) {
		r.refused = true
		refused = &LostError{Name: r.target.name, Reason: Expired}
	} else if !c.register(l) {
		refused = ErrClosed
	}
	if refused != nil {
		if r.state != nil {
			r.state.ungrant(key)
		}
		c.undo(r, start, false)
		return nil, 0, refused
	}
	if r.state != nil {
		// Of a first hold follows that what the owner had earlier was lost in between.
		for _, other := range c.holdsOf(key, l.owner, l) {
			if other.tallied != l.tallied {
				other.lose(Forced, nil)
			}
		}
	}
	r.giveTurn()
	c.watchdog.add(l)
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
