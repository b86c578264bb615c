package lock

import (
	"context"
	"sync"
	"time"
)

// bounds gives releases a context that ends by itself, for less than a timer each: all that begin within boundTick share
// a channel, which is closed one to two ticks later.
type bounds struct {
	mu         sync.Mutex // guards the following
	closed     bool
	timer      *time.Timer
	armed      bool
	young, old chan struct{}
}

const boundTick = releaseMax / 2

// bounded is a context with the values of another and an end of its own. It has no Deadline: a connection takes one as
// leave to be slower than usual.
type bounded struct {
	context.Context
	done <-chan struct{}
}

func (b *bounded) Done() <-chan struct{} { return b.done }

func (b *bounded) Err() error {
	select {
	case <-b.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// bound returns a context that has the values of ctx and ends after most, or some time after half of it.
func (c *Client) bound(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if most >= releaseMax {
		if done := c.bounds.take(c); done != nil {
			return &bounded{ctx, done}, func() {}
		}
	}
	return context.WithTimeout(ctx, most)
}

// take returns a channel that is closed after one to two ticks, or nil if the client is closed.
func (b *bounds) take(c *Client) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if b.young == nil {
		b.young = make(chan struct{})
	}
	if !b.armed {
		b.armed = true
		c.timers.Add(1)
		if b.timer == nil {
			b.timer = time.AfterFunc(boundTick, func() { b.tick(c) })
		} else {
			b.timer.Reset(boundTick)
		}
	}
	return b.young
}

func (b *bounds) tick(c *Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.old != nil {
		close(b.old)
	}
	b.old, b.young = b.young, nil
	if b.old != nil && !b.closed {
		b.timer.Reset(boundTick)
		return
	}
	b.armed = false
	c.timers.Done()
}

// close ends the timer. Contexts in use stay open: the limit of the connection's own still bounds their releases.
func (b *bounds) close(c *Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.armed && b.timer.Stop() {
		b.armed = false
		c.timers.Done()
	}
}
