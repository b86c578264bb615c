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
		defer b.Close()
		caller, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
		cancel()
		for _, most := range []time.Duration{Min, 3 * time.Second, Max} {
			began := time.Now()
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

func TestCloseWaitsForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		ctx, done := b.Context(t.Context(), Max)
		began := time.Now()
		time.AfterFunc(lastReleases/2, done)
		b.Close()
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
		b := New()
		ctx, done := b.Context(t.Context(), Max)
		defer done()
		began := time.Now()
		b.Close()
		synctest.Wait()
		if took := time.Since(began); took != lastReleases || ctx.Err() == nil {
			t.Errorf("Close took %v and left %v, want %v and an end", took, ctx.Err(), lastReleases)
		}
	})
}

// Tasks have half of the time of Close at most, for cleanup to repeat their releases.
func TestHurryTasks(t *testing.T) {
	for _, c := range []struct{ closing, want time.Duration }{{time.Minute, tasksLast}, {200 * time.Millisecond, 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			b := New()
			defer b.Close()
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
