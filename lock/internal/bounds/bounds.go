// Package bounds limits the time of releases, which outlast the contexts of their callers, and counts calls for Close.
package bounds

import (
	"context"
	"sync"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Bounds has the releases of a client that are under way. Those with the longest limit share their end: a timer and a context each
// would take 14 % more CPU for a Lock and Unlock beside 64 others.
type Bounds struct {
	under Calls
	leave func() // constant
	all   life   // ended by Close
	tasks life   // ended by HurryTasks
}

// life has the contexts of releases that end with it.
type life struct {
	context.Context // constant
	end             context.CancelFunc

	mu     sync.Mutex      // guards the following
	shared context.Context // ends Max after its begin; nil before the first release
	begin  time.Time
}

const (
	// Min and Max bound the wait of Unlock. Between the bounds Unlock waits for the rest of the lease.
	Min, Max = time.Second, 10 * time.Second
	// CloseTime is the time limit of the Client's Close.
	CloseTime = time.Second
	// tasksLast is the time of the Client's Close for releases by tasks. In the rest of the time cleanup repeats them.
	tasksLast = CloseTime / 2
)

// New returns Bounds without a release.
func New() *Bounds {
	b := new(Bounds)
	b.all.Context, b.all.end = context.WithCancel(context.Background())
	b.tasks.Context, b.tasks.end = context.WithCancel(context.Background())
	b.leave = func() { b.under.Leave(0) }
	return b
}

// Context returns a context with the values of ctx that ends after at least half of most and at most most, or with Close. Call done
// after the release. The Client's Close waits for a task, so the context of a task ends in time for cleanup to repeat the release.
func (b *Bounds) Context(ctx context.Context, most time.Duration, task bool) (bound context.Context, done func()) {
	switch {
	case task && b.all.Err() != nil: // after Close, only its caller waits for it, whose context may have ended
		return until(ctx, context.Background(), min(most, CloseTime))
	case task && most >= Max:
		return remote.WithValues(b.tasks.untilMax(), ctx), func() {}
	case task:
		return until(ctx, &b.tasks, most)
	case !b.under.Enter(0): // a release after Close has its whole time
		return until(ctx, context.Background(), most)
	case most >= Max:
		return remote.WithValues(b.all.untilMax(), ctx), b.leave
	}
	bound, end := until(ctx, &b.all, most)
	return bound, func() { end(); b.leave() }
}

// untilMax returns a context for the releases that begin within half of Max.
func (l *life) untilMax() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.shared == nil || now.Sub(l.begin) > Max/2 {
		ctx, cancel := context.WithTimeout(l.Context, Max)
		context.AfterFunc(ctx, cancel)
		l.shared, l.begin = remote.Dividing(ctx), now
	}
	return l.shared
}

// until returns a context with the values of ctx that ends after most, or with over.
func until(ctx, over context.Context, most time.Duration) (bound context.Context, done func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(over, cancel)
	return remote.Dividing(ctx), func() { stop(); cancel() }
}

// HurryTasks ends the releases by tasks after half of the time of Close, at most tasksLast. Call stop after the tasks have ended.
func (b *Bounds) HurryTasks(ctx context.Context) (stop func()) {
	limit := tasksLast
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	over := context.AfterFunc(ctx, b.tasks.end)
	return func() {
		over()
		cancel()
		b.tasks.end()
	}
}

// Close waits for releases under way until ctx ends, and then ends all contexts.
func (b *Bounds) Close(ctx context.Context) {
	b.under.Close(ctx)
	b.all.end()
}
