package lock

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

var semaphoreKind = &kinds.Lazy[*kind]{Make: func() *kind {
	return &kind{
		Kind:       kinds.Semaphore.Get(),
		args:       func(w wish) []any { return []any{w.permits, w.setup} },
		parse:      parseSemaphore,
		owner:      func(int) string { return "" },
		afterGrant: wakeNext,
		permits:    true,
	}
}}

// Semaphore is Redisson's RSemaphore (getSemaphore): a number of permits for callers to take and give back. The server does
// not record the holders: a permit is lost with its holder's death, and any caller may give back permits never taken.
// Prefer a [PermitSemaphore] unless compatibility requires a Semaphore.
//
// A Semaphore is immutable, and many goroutines may share it.
//
//   - Waiting callers of a Client are served in the order of their calls.
//   - Waiting Clients are served in turn, however many permits each of them wants.
//   - The first of them for which there are too few keeps the others out for two seconds. Then they may have what is free for two seconds; then the
//     same with four seconds, and from then on with eight. A Client may therefore wait for ever for more permits than come free within eight seconds.
//   - TryAcquire passes waiting callers, but takes no permit reserved for a Client that has just been woken, or kept back for the first.
type Semaphore struct{ permitCount }

// Semaphore returns the semaphore with the given name. The name is the semaphore's key on the server. An invalid name is
// reported by the first method that uses it, not here.
func (c *Client) Semaphore(name string) *Semaphore {
	return &Semaphore{permitCount{c.handle(semaphoreKind.Get(), name)}}
}

// permitCount has what a Semaphore and a PermitSemaphore have in common.
type permitCount struct{ handle Handle }

// Name returns the semaphore's name.
func (s *permitCount) Name() string { return s.handle.Name() }

// Available returns the number of free permits: negative if permits are lacking, 0 also for a missing semaphore.
func (s *permitCount) Available(ctx context.Context) (int, error) {
	info, err := s.handle.Info(ctx)
	return info.Permits.Free, err
}

// TrySetPermits creates the semaphore with n permits, at least 0, and reports false if the semaphore exists. TrySetPermits
// waits like AddPermits. The call reports true even if its request had to be sent twice.
func (s *permitCount) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.set(ctx, n, 0)
}

func (s *permitCount) set(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	set, err := s.handle.setCount(ctx, "set", n, 0, ttl.Milliseconds())
	return set == 1, err
}

// AddPermits adds n to the number of permits. n may be negative, and so may the resulting number of free permits: then permits are
// lacking until enough have been released. AddPermits creates a missing semaphore.
//
// AddPermits waits for the server's confirmation until ctx ends, at most 10 s. Then it returns [ErrUncertain] and goes on
// in the background; the server adds the permits only once. After any other error no permits are added.
func (s *permitCount) AddPermits(ctx context.Context, n int) error {
	_, err := s.handle.setCount(ctx, "add", n, -maxCount, false)
	return err
}

// Acquire takes n permits at once and waits for n free permits until ctx ends. n is at least 0 and at most 2³¹-1; for 0
// Acquire returns nil at once. Without permits set on the server, Acquire returns [ErrNotSet]; with [WaitForSetup] Acquire
// waits. The only other option of a Semaphore is [Standby].
//
// If ctx ends first, the error matches ctx.Err, the cause and [ErrNotAcquired]; if the server never answered, the
// error has the failure instead of ErrNotAcquired. A request already sent is then undone in the background, and permits
// taken by the request are given back once.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) error {
	if done, err := s.check(n, opts); done {
		return err
	}
	_, err := s.handle.lock(ctx, opts, n)
	return err
}

// TryAcquire takes n permits if n permits are free now, else it returns [ErrNotAcquired]. TryAcquire asks the server once
// and passes waiting callers, except for permits for which the server has just woken another Client: these are reserved
// for 100 ms; and for those kept back for the Client at the head of the line. n and opts are the same as for Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) error {
	if done, err := s.check(n, opts); done {
		return err
	}
	_, err := s.handle.tryLock(ctx, opts, n)
	return err
}

// check checks the arguments of an acquire, and reports whether nothing is left to do.
func (s *Semaphore) check(n int, opts []Option) (done bool, err error) {
	err = s.handle.checkCount(n, 0)
	if err == nil && n == 0 {
		_, err = s.handle.request(opts, 0)
	}
	return err != nil || n == 0, err
}

// Release gives n permits back. As in Redisson, Release does not check that the permits had been taken, and creates a
// missing semaphore with n permits.
//
// Release works under a cancelled context too, and waits at most 10 s for the server's confirmation. Then it returns
// [ErrUncertain] and repeats the request in the background. The server adds the permits only once. Release returns a refusal,
// such as NOPERM, at once, and does not repeat it: the permits stay taken until a further Release.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	_, err := s.release(ctx, n, false)
	return err
}

// ReleaseIfExists is Release for a semaphore that may have been deleted or have expired. It reports false for a missing
// semaphore and does not create the semaphore.
func (s *Semaphore) ReleaseIfExists(ctx context.Context, n int) (bool, error) {
	return s.release(ctx, n, true)
}

func (s *Semaphore) release(ctx context.Context, n int, existing bool) (bool, error) {
	if err := s.handle.checkCount(n, 0); err != nil {
		return false, err
	}
	if n == 0 && !existing {
		return true, nil
	}
	added, err := s.handle.change(ctx, "add", true, n, existing)
	return added == 1, err
}

// TrySetPermitsFor is TrySetPermits for a semaphore deleted after ttl, in whole milliseconds. After the deletion waiters get
// [ErrNotSet], and holders should give their permits back by ReleaseIfExists.
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if ttl < time.Millisecond {
		return false, s.handle.client.invalid(s.Name(), "a semaphore that lasts %v", ttl)
	}
	return s.set(ctx, n, ttl)
}

// DrainPermits takes all free permits and returns their number; 0 for a missing semaphore. If permits are lacking,
// DrainPermits adds the lacking permits and returns their negative number, as Redisson does. DrainPermits waits like
// AddPermits: after [ErrUncertain] the permits are taken eventually, and the number stays unknown.
func (s *Semaphore) DrainPermits(ctx context.Context) (int, error) {
	n, err := s.handle.change(ctx, "drain", false)
	return int(n), err
}

// Info returns the number of free permits. The server knows neither the holders nor the number of taken permits.
func (s *Semaphore) Info(ctx context.Context) (Info, error) { return s.handle.Info(ctx) }

func parseSemaphore(v resp.Value) (Info, error) {
	if v.Len() == 0 {
		return Info{}, nil
	}
	e := elements{of: v}
	info := Info{Permits: Permits{Set: true, Free: int(e.number())}}
	if info.Locked = info.Permits.Free <= 0; info.Locked {
		info.Remaining = noTTL
	}
	return e.done(info)
}
