package lock

import (
	"context"
	"errors"
)

// run calls fn under the lease and releases it, also when fn panics.
func (l *Lease) run(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		lost := l.Err()
		unlock := l.Unlock(ctx)
		if lost != nil && errors.Is(unlock, ErrNotHeld) {
			unlock = nil // says no more than lost does
		}
		err = errors.Join(err, lost, unlock)
	}()
	work, cancel := l.Context(ctx)
	defer cancel()
	return fn(work)
}
