package lock

import (
	"context"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// patient returns ctx without its Deadline, which a connection would take as leave to be slower than usual: a caller who
// can wait for an hour must not keep all others on a dead connection for as long. It ends when ctx does.
func (c *Client) patient(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); !ok {
		return ctx
	}
	return patient{ctx}
}

type patient struct{ context.Context }

func (patient) Deadline() (time.Time, bool) { return time.Time{}, false }

// dividing is patient for a caller who can do without several keys in one command.
func (c *Client) dividing(ctx context.Context) context.Context {
	if ctx.Value(conn.NoTryAgain) == true {
		return ctx
	}
	return dividing{patient{ctx}}
}

type dividing struct{ patient }

func (d dividing) Value(key any) any {
	if key == conn.NoTryAgain {
		return true
	}
	return d.Context.Value(key)
}

// bounds gives releases a context that ends by itself, for less than a timer each: all that begin within boundTick share
// a channel, which is closed one to two ticks later.
type bounds struct {
	mu         sync.Mutex // guards the following
	closed     bool
	timer      *time.Timer
	armed      bool
	young, old chan struct{}
	active     int           // releases under way
	idle       chan struct{} // closed when there is none any more; nil until close waits for that
}

const (
	boundTick = releaseMax / 2
	// boundLast is how long Close leaves to the releases under way.
	boundLast = time.Second
)

// bounded is a context with the values of another and an end of its own.
type bounded struct {
	context.Context
	done <-chan struct{}
}

// Value says that releases can do without several keys in one command.
func (b *bounded) Value(key any) any { return dividing{patient{b.Context}}.Value(key) }

func (b *bounded) Done() <-chan struct{} { return b.done }

func (b *bounded) Err() error {
	select {
	case <-b.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// bound returns a context that has the values of ctx and ends after most, or some time after half of it. done is to be
// called when the release is over.
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
	return c.dividing(ctx), cancel
}

// enter returns a channel that is closed after one to two ticks, or nil if the client is closed.
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

// close ends all contexts, after a moment for the releases that are under way.
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
