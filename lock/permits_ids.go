package lock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Release gives permits back by their ids, 1 to 1000 of them, of whichever client took them: Redisson's too. If one of them is
// not taken, or its lease has ended, it gives back none and returns [ErrNotHeld]. A [Lease] of this Client that has one of the
// permits is lost by that. It works under a cancelled context too, and waits and goes on as [Semaphore.Release] does.
func (s *PermitSemaphore) Release(ctx context.Context, ids ...string) error {
	owner, err := s.owner(ids)
	if err != nil {
		return err
	}
	c, t := s.handle.client, s.handle.target
	released, err := c.change(ctx, t, "give", true, owner)
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

// UpdateLease has a permit, of whichever client, end d from now on: in whole milliseconds and [MinLease] at least, or never if d
// is less than 0. It returns [ErrNotHeld] if the permit is not taken. The permits of a [Lease] of this Client are not to be changed
// behind its back, and are [ErrInvalid]; the Lease of another Client does not learn of a lease that has become shorter before
// its next renewal or Check.
func (s *PermitSemaphore) UpdateLease(ctx context.Context, id string, d time.Duration) error {
	owner, err := s.owner([]string{id})
	switch {
	case err != nil:
		return err
	case d >= 0 && d.Truncate(time.Millisecond) < MinLease:
		return invalidf("lease of %v, less than %v", d, MinLease)
	case len(s.leasesOf(owner)) > 0:
		return invalidf("the permit is that of a Lease")
	case d < 0:
		d = -time.Millisecond
	}
	_, err = s.lease(ctx, owner, d.Milliseconds())
	return err
}

// LeaseOf returns for how long a permit, of whichever client, is still taken; less than 0 for one that has no end. It returns
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
	v, err := c.runInTime(ctx, t, func(last int64) *call {
		return &call{script: t.kind.more["lease"], target: t, keys: t.keys, args: []any{owner, ms, last}, leaves: true}
	})
	switch {
	case err != nil && uncertain(err) && ms != 0:
		return 0, fmt.Errorf("lock: the lease may have been changed: %w", err)
	case err != nil:
		return 0, serverError(err)
	case v.IsNull():
		return 0, ErrNotHeld
	}
	left, err := v.Int()
	if err != nil || v.Kind() != resp.Integer {
		return 0, errors.Join(errRenewal, err)
	}
	return milliseconds(left), nil
}

// owner returns the permits with those ids as the owner of a lease would stand for them. What is no id of a permit is not held
// by anybody.
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

// leasesOf returns the leases of this client that have one of the permits.
func (s *PermitSemaphore) leasesOf(owner string) []*Lease {
	ids := permitIDs(owner)
	return slices.DeleteFunc(s.handle.client.holdsOf(s.handle.target.hold(), "", nil), func(l *Lease) bool {
		return !slices.ContainsFunc(permitIDs(l.owner), func(id string) bool { return slices.Contains(ids, id) })
	})
}

// TrySetPermits sets the semaphore up with n permits, 0 at least, and reports false if somebody has done so before. How it waits
// is as in [Semaphore.AddPermits]; it reports true to the call that has set it up even when that had to be sent twice.
func (s *PermitSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	set, err := s.change(ctx, "set", n, 0, 0)
	return set == 1, err
}

// SetPermits makes n, 0 at least, the number of permits that there are, whether free or taken. If more are taken, permits are
// lacking until as many have been released. It sets the semaphore up if nobody has. How it waits is as in
// [Semaphore.AddPermits].
func (s *PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.change(ctx, "add", n, 0, true)
	return err
}

// AddPermits changes the number of permits by n, which may be less than 0. It sets the semaphore up if nobody has. How it waits
// is as in [Semaphore.AddPermits].
func (s *PermitSemaphore) AddPermits(ctx context.Context, n int) error {
	_, err := s.change(ctx, "add", n, -maxCount, false)
	return err
}

func (s *PermitSemaphore) change(ctx context.Context, operation string, n, least int, how any) (int64, error) {
	if s.handle.err != nil {
		return 0, s.handle.err
	}
	if err := checkCount("permits", n, least); err != nil {
		return 0, err
	}
	return s.handle.client.change(ctx, s.handle.target, operation, false, n, how)
}
