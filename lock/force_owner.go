package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// ForceUnlockOwner frees the lock with the given name, of any kind, from the given owner, and reports whether the
// owner had the lock. A script compares the owner and frees the lock in one step, so another holder is never hit: a
// lock that has passed on in the meantime stays. All holds of the owner end; other readers and other permits stay,
// and so does what a writer reads beneath its write lock.
//
// owner is written as in [Holder]: for a writer with ":write" at its end, for a [PermitSemaphore] the id of a permit.
// Holders are told as by [Handle.ForceUnlock]. ForceUnlockOwner returns [ErrWrongType] for a key that holds no lock and
// no number.
func (c *Client) ForceUnlockOwner(ctx context.Context, name, owner string) (bool, error) {
	if err := checkName(name); err != nil {
		return false, c.about(name, err)
	}
	seen, err := inspect(ctx, c, name)
	switch {
	case err != nil || !seen.exists || seen.Shape == ShapeNumber:
		return false, err
	case seen.Shape == ShapeFasterMulti:
		return false, invalidf("ForceUnlockOwner of a FasterMulti; ForceUnlock frees its values")
	case seen.Shape.kind() == nil:
		return false, c.about(name, fmt.Errorf("%w, and no lock", ErrWrongType))
	}
	i := slices.IndexFunc(seen.Info.Holders, func(h Holder) bool { return h.Owner == owner })
	if i < 0 {
		return false, nil
	}
	k := seen.kindOf(owner)
	h := c.handle(k, name)
	t := &h.target
	if err := c.channels.Settle(ctx, t.remote()); err != nil {
		return false, err
	}
	stored := owner
	if k.permits {
		if stored, err = (&PermitSemaphore{handle: h}).owner([]string{owner}); err != nil {
			return false, err
		}
	}
	holds := c.table.leasesOfOwner(name, stored)
	v, err := h.dispossess(ctx, stored, seen.readHolds(owner))
	if err != nil {
		t.mayTellForced(c, err)
		return false, c.refused(name, err)
	}
	freed, err := v.Bool()
	if err != nil || !freed {
		return false, err
	}
	for _, l := range holds {
		l.lose(Forced, nil)
		if l.state == nil { // a relay may have passed the hold on
			for _, hold := range c.table.leasesOfOwner(name, stored) {
				hold.lose(Forced, nil)
			}
		}
	}
	t.tellForced(ctx, c)
	return true, nil
}

// dispossess takes all holds of an owner back, as the undo of an acquire does. reads is the number of read holds.
func (h *Handle) dispossess(ctx context.Context, owner string, reads int64) (resp.Value, error) {
	c, t := h.client, &h.target
	latch := newLatch(t)
	keys := t.ofOwner(owner, max(1, reads), latch)
	r := request{client: c, target: t, lease: c.cfg.Lease, owner: owner}
	return c.scripts.RunInTime(ctx, t.name, func(last int64) *remote.Call {
		args := r.args(0, owner, c.channels.Publishing(t.kind.silent), 0, last)
		return &remote.Call{Script: t.kind.Undo, Lock: t.remote(), Keys: slices.Clone(keys), Args: t.lineArgs(c, args), Leaves: true,
			Tells: true, Owner: owner}
	})
}

// kindOf returns the kind by which owner holds the lock.
func (i *inspected) kindOf(owner string) *kind {
	k := i.Shape.kind()
	if k.twin != nil && !strings.HasSuffix(owner, k.Suffix) {
		return k.twin
	}
	return k
}

// readHolds returns the number of read holds of an owner, or of a writer beneath its write lock.
func (i *inspected) readHolds(owner string) int64 {
	for _, h := range i.Info.Holders {
		if h.Owner == strings.TrimSuffix(owner, writeSuffix) {
			return h.Holds
		}
	}
	return 0
}
