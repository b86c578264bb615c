package lock

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// ForceUnlock frees the lock, whoever holds it, and reports whether the lock was held. The lease of a holder is lost:
//
//   - in this process: at once
//   - in another client of this package: within a second, by a message on the channel lockwire_forced
//   - elsewhere, or without the message: at the next renewal or Check, or at the end of the lease
//
// Until then the former holder works without the lock.
func (h *Handle) ForceUnlock(ctx context.Context) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	c, t := h.client, &h.target
	if err := c.channels.Settle(ctx, t.Lock); err != nil {
		return false, c.about(t.Name, err)
	}
	holds := slices.DeleteFunc(c.table.holdsOf(t.heldAs(), "", nil), func(l *Lease) bool { // before the script, to leave out later holds
		return !t.overlaps(l.target)
	})
	v, err := c.scripts.RunInTime(ctx, t.Name, func(last int64) *remote.Call {
		args := t.withValues(c.publishing(t), last)
		if t.kind.Reads {
			args = append(args, t.kind.Name) // the mode
		}
		x := &remote.Call{Script: t.kind.Force, Lock: t.Lock, Keys: t.withLine(t.baseKeys()), Args: t.lineArgs(c, args),
			Apart: remote.Apart{OnSource: true, MayFree: true}}
		if !t.kind.permits {
			x.Apart.ForTwoNodes = func(context.Context, *remote.Call) bool { x.Apart.LockOnly = true; return true }
		}
		return x
	})
	return h.forced(ctx, v, err, holds)
}

// forced ends holds, the leases in this process of a lock that was freed by force with the reply v, and tells other clients.
func (h *Handle) forced(ctx context.Context, v resp.Value, err error, holds []*Lease) (bool, error) {
	c, t := h.client, &h.target
	if err != nil {
		if remote.Uncertain(err) {
			c.announceBehind(t.Name, t.kind.Name, true)
		}
		return false, c.failed(t.Name, err)
	}
	forced, err := v.Bool()
	if err != nil {
		return false, fmt.Errorf("lock: force: %w", err)
	}
	if forced {
		h.loseForced(holds)
		c.watchdog.Forced(map[string]bool{t.Name: true}) // holds granted or handed over behind the look for holds, and before the script
	}
	// Last, since it may take long; and of a free lock too, which an earlier call without an answer may have freed.
	c.announceForced(ctx, t.Name, t.kind.Name)
	return forced, nil
}

// loseForced tells holds, and those that relays have made of them, of their loss by force.
func (h *Handle) loseForced(holds []*Lease) {
	for _, l := range holds {
		l.lose(Forced, nil)
		if l.state == nil && l.target.kind.passesOn() {
			for _, next := range h.client.table.holdsOf(h.target.heldAs(), l.owner, l) {
				next.lose(Forced, nil)
			}
		}
	}
}

// announcements limits the requests for an announcement, which a client may hear more than once.
const announcements = 3

// announceForced announces a forced unlock to all clients, in the background after the end of ctx. If the announcement fails, the holder
// learns of the unlock at its next renewal, or at the end of the lease.
func (c *Client) announceForced(ctx context.Context, name, kind string) {
	if err := c.publishForced(ctx, name); err != nil && ctx.Err() != nil {
		c.announceBehind(name, kind, false)
	} else {
		c.warnUntold(name, kind, err)
	}
}

// publishForced publishes the name of a lock freed by force. In a cluster the lock's node does, having just answered: another may hang.
func (c *Client) publishForced(ctx context.Context, name string) error {
	err := ctx.Err()
	for n := 0; n < announcements && ctx.Err() == nil; n++ {
		_, err = c.server.Send(remote.Patient(ctx), resp.Cmd(remote.PlainPublish, kinds.ForcedChannel, name).On(name))
		if err == nil || !remote.Uncertain(err) {
			break
		}
	}
	return err
}

// warnUntold logs the failure of an announcement; nil is none.
func (c *Client) warnUntold(name, kind string, err error) {
	if err != nil {
		c.log.WarnOf(name, kind, "", "a holder is not told at once that its lock was freed by force", "error", err)
	}
}

// announceBehind announces a forced unlock in the background; an unsure one, without an answer, again when its request can take effect no
// more, or at Close. Close leaves an announcement the time of a release. After the begin of a Close there is no background: the caller announces.
func (c *Client) announceBehind(name, kind string, unsure bool) {
	announce := func(ctx context.Context, done func()) {
		defer done()
		c.warnUntold(name, kind, c.publishForced(ctx, name))
	}
	if c.background(func() {
		announce(c.bounds.Context(context.Background(), bounds.Max, true))
		if unsure {
			_ = c.sleep(c.life, remote.Arrival)
			announce(c.bounds.Context(context.Background(), bounds.Max, true))
		}
	}) {
		return
	}
	announce(c.bounds.Context(context.Background(), bounds.Min, false))
}
