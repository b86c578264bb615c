package bounds

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
)

type valueKey struct{}

// open returns Bounds, and a function that closes them and waits for their timer.
func open() (b *Bounds, closed func()) {
	var timers sync.WaitGroup
	b = New(&timers)
	return b, func() { b.Close(); timers.Wait() }
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := open()
		defer closed()
		caller, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
		cancel()
		var began time.Time
		for _, most := range []time.Duration{Min, 3 * time.Second, Max} {
			time.Sleep(time.Second) // the shared timer is under way for some, and not for others
			began = time.Now()
			ctx, done := b.Context(caller, most)
			if ctx.Err() != nil || ctx.Value(valueKey{}) != "kept" || ctx.Value(conn.NoTryAgain) != true {
				t.Errorf("%v: Err() = %v, values %v and %v", most, ctx.Err(), ctx.Value(valueKey{}), ctx.Value(conn.NoTryAgain))
			}
			<-ctx.Done()
			if took := time.Since(began); took < most/2 || took > most || ctx.Err() != context.DeadlineExceeded {
				t.Errorf("%v: ended by %v after %v", most, ctx.Err(), took)
			}
			done()
		}
	})
}

// All long releases of a time share a channel, and those that begin late have half of their time at least.
func TestContextsShareTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := open()
		defer closed()
		first, done := b.Context(t.Context(), Max)
		defer done()
		time.Sleep(tickEvery - time.Nanosecond)
		second, done := b.Context(t.Context(), Max)
		defer done()
		if first.Done() != second.Done() {
			t.Error("two releases within a tick have two channels")
		}
		time.Sleep(time.Second)
		third, done := b.Context(t.Context(), Max)
		defer done()
		<-first.Done()
		if third.Err() != nil {
			t.Error("a release of the next tick ends with those before it")
		}
		<-third.Done()
	})
}

func TestCloseWaitsForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := open()
		ctx, done := b.Context(t.Context(), Max)
		began := time.Now()
		time.AfterFunc(lastReleases/2, done)
		closed()
		if took := time.Since(began); took != lastReleases/2 || ctx.Err() == nil {
			t.Errorf("Close took %v and left %v, want the time of the release, %v", took, ctx.Err(), lastReleases/2)
		}
		ctx, done = b.Context(t.Context(), Max)
		defer done()
		began = time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != Max {
			t.Errorf("after Close a release has %v, want %v", took, Max)
		}
	})
}

func TestCloseEndsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := open()
		ctx, done := b.Context(t.Context(), Max)
		defer done()
		began := time.Now()
		closed()
		if took := time.Since(began); took != lastReleases || ctx.Err() == nil {
			t.Errorf("Close took %v and left %v, want %v and an end", took, ctx.Err(), lastReleases)
		}
	})
}

// Tasks have half of the time of Close at most, for cleanup to repeat their releases.
func TestHurryTasks(t *testing.T) {
	for _, c := range []struct{ closing, want time.Duration }{{time.Minute, tasksLast}, {200 * time.Millisecond, 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			b, closed := open()
			defer closed()
			task, done := b.TaskContext(t.Context(), Min)
			defer done()
			ctx, cancel := context.WithTimeout(t.Context(), c.closing)
			defer cancel()
			began := time.Now()
			stop := b.HurryTasks(ctx)
			defer stop()
			<-task.Done()
			if took := time.Since(began); took != c.want {
				t.Errorf("with %v to close, a task has %v, want %v", c.closing, took, c.want)
			}
		})
	}
}
