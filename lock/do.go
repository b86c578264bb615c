package lock

import (
	"context"
	"errors"
)

// run calls fn under the lease and releases the lease, even if fn panics.
func (l *Lease) run(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		lost := l.Err()
		unlock := l.Unlock(ctx)
		if lost != nil && errors.Is(unlock, ErrNotHeld) {
			unlock = nil // lost says the same
		}
		err = errors.Join(err, lost, unlock)
	}()
	work, cancel := l.Context(ctx)
	defer cancel()
	return fn(work)
}
