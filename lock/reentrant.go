package lock

import (
	"context"
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed reentrant_acquire.lua
var reentrantAcquire string

//go:embed reentrant_release.lua
var reentrantRelease string

//go:embed reentrant_undo.lua
var reentrantUndo string

//go:embed reentrant_renew.lua
var reentrantRenew string

//go:embed reentrant_force.lua
var reentrantForce string

//go:embed reentrant_info.lua
var reentrantInfo string

var reentrantKind = &kind{
	name:    "reentrant",
	channel: lockChannel,
	acquire: script.New(reentrantAcquire),
	release: script.New(reentrantRelease),
	undo:    script.New(reentrantUndo),
	renew:   script.New(reentrantRenew),
	force:   script.New(reentrantForce),
	info:    script.New(reentrantInfo),
}

// Reentrant is Redisson's RLock (getLock): an exclusive lock that an [Owner] who has it may take again. It never
// changes, holds nothing itself, and may be shared by any number of goroutines.
type Reentrant struct {
	client *Client
	target *target
	err    error // why the name will not do
}

// Reentrant returns the lock of that name. The name is the key on the server, as Redisson has it. What is wrong with a
// name is said by the first call that uses it.
func (c *Client) Reentrant(name string) *Reentrant {
	return &Reentrant{client: c, target: newTarget(reentrantKind, name), err: checkName(name)}
}

// Name returns the lock's name.
func (r *Reentrant) Name() string { return r.target.name }

// Lock waits for the lock for as long as ctx allows and no longer. When ctx ends first it returns the error and the cause of
// ctx together with [ErrNotAcquired], or, if the server has not answered once, with what went wrong; what had been sent
// then is taken back in the background. While it waits it puts up with a server that cannot be reached, or whose grants
// come when their lease is over, for as long as the client's lease; after that it returns the error, which in the second
// case is a [*LostError].
func (r *Reentrant) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.client.lock(ctx, r.target, opts)
}

// TryLock acquires the lock if it is free, or the Owner's already, and returns [ErrNotAcquired] if not. It asks the server
// once and does not wait for the lock. If the answer is a grant that took longer to come than its lease lasts, it is taken
// back, and TryLock returns a [*LostError] with the reason [Expired]: nobody has the lock, and nobody was told no.
func (r *Reentrant) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.client.tryLock(ctx, r.target, opts)
}

// Do runs fn while it holds the lock, with a context that ends when the lock is lost, and releases it. It waits for the lock as
// Lock does. The error joins those of fn, of a loss, and of the release: a result that was produced without the
// lock is an error even where fn succeeded.
func (r *Reentrant) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	lease, err := r.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// ForceUnlock frees the lock whoever has it, and reports whether anybody had. A holder in this process is told at once, any
// other at its next renewal or Check, and by the end of its lease at the latest; until then it may go on believing that
// it has the lock.
func (r *Reentrant) ForceUnlock(ctx context.Context) (bool, error) {
	if r.err != nil {
		return false, r.err
	}
	return r.client.forceUnlock(ctx, r.target)
}

// Info tells who has the lock and for how long, as the server sees it at one instant.
func (r *Reentrant) Info(ctx context.Context) (Info, error) {
	if r.err != nil {
		return Info{}, r.err
	}
	return r.client.info(ctx, r.target)
}
