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
	return Handle{client: c, target: newTarget(k, name), err: c.about(name, checkName(name))}
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
// is a [*LostError] for expired grants. While the nodes of a migrating slot refuse the lock's keys (TRYAGAIN), Lock waits as
// for a holder.
func (h *Handle) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	ctx, a, err := h.begin(ctx, opts)
	return a.finish(ctx, err)
}

// begin makes the first attempt. The request is not on the stack of the wait.
func (h *Handle) begin(ctx context.Context, opts []Option) (context.Context, acquisition, error) {
	r, err := h.request(opts)
	if err != nil {
		return ctx, acquisition{}, err
	}
	return r.begin(ctx)
}

func (h *Handle) request(opts []Option) (r request, err error) {
	if err = h.err; err == nil {
		err = h.client.about(h.target.name, r.fill(h.client, &h.target, opts))
	}
	return r, err
}

// TryLock acquires the lock if the lock is free or already belongs to the Owner, and returns [ErrNotAcquired] if not.
// TryLock asks the server once and does not wait for the lock. If the server grants the lock but the reply arrives
// after the lease has ended, TryLock gives the lock back and returns a [*LostError] with the reason [Expired]. A free lock
// whose next holder has been called, as package lock's section on waiting says, is not acquired.
func (h *Handle) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	r, err := h.request(opts)
	if err != nil {
		return nil, err
	}
	return r.try(ctx)
}

// Do waits for the lock like Lock, runs fn while holding the lock, and releases the lock. The context passed to fn
// ends when the lock is lost. The error joins the errors of fn, of a loss, and of the release: a result produced
// without the lock is an error even if fn succeeded.
func (h *Handle) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	return run(ctx, h.Lock, fn, opts)
}

// Info returns the holders and the remaining lease of the lock, as the server sees them at one instant.
func (h *Handle) Info(ctx context.Context) (Info, error) {
	if h.err != nil {
		return Info{}, h.err
	}
	info, err := h.target.info(ctx, h.client.scripts)
	return info, h.client.about(h.target.name, err)
}
