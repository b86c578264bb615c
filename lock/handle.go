package lock

import "context"

// Handle is the common part of all lock kinds: a name, and the methods to acquire the lock. A Handle never changes,
// holds nothing itself, and may be shared by any number of goroutines.
type Handle struct {
	client *Client
	target target
	err    error // why the name is invalid; nil if valid
}

func (c *Client) handle(k *kind, name string) Handle {
	return Handle{client: c, target: newTarget(k, name), err: checkName(name)}
}

// Member is a lock that [NewMulti] and [NewRedlock] can take together with further locks. Each kind with a Handle is
// a Member, except that both refuse a [FasterMulti]. NewRedlock takes [Reentrant] or [Plain] locks only.
type Member interface{ member() *Handle }

func (h *Handle) member() *Handle { return h }

// Name returns the lock's name.
func (h *Handle) Name() string { return h.target.name }

// Lock waits for the lock until ctx ends. Lock then returns the error and the cause of ctx, together with
// [ErrNotAcquired], with [ErrNotReplicated] if too few replicas acknowledged the last grant, or with the last failure
// if the server has not answered at all. An acquire already sent is undone in the background.
//
// While waiting, Lock tolerates an unreachable server, or grants that arrive expired, for Config.Lease. At the
// end of the attempt then under way, which may take a budget of retries (conn.Config.Retry), Lock returns the last error; it
// is a [*LostError] for expired grants.
func (h *Handle) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	if h.err != nil {
		return nil, h.err
	}
	if h.client.cfg.Trace != nil {
		return h.lockTraced(ctx, opts)
	}
	lease, w, err := h.lock(ctx, opts)
	if w != nil {
		return w.wait(ctx)
	}
	return lease, err
}

// lock acquires the lock, or returns a waiter. The request is not on the stack of the wait.
func (h *Handle) lock(ctx context.Context, opts []Option) (*Lease, *waiter, error) {
	var r request
	if err := r.fill(h.client, &h.target, opts); err != nil {
		return nil, nil, err
	}
	w, err := r.obtain(ctx)
	return r.got, w, err
}

// TryLock acquires the lock if the lock is free or already belongs to the Owner, and returns [ErrNotAcquired] if not.
// TryLock asks the server once and does not wait for the lock. If the server grants the lock but the reply arrives
// after the lease has ended, TryLock gives the lock back and returns a [*LostError] with the reason [Expired]. A free lock
// whose next holder has been called, as package lock's section on waiting says, is not acquired.
func (h *Handle) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	if h.err != nil {
		return nil, h.err
	}
	if h.client.cfg.Trace != nil {
		return h.tryLockTraced(ctx, opts)
	}
	var r request
	if err := r.fill(h.client, &h.target, opts); err != nil {
		return nil, err
	}
	if err := r.tryObtain(ctx); err != nil {
		return nil, err
	}
	return r.got, nil
}

// Do waits for the lock like Lock, runs fn while holding the lock, and releases the lock. The context passed to fn
// ends when the lock is lost. The error joins the errors of fn, of a loss, and of the release: a result produced
// without the lock is an error even if fn succeeded.
func (h *Handle) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	lease, err := h.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// ForceUnlock frees the lock of any holder, and reports whether the lock was held. A holder in this process is told
// at once, one of another client of this package within a second, by a message on the channel lockwire_forced. Any
// other learns it at its next renewal or Check, and by the end of its lease at the latest; until then it may go on
// believing that it has the lock.
func (h *Handle) ForceUnlock(ctx context.Context) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	return h.forceUnlock(ctx)
}

// Info returns the holders and the remaining lease of the lock, as the server sees them at one instant.
func (h *Handle) Info(ctx context.Context) (Info, error) {
	if h.err != nil {
		return Info{}, h.err
	}
	return h.target.info(ctx, h.client.scripts)
}

// lockTraced is Lock for a Trace.
func (h *Handle) lockTraced(ctx context.Context, opts []Option) (lease *Lease, err error) {
	var r request
	if err := r.fill(h.client, &h.target, opts); err != nil {
		return nil, err
	}
	ctx = r.beginTrace(ctx, false)
	w, err := r.obtain(ctx)
	lease = r.got
	if w != nil {
		lease, err = w.wait(ctx)
	}
	r.traced.done(ctx, lease, err)
	return lease, err
}

// tryLockTraced is TryLock for a Trace.
func (h *Handle) tryLockTraced(ctx context.Context, opts []Option) (*Lease, error) {
	var r request
	if err := r.fill(h.client, &h.target, opts); err != nil {
		return nil, err
	}
	ctx = r.beginTrace(ctx, true)
	err := r.tryObtain(ctx)
	if err != nil {
		r.got = nil
	}
	r.traced.done(ctx, r.got, err)
	return r.got, err
}
