package lock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

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
		return ErrNotHeld
	}
	for _, l := range s.leasesOf(owner) {
		l.lose(Forced, nil)
	}
	return nil
}

// UpdateLease sets the lease of a permit, taken by any client, to end after d, in whole milliseconds and at least
// [MinLease]; a negative d removes the end. UpdateLease returns [ErrNotHeld] if the permit is not taken, and
// [ErrInvalid] if the permit belongs to a [Lease] of this Client. A Lease of another Client learns of a shorter lease at
// its next renewal or Check.
func (s *PermitSemaphore) UpdateLease(ctx context.Context, id string, d time.Duration) error {
	owner, err := s.owner([]string{id})
	switch {
	case err != nil:
		return err
	case d >= 0 && d.Truncate(time.Millisecond) < MinLease:
		return invalidf("lease of %v, less than %v", d, MinLease)
	case len(s.leasesOf(owner)) > 0:
		return invalidf("the permit belongs to a Lease of this Client")
	case d < 0:
		d = -time.Millisecond
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
	v, err := c.scripts.RunInTime(ctx, t.name, func(last int64) *remote.Call {
		return &remote.Call{Script: t.kind.More["lease"], Lock: t.remote(), Keys: t.keys(), Args: []any{owner, ms, last}, Leaves: true}
	})
	switch {
	case err != nil && remote.Uncertain(err) && ms != 0:
		return 0, fmt.Errorf("lock: the lease may have been changed: %w", err)
	case err != nil:
		return 0, c.refused(t.name, err)
	case v.IsNull():
		return 0, ErrNotHeld
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
	if len(ids) < 1 || len(ids) > maxPermits {
		return "", invalidf("%d permits", len(ids))
	}
	var owner strings.Builder
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		raw, err := hex.DecodeString(id)
		if err != nil || len(raw) != permitSize {
			return "", fmt.Errorf("%w: not the id of a permit", ErrNotHeld)
		}
		if _, twice := seen[string(raw)]; twice {
			return "", invalidf("a permit is named twice")
		}
		seen[string(raw)] = struct{}{}
		owner.Write(raw)
	}
	return owner.String(), nil
}

// leasesOf returns the leases of this client with any of the permits.
func (s *PermitSemaphore) leasesOf(owner string) []*Lease {
	ids := permitIDs(owner)
	return slices.DeleteFunc(s.handle.client.table.holdsOf(s.handle.target.hold(), "", nil), func(l *Lease) bool {
		return !slices.ContainsFunc(permitIDs(l.owner), func(id string) bool { return slices.Contains(ids, id) })
	})
}

// TrySetPermits creates the semaphore with n permits, at least 0, and reports false if the semaphore exists. TrySetPermits
// waits like [Semaphore.AddPermits]. The call reports true even if its request had to be sent twice.
func (s *PermitSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	set, err := s.change(ctx, "set", n, 0, 0)
	return set == 1, err
}

// SetPermits sets the number of all permits, free and taken, to n, at least 0. If more permits are taken, permits are
// lacking until enough have been released. SetPermits creates a missing semaphore, and waits like [Semaphore.AddPermits].
func (s *PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.change(ctx, "add", n, 0, true)
	return err
}

// AddPermits adds n to the number of permits; n may be negative. AddPermits creates a missing semaphore, and waits like
// [Semaphore.AddPermits].
func (s *PermitSemaphore) AddPermits(ctx context.Context, n int) error {
	_, err := s.change(ctx, "add", n, -maxCount, false)
	return err
}

func (s *PermitSemaphore) change(ctx context.Context, operation string, n, least int, how any) (int64, error) {
	if err := checkCount("permits", n, least); err != nil {
		return 0, err
	}
	return s.handle.change(ctx, operation, false, n, how)
}
