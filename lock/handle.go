package lock

import "context"

// Handle is what all lock kinds have in common: a name, and how to take it. It never changes, holds nothing itself, and may be
// shared by any number of goroutines.
type Handle struct {
	client *Client
	target *target
	err    error // why the name will not do
}

func (c *Client) handle(k *kind, name string) Handle {
	return Handle{client: c, target: newTarget(k, name), err: checkName(name)}
}

// Member is a lock that [NewMulti] and [NewRedlock] can take together with others: each kind that has a Handle is one.
type Member interface{ member() *Handle }

func (h *Handle) member() *Handle { return h }

// Name returns the lock's name.
func (h *Handle) Name() string { return h.target.name }

// Lock waits for the lock for as long as ctx allows and no longer. When ctx ends first it returns the error and the cause of
// ctx together with [ErrNotAcquired], or, if the server has not answered once, with what went wrong; what had been sent
// then is taken back in the background. While it waits it puts up with a server that cannot be reached, or whose grants
// come when their lease is over, for as long as the client's lease; after that it returns the error, which in the second
// case is a [*LostError].
func (h *Handle) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	if h.err != nil {
		return nil, h.err
	}
	lease, w, err := h.client.lock(ctx, h.target, opts)
	if w != nil {
		return w.wait(ctx)
	}
	return lease, err
}

// TryLock acquires the lock if it is free, or the Owner's already, and returns [ErrNotAcquired] if not. It asks the server
// once and does not wait for the lock. If the answer is a grant that took longer to come than its lease lasts, it is taken
// back, and TryLock returns a [*LostError] with the reason [Expired]: nobody has the lock, and nobody was told no.
func (h *Handle) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	if h.err != nil {
		return nil, h.err
	}
	return h.client.tryLock(ctx, h.target, opts)
}

// Do runs fn while it holds the lock, with a context that ends when the lock is lost, and releases it. It waits for the lock as
// Lock does. The error joins those of fn, of a loss, and of the release: a result that was produced without the
// lock is an error even where fn succeeded.
func (h *Handle) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	lease, err := h.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// ForceUnlock frees the lock whoever has it, and reports whether anybody had. A holder in this process is told at once, one of
// another client of this package within a second, by a message on the channel lockwire_forced. Any other learns it at its next
// renewal or Check, and by the end of its lease at the latest; until then it may go on believing that it has the lock.
func (h *Handle) ForceUnlock(ctx context.Context) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	return h.client.forceUnlock(ctx, h.target)
}

// Info tells who has the lock and for how long, as the server sees it at one instant.
func (h *Handle) Info(ctx context.Context) (Info, error) {
	if h.err != nil {
		return Info{}, h.err
	}
	return h.client.info(ctx, h.target)
}
