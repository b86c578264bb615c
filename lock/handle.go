package lock

import (
	"context"
	"errors"
	"reflect"
)

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

// handleOf returns the Handle of m, or an error for an invalid name and for a lock that no Client has made.
func handleOf(m Member) (*Handle, error) {
	if v := reflect.ValueOf(m); m == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalidf("a nil member: %T", m)
	}
	if h := m.member(); h.client != nil {
		return h, h.err
	}
	return nil, invalidf("a member that no Client has made: %T", m)
}

// Name returns the lock's name.
func (h *Handle) Name() string { return h.target.Name }

// Lock waits for the lock until ctx ends. Lock then returns the error and the cause of ctx, together with
// [ErrNotAcquired], with [ErrNotReplicated] if too few replicas acknowledged the last grant, or with the last failure
// if the server has not answered at all. An acquire already sent is undone in the background.
//
// While waiting, Lock tolerates an unreachable server, or grants that arrive expired, for Config.Lease. At the
// end of the attempt then under way, which may take a budget of retries (conn.Config.Retry), Lock returns the last error; it
// is a [*LostError] for expired grants. While the nodes of a migrating slot refuse the lock's keys (TRYAGAIN), Lock waits as
// for a holder.
func (h *Handle) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return h.lock(ctx, opts, 0)
}

// lock is Lock, for a kind with permits of so many.
func (h *Handle) lock(ctx context.Context, opts []Option, permits int) (*Lease, error) {
	ctx, w, lease, err := h.begin(ctx, opts, permits)
	if w != nil {
		lease, err = w.wait(ctx)
		w.traced.done(ctx, lease, err)
	}
	return lease, err
}

// begin makes the first attempt of lock, and returns a waiter if the call has to wait, with the context of the wait. It has a frame of its own,
// so that the request does not stay on the stack during the wait.
func (h *Handle) begin(ctx context.Context, opts []Option, permits int) (_ context.Context, w *waiter, lease *Lease, err error) {
	r, err := h.request(opts, permits)
	if err != nil {
		return ctx, nil, nil, err
	}
	ctx = r.beginTrace(ctx, false)
	if w, err = r.obtain(ctx); w == nil {
		r.traced.done(ctx, r.got, err)
	}
	return ctx, w, r.got, err
}

func (h *Handle) request(opts []Option, permits int) (r request, err error) {
	if err = h.err; err == nil {
		err = h.client.about(h.target.Name, r.fill(h.client, &h.target, opts, permits))
	}
	return r, err
}

// TryLock acquires the lock if the lock is free or already belongs to the Owner, and returns [ErrNotAcquired] if not.
// TryLock asks the server once and does not wait for the lock. After the end of ctx the error is as from Lock. If the
// server grants the lock but the reply arrives after the lease has ended, TryLock gives the lock back and returns a
// [*LostError] with the reason [Expired]. A free lock counts as taken while it is reserved for a waiting process: see
// the section on waiting of package lock.
func (h *Handle) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return h.tryLock(ctx, opts, 0)
}

// tryLock is TryLock, for a kind with permits of so many.
func (h *Handle) tryLock(ctx context.Context, opts []Option, permits int) (*Lease, error) {
	r, err := h.request(opts, permits)
	if err != nil {
		return nil, err
	}
	ctx = r.beginTrace(ctx, true)
	_, err = r.tryObtain(ctx)
	r.traced.done(ctx, r.got, err)
	return r.got, err
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
	return info, h.client.about(h.target.Name, err)
}

// run is Do for any acquire. It releases the lease even if fn panics.
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
