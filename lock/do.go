package lock

import (
	"context"
	"errors"
)

// run calls fn under the lease that acquire returns, and releases the lease, even if fn panics.
func run(ctx context.Context, acquire func(context.Context, ...Option) (*Lease, error), fn func(context.Context) error, opts []Option) (err error) {
	l, err := acquire(ctx, opts...)
	if err != nil {
		return err
	}
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

type leaseKey struct{}

func (l leased) Value(key any) any {
	if key == (leaseKey{}) {
		return l.lease
	}
	return l.Context.Value(key)
}

// LeaseFrom returns the lease of a context that [Handle.Do] has passed to its function, or that [Lease.Context] has
// returned, also of a context derived from such a context. LeaseFrom returns nil for any other context. If leases are
// nested, LeaseFrom returns the innermost lease. Do not release the lease of Do.
func LeaseFrom(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}
