package lock

import (
	"context"
	"fmt"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// ForceUnlock frees the lock of any holder, and reports whether the lock was held. A holder in this process is told
// at once, one of another client of this package within a second, by a message on the channel lockwire_forced. Any
// other learns it at its next renewal or Check, and by the end of its lease at the latest; until then it may go on
// believing that it has the lock.
func (h *Handle) ForceUnlock(ctx context.Context) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	c, t := h.client, &h.target
	if err := c.channels.Settle(ctx, t.remote()); err != nil {
		return false, err
	}
	holds := c.table.holdsOf(t.hold(), "", nil) // collected before the script, to leave out later holds
	v, err := c.scripts.RunInTime(ctx, t.name, func(last int64) *remote.Call {
		return &remote.Call{Script: t.kind.Force, Lock: t.remote(), Keys: t.lined(t.keys()), Args: t.lineArgs(c, t.valued(c.channels.Publishing(t.kind.silent), last)),
			Leaves: true, Tells: true}
	})
	if err != nil {
		t.mayTellForced(c, err)
		return false, c.refused(t.name, err)
	}
	forced, err := v.Bool()
	if err != nil {
		return false, fmt.Errorf("lock: force: %w", err)
	}
	if !forced {
		return false, nil
	}
	for _, l := range holds {
		if !t.shares(l.target) {
			continue
		}
		l.lose(Forced, nil)
		if l.state == nil { // a relay may have passed the hold on
			for _, heir := range c.table.holdsOf(t.hold(), l.owner, l) {
				heir.lose(Forced, nil)
			}
		}
	}
	t.tellForced(ctx, c) // afterwards: it may take long
	return true, nil
}

// tellForced announces a forced unlock to all clients, in the background after the end of ctx. If the announcement fails, the
// holder learns of the unlock at its next renewal.
func (t *target) tellForced(ctx context.Context, c *Client) {
	err := ctx.Err()
	if err == nil {
		_, err = c.server.Send(remote.Patient(ctx), resp.Cmd(remote.PlainPublish, kinds.ForcedChannel, t.name))
	}
	switch {
	case err == nil, c.life.Err() != nil:
	case ctx.Err() != nil:
		c.background(func() { t.tellForced(c.life, c) })
	default:
		c.log.Warn("a holder is not told at once that its lock was freed by force", "lock", c.log.Name(t.name), "error", err)
	}
}

// mayTellForced announces a forced unlock that failed with err, if the server may have executed it.
func (t *target) mayTellForced(c *Client, err error) {
	if remote.Uncertain(err) {
		c.background(func() { t.tellForced(c.life, c) })
	}
}
