package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

var permitsKind = &kinds.Lazy[*kind]{Make: func() *kind {
	return &kind{
		Kind: kinds.Permits.Get(),
		args: func(w wish) []any {
			return []any{w.publish, w.setup, w.forever}
		},
		parse:      parsePermits,
		owner:      newPermits,
		show:       func(owner string) string { return strings.Join(permitIDs(owner), ",") },
		afterGrant: wakeNext,
		permits:    true,
		divisible:  true,
	}
}}

// maxPermits limits the permits of a lease, because the server is blocked while it counts the permits.
const maxPermits = 1000

// PermitSemaphore is Redisson's RPermitExpirableSemaphore (getPermitExpirableSemaphore): a number of permits, each with an id
// and a lease. After a holder's death its permit becomes free at the end of the lease.
//
// Acquire returns a [Lease]. The watchdog renews the Lease unless [For] or [Forever] is passed, and the Lease reports a
// loss. A Lease over several permits is lost with the first lost permit; the other permits stay taken until Unlock or
// the end of their leases.
//
// The server's clock decides when a lease is over; in Redisson's clients their own clock does. If one of these clocks is wrong by more than a
// lease, there are more holders than permits.
//
// A PermitSemaphore is immutable, and many goroutines may share it. Waiters are served in the same order as by a [Semaphore].
type PermitSemaphore struct{ permitCount }

// PermitSemaphore returns the semaphore with the given name. The name is the semaphore's key on the server. An invalid name
// is reported by the first method that uses it, not here.
func (c *Client) PermitSemaphore(name string) *PermitSemaphore {
	return &PermitSemaphore{permitCount{c.handle(permitsKind.Get(), name)}}
}

// Acquire takes a permit and waits for a free permit until ctx ends; [Handle.Lock] describes the error. Without permits set on
// the server, Acquire returns [ErrNotSet]; with [WaitForSetup] it waits. The other options are [For], [Forever],
// [AtMost], [StopBefore] and [Standby].
func (s *PermitSemaphore) Acquire(ctx context.Context, opts ...Option) (*Lease, error) {
	return s.AcquireMany(ctx, 1, opts...)
}

// TryAcquire takes a permit if a permit is free now, else it returns [ErrNotAcquired], like [Handle.TryLock]. TryAcquire
// passes waiting callers, as TryAcquire of a [Semaphore]. The options are the same as for Acquire.
func (s *PermitSemaphore) TryAcquire(ctx context.Context, opts ...Option) (*Lease, error) {
	return s.TryAcquireMany(ctx, 1, opts...)
}

// AcquireMany is Acquire of n permits at once, 1 to 1000, under one Lease.
func (s *PermitSemaphore) AcquireMany(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	if err := s.checkNumber(n); err != nil {
		return nil, err
	}
	return s.handle.lock(ctx, opts, n)
}

// TryAcquireMany is TryAcquire of n permits at once, 1 to 1000, under one Lease.
func (s *PermitSemaphore) TryAcquireMany(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	if err := s.checkNumber(n); err != nil {
		return nil, err
	}
	return s.handle.tryLock(ctx, opts, n)
}

// checkNumber rejects a number of permits that no lease can have.
func (s *PermitSemaphore) checkNumber(n int) error {
	if n < 1 || n > maxPermits {
		return s.handle.client.invalid(s.Name(), "%d permits", n)
	}
	return nil
}

// Do acquires a permit like Acquire, runs fn with a context that ends on the permit's loss, and releases the permit.
// [Handle.Do] describes the error.
func (s *PermitSemaphore) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	return run(ctx, s.Acquire, fn, opts)
}

// ReleaseAll frees all taken permits, whatever their holders, and reports whether any permit was taken. Holders learn of
// the loss:
//
//   - in this process: at once
//   - in other clients of this package: within a second, see [Handle.ForceUnlock]
//   - elsewhere: at the next renewal or Check, at the latest at the end of the lease
//   - after [Forever]: at Check or Unlock
func (s *PermitSemaphore) ReleaseAll(ctx context.Context) (bool, error) {
	return s.handle.ForceUnlock(ctx)
}

// Info returns the numbers of free and taken permits, and the holders, at a single instant of the server. Each Holder is a
// permit with its id. Holders are ordered by the ends of their leases; Info lists at most 1000. Remaining is the time
// until the expiry of leases makes a permit free.
func (s *PermitSemaphore) Info(ctx context.Context) (Info, error) { return s.handle.Info(ctx) }

// Acquired returns the number of taken permits.
func (s *PermitSemaphore) Acquired(ctx context.Context) (int, error) {
	info, err := s.Info(ctx)
	return info.Permits.Taken, err
}

// Permits returns the number of all permits, free and taken; 0 if no permits have been set.
func (s *PermitSemaphore) Permits(ctx context.Context) (int, error) {
	info, err := s.Info(ctx)
	if !info.Permits.Set {
		return 0, err
	}
	return info.Permits.Free + info.Permits.Taken, err
}

// newPermits returns the concatenated ids of n new permits, used as the owner of a lease.
func newPermits(n int) string {
	ids := make([]byte, n*permitSize)
	rand.Read(ids)
	return string(ids)
}

// permitIDs returns ids as Redisson shows them.
func permitIDs(owner string) []string {
	list := make([]string, 0, len(owner)/permitSize)
	for ; len(owner) >= permitSize; owner = owner[permitSize:] {
		list = append(list, hex.EncodeToString([]byte(owner[:permitSize])))
	}
	return list
}

// PermitIDs returns the ids of the lease's permits, each of 32 hexadecimal digits as in Redisson. PermitIDs returns nil for
// a lease not taken from a [PermitSemaphore].
func (l *Lease) PermitIDs() []string {
	if l.target.kind != permitsKind.Get() {
		return nil
	}
	return permitIDs(l.owner)
}

// parsePermits decodes a reply of: whether permits are set, the numbers of free and taken permits, and for each taken permit
// the id and the remaining lease in ms.
func parsePermits(v resp.Value) (Info, error) {
	e := elements{of: v}
	info := Info{Permits: Permits{Set: e.number() == 1, Free: int(e.number()), Taken: int(e.number())}}
	if info.Locked = info.Permits.Set && info.Permits.Free <= 0; info.Locked {
		info.Remaining = noTTL
	}
	for e.more(2) {
		h := Holder{Owner: hex.EncodeToString([]byte(e.text())), Holds: 1, Remaining: e.time()}
		if info.Locked && len(info.Holders) == -info.Permits.Free {
			info.Remaining = h.Remaining
		}
		info.Holders = append(info.Holders, h)
	}
	return e.done(info)
}

// Release gives back 1 to 1000 permits by their ids, taken by any client, also by Redisson. If any of the permits is not
// taken, or its lease has ended, Release gives back none and returns [ErrNotHeld]. A [Lease] of this Client with any of
// the permits becomes lost. A cancelled context, the wait and repeats in the background are handled as in [Semaphore.Release].
func (s *PermitSemaphore) Release(ctx context.Context, ids ...string) error {
	owner, err := s.owner(ids)
	if err != nil {
		return err
	}
	released, err := s.handle.change(ctx, "give", true, owner)
	if err != nil {
		return err
	}
	if released == 0 {
		return s.handle.client.about(s.Name(), ErrNotHeld)
	}
	for _, l := range s.leasesOf(owner) {
		l.lose(Forced, nil)
	}
	return nil
}

// UpdateLease sets the lease of a permit, taken by any client, to end after d, in whole milliseconds and from
// [MinLease] to 50 years; a negative d removes the end. UpdateLease returns [ErrNotHeld] if the permit is not taken, and
// [ErrInvalid] if the permit belongs to a [Lease] of this Client. A Lease of another Client learns of a shorter lease at
// its next renewal or Check.
func (s *PermitSemaphore) UpdateLease(ctx context.Context, id string, d time.Duration) error {
	owner, err := s.owner([]string{id})
	if err != nil {
		return err
	}
	if d < 0 {
		d = -time.Millisecond
	} else if err := checkTerm("lease", d); err != nil {
		return s.handle.client.about(s.Name(), err)
	}
	if len(s.leasesOf(owner)) > 0 {
		return s.handle.client.invalid(s.Name(), "the permit belongs to a Lease of this Client")
	}
	_, err = s.lease(ctx, owner, d.Milliseconds())
	return err
}

// LeaseOf returns the remaining lease of a permit, taken by any client; negative for a lease without end. LeaseOf returns
// [ErrNotHeld] if the permit is not taken.
func (s *PermitSemaphore) LeaseOf(ctx context.Context, id string) (time.Duration, error) {
	owner, err := s.owner([]string{id})
	if err != nil {
		return 0, err
	}
	return s.lease(ctx, owner, 0)
}

func (s *PermitSemaphore) lease(ctx context.Context, owner string, ms int64) (time.Duration, error) {
	c, t := s.handle.client, s.handle.target
	v, err := c.scripts.RunInTime(ctx, t.Name, func(last int64) *remote.Call {
		return &remote.Call{Script: t.kind.More["lease"], Lock: t.Lock, Keys: t.baseKeys(), Args: []any{owner, ms, last},
			Apart: remote.Apart{OnSource: true}}
	})
	switch {
	case err != nil && remote.Uncertain(err) && ms != 0:
		return 0, c.about(t.Name, fmt.Errorf("the lease may have been changed: %w", err))
	case err != nil:
		return 0, c.failed(t.Name, err)
	case v.IsNull():
		return 0, c.about(t.Name, ErrNotHeld)
	}
	left, err := v.Int()
	if err != nil || v.Kind() != resp.Integer {
		return 0, errors.Join(errRenewal, err)
	}
	return milliseconds(left), nil
}

// owner returns the owner for the permits with the given ids. A malformed id cannot be held and is ErrNotHeld.
func (s *PermitSemaphore) owner(ids []string) (string, error) {
	if s.handle.err != nil {
		return "", s.handle.err
	}
	if err := s.checkNumber(len(ids)); err != nil {
		return "", err
	}
	var owner strings.Builder
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		raw, err := hex.DecodeString(id)
		if err != nil || len(raw) != permitSize {
			return "", s.handle.client.about(s.Name(), fmt.Errorf("%w: not the id of a permit", ErrNotHeld))
		}
		if _, twice := seen[string(raw)]; twice {
			return "", s.handle.client.invalid(s.Name(), "a permit is named twice")
		}
		seen[string(raw)] = struct{}{}
		owner.Write(raw)
	}
	return owner.String(), nil
}

// leasesOf returns the leases of this client with any of the permits.
func (s *PermitSemaphore) leasesOf(owner string) []*Lease {
	ids := permitIDs(owner)
	return slices.DeleteFunc(s.handle.client.table.holdsOf(s.handle.target.heldAs(), "", nil), func(l *Lease) bool {
		return !slices.ContainsFunc(permitIDs(l.owner), func(id string) bool { return slices.Contains(ids, id) })
	})
}

// SetPermits sets the number of all permits, free and taken, to n, at least 0. If more permits are taken, permits are
// lacking until enough have been released. SetPermits creates a missing semaphore, and waits like AddPermits.
func (s *PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.handle.setCount(ctx, "add", n, 0, true)
	return err
}
