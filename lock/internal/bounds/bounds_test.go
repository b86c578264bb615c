package bounds

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
)

type valueKey struct{}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		defer b.Close(t.Context())
		caller, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
		defer cancel()
		for i, most := range []time.Duration{Min, 3 * time.Second, Max, Min, 3 * time.Second, Max} {
			if i == 3 {
				cancel()
			}
			began := time.Now()
			ctx, done := b.Context(caller, most, false)
			if ctx.Err() != nil || ctx.Value(valueKey{}) != "kept" || ctx.Value(conn.NoTryAgain) != true {
				t.Errorf("%v: Err() = %v, values %v and %v", most, ctx.Err(), ctx.Value(valueKey{}), ctx.Value(conn.NoTryAgain))
			}
			<-ctx.Done()
			if took := time.Since(began); took < most/2 || took > most || ctx.Err() != context.DeadlineExceeded {
				t.Errorf("%v: ended by %v after %v", most, ctx.Err(), took)
			}
			if cause := context.Cause(ctx); cause != context.DeadlineExceeded {
				t.Errorf("%v: the cause of the end is %v", most, cause)
			}
			done()
		}
	})
}

func TestCloseWaitsForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		ctx, done := b.Context(t.Context(), Max, false)
		began := time.Now()
		time.AfterFunc(time.Minute, done)
		b.Close(t.Context())
		if took := time.Since(began); took != time.Minute || ctx.Err() == nil {
			t.Errorf("Close took %v and left %v, want the time of the release, a minute", took, ctx.Err())
		}
		ctx, done = b.Context(t.Context(), Max, false)
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
		b := New()
		ctx, done := b.Context(t.Context(), Max, false)
		defer done()
		closing, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		b.Close(closing)
		synctest.Wait()
		if took := time.Since(began); took != time.Second || ctx.Err() == nil {
			t.Errorf("Close took %v and left %v, want a second and an end", took, ctx.Err())
		}
	})
}

// Tasks have half of the time of Close at most, for cleanup to repeat their releases.
func TestHurryTasks(t *testing.T) {
	for _, c := range []struct{ closing, want time.Duration }{{time.Minute, tasksLast}, {200 * time.Millisecond, 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			b := New()
			defer b.Close(t.Context())
			task, done := b.Context(t.Context(), Min, true)
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

// A task that begins while Close is under way, after the time of tasks, ends at once: Close waits for it. After Close it has a second.
func TestTasksOfAClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		b.HurryTasks(t.Context())()
		ctx, done := b.Context(t.Context(), Max, true)
		defer done()
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("a task goes on after the time of tasks")
		}
		b.Close(t.Context())
		ctx, done = b.Context(t.Context(), Max, true)
		defer done()
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != CloseTime {
			t.Errorf("after Close a task has %v, want %v", took, CloseTime)
		}
	})
}
