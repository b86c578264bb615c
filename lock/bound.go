package lock

import (
	"context"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// bounds provides contexts with a limit for releases, cheaper than a timer each: all releases that begin within
// boundTick share a channel, closed one to two ticks later.
type bounds struct {
	mu         sync.Mutex // guards the following
	closed     bool
	timer      *time.Timer
	armed      bool
	young, old chan struct{}
	active     int           // releases under way
	idle       chan struct{} // closed when no release is under way; nil until close waits
}

const (
	boundTick = releaseMax / 2
	// boundLast is the time that Close grants to releases under way.
	boundLast = time.Second
)

// bounded is a context with the values of another context and its own end.
type bounded struct {
	context.Context
	done <-chan struct{}
}

// Value reports that releases can divide a command with several keys.
func (b *bounded) Value(key any) any {
	if key == conn.NoTryAgain {
		return true
	}
	return b.Context.Value(key)
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

// bound returns a context with the values of ctx that ends after at least half of most and at most most. Call done
// after the release.
func (c *Client) bound(ctx context.Context, most time.Duration) (bound context.Context, done func()) {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if most >= releaseMax {
		if end := c.bounds.enter(c); end != nil {
			return &bounded{ctx, end}, c.leaveBounds
		}
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	return remote.Dividing(ctx), cancel
}

// boundTask is bound for a task, which Close waits for: the context also ends in time for cleanup to repeat the release.
func (c *Client) boundTask(ctx context.Context, most time.Duration) (bound context.Context, done func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(c.releases, cancel)
	return remote.Dividing(ctx), func() { stop(); cancel() }
}

// enter returns a channel that closes after one to two ticks, or nil if the client is closed.
func (b *bounds) enter(c *Client) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.active++
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

func (b *bounds) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active--; b.active == 0 && b.idle != nil {
		close(b.idle)
	}
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

// close ends all contexts, after a short wait for releases under way.
func (b *bounds) close(c *Client) {
	b.mu.Lock()
	b.closed = true
	if b.armed && b.timer.Stop() {
		b.armed = false
		c.timers.Done()
	}
	idle := make(chan struct{})
	if b.active == 0 {
		close(idle)
	} else {
		b.idle = idle
	}
	b.mu.Unlock()
	last := time.NewTimer(boundLast)
	defer last.Stop()
	select {
	case <-idle:
	case <-last.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, done := range []chan struct{}{b.old, b.young} {
		if done != nil {
			close(done)
		}
	}
	b.old, b.young = nil, nil
}
