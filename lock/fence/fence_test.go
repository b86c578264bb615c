package fence_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/lockwire/lockwire/lock/fence"
)

func TestGuard(t *testing.T) {
	var g fence.Guard
	failed := errors.New("disk full")
	for _, step := range []struct {
		token int64
		want  error
	}{
		{0, fence.ErrStale}, {-1, fence.ErrStale}, {3, nil}, {2, fence.ErrStale}, {3, nil}, {7, failed}, {6, fence.ErrStale}, {7, nil},
	} {
		ran := false
		err := g.Do(step.token, func() error {
			ran = true
			if step.want == failed {
				return failed
			}
			return nil
		})
		if !errors.Is(err, step.want) || ran != (step.want != fence.ErrStale) {
			t.Errorf("Do(%d) = %v, fn ran: %v; want %v", step.token, err, ran, step.want)
		}
	}
	if got := g.Largest(); got != 7 {
		t.Errorf("Largest() = %d, want 7", got)
	}
	g.Restore(5)
	g.Restore(9)
	if err := g.Do(8, func() error { return nil }); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Do(8) after Restore(9) = %v, want ErrStale", err)
	}
}

func TestGuardRunsOneAtATime(t *testing.T) {
	var g fence.Guard
	var wg sync.WaitGroup
	last, inside := int64(0), 0 // only g guards both: the race detector reports a mistake
	for token := range int64(50) {
		wg.Go(func() {
			err := g.Do(token+1, func() error {
				inside++
				if inside != 1 || token+1 < last {
					t.Errorf("token %d runs after %d, with %d functions running", token+1, last, inside)
				}
				last = token + 1
				inside--
				return nil
			})
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if g.Largest() != 50 || last != 50 {
		t.Errorf("largest token %d, last token %d, want 50 and 50", g.Largest(), last)
	}
}

func TestGuardAfterPanic(t *testing.T) {
	var g fence.Guard
	func() {
		defer func() { recover() }()
		g.Do(1, func() error { panic("work") })
	}()
	if err := g.Do(2, func() error { return nil }); err != nil {
		t.Errorf("Do() after a panic = %v, want nil", err)
	}
}
