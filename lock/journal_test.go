package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/lock"
)

// journal is a Trace that writes down its events.
type journal struct {
	mu     sync.Mutex
	events []string
	ends   []lock.AcquireEnd
	losses []lock.LossInfo
	rounds []lock.RenewalInfo
}

// traceKey is the key under which a journal's contexts have the name of the call.
type traceKey struct{}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf(format, args...))
}

// take returns the events so far, and forgets them.
func (j *journal) take() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.events
	j.events = nil
	return events
}

// told returns what else has been told so far.
func (j *journal) told() ([]lock.AcquireEnd, []lock.LossInfo, []lock.RenewalInfo) {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ends), slices.Clone(j.losses), slices.Clone(j.rounds)
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	if got := j.take(); !slices.Equal(got, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantSorted is want for events of several goroutines at the same time.
func (j *journal) wantSorted(t *testing.T, want ...string) {
	t.Helper()
	if got := slices.Sorted(slices.Values(j.take())); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("events\n%s\nwant in any order\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (j *journal) trace() *lock.Trace {
	return &lock.Trace{
		AcquireStart: func(ctx context.Context, s lock.AcquireStart) context.Context {
			j.note("start %s %s", s.Kind, s.Name)
			return context.WithValue(ctx, traceKey{}, "acquire "+s.Name)
		},
		AcquireEnd: func(ctx context.Context, e lock.AcquireEnd) {
			j.note("%s %s in %v, %v in line, asked %d, handed over %v", ctx.Value(traceKey{}), e.Outcome, e.Elapsed, e.InLine, e.Attempts, e.HandedOver)
			j.mu.Lock()
			defer j.mu.Unlock()
			j.ends = append(j.ends, e)
		},
		ReleaseStart: func(ctx context.Context, s lock.ReleaseStart) context.Context {
			return context.WithValue(ctx, traceKey{}, "release "+s.Name)
		},
		ReleaseEnd: func(ctx context.Context, e lock.ReleaseEnd) {
			j.note("%s %s after %v, handed over %v", ctx.Value(traceKey{}), e.Outcome, e.Age, e.HandedOver)
		},
		Lost: func(l lock.LossInfo) {
			j.note("lost %s %s after %v: %v", l.Kind, l.Name, l.Age, l.Reason)
			j.mu.Lock()
			defer j.mu.Unlock()
			j.losses = append(j.losses, l)
		},
		Renewal: func(r lock.RenewalInfo) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.rounds = append(j.rounds, r)
		},
		Background: func(b lock.BackgroundInfo) {
			j.note("background %s %s, done %v in %v: %v", b.Change, b.Name, b.Done, b.Age, b.Err)
		},
	}
}
