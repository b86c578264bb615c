// Package bounds limits the time of releases, which outlast the contexts of their callers.
package bounds

import (
	"context"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Bounds provides contexts with a limit for releases, cheaper than a timer each: all releases that begin within
// tickEvery share a channel, closed one to two ticks later.
type Bounds struct {
	timers   *sync.WaitGroup // constant; counts the armed timer
	leaves   func()          // constant: leave
	tasks    context.Context // ended by Close after a part of its time
	endTasks context.CancelFunc

	mu         sync.Mutex // guards the following
	closed     bool
	timer      *time.Timer
	armed      bool
	young, old chan struct{}
	active     int           // releases under way
	idle       chan struct{} // closed when no release is under way; nil until Close waits
}

const (
	// Min and Max bound the wait of Unlock. Between the bounds Unlock waits for the rest of the lease.
	Min, Max  = time.Second, 10 * time.Second
	tickEvery = Max / 2
	// lastReleases is the time that Close grants to releases under way.
	lastReleases = time.Second
	// tasksLast is the time of Close for releases by tasks. In the rest of the time of Close, cleanup repeats them.
	tasksLast = CloseTime / 2
)

// CloseTime is the time limit of Close.
const CloseTime = time.Second

// New returns Bounds whose timer counts in timers while it is armed.
func New(timers *sync.WaitGroup) *Bounds {
	b := &Bounds{timers: timers}
	b.leaves = b.leave
	b.tasks, b.endTasks = context.WithCancel(context.Background())
	return b
}

// bounded is a context with the values of another context and its own end, without a deadline.
type bounded struct {
	values context.Context
	done   <-chan struct{}
}

func (b *bounded) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value reports that releases can divide a command with several keys.
func (b *bounded) Value(key any) any {
	if key == conn.NoTryAgain {
		return true
	}
	return b.values.Value(key)
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

// Context returns a context with the values of ctx that ends after at least half of most and at most most. Call done
// after the release.
func (b *Bounds) Context(ctx context.Context, most time.Duration) (bound context.Context, done func()) {
	if most >= Max {
		if end := b.enter(); end != nil {
			return &bounded{ctx, end}, b.leaves
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	return remote.Dividing(ctx), cancel
}

// TaskContext is Context for a task, which Close waits for: the context also ends in time for cleanup to repeat the release.
func (b *Bounds) TaskContext(ctx context.Context, most time.Duration) (bound context.Context, done func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(b.tasks, cancel)
	return remote.Dividing(ctx), func() { stop(); cancel() }
}

// HurryTasks ends the releases by tasks after half of the time of Close, at most tasksLast. Call stop after the tasks have ended.
func (b *Bounds) HurryTasks(ctx context.Context) (stop func()) {
	limit := tasksLast
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	over := context.AfterFunc(ctx, b.endTasks)
	return func() {
		over()
		cancel()
		b.endTasks()
	}
}

// enter returns a channel that closes after one to two ticks, or nil if the client is closed.
func (b *Bounds) enter() <-chan struct{} {
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
		b.timers.Add(1)
		if b.timer == nil {
			b.timer = time.AfterFunc(tickEvery, b.tick)
		} else {
			b.timer.Reset(tickEvery)
		}
	}
	return b.young
}

func (b *Bounds) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active--; b.active == 0 && b.idle != nil {
		close(b.idle)
	}
}

func (b *Bounds) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.old != nil {
		close(b.old)
	}
	b.old, b.young = b.young, nil
	if b.old != nil && !b.closed {
		b.timer.Reset(tickEvery)
		return
	}
	b.armed = false
	b.timers.Done()
}

// Close ends all contexts, after a short wait for releases under way.
func (b *Bounds) Close() {
	b.mu.Lock()
	b.closed = true
	if b.armed && b.timer.Stop() {
		b.armed = false
		b.timers.Done()
	}
	idle := make(chan struct{})
	if b.active == 0 {
		close(idle)
	} else {
		b.idle = idle
	}
	b.mu.Unlock()
	last := time.NewTimer(lastReleases)
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
