package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Publishing is by which of a server's two kinds of channels waiters are woken.
type Publishing int

const (
	// PublishAuto is what Redisson does: shard channels (SPUBLISH) in a cluster whose servers have them, plain ones
	// (PUBLISH) everywhere else.
	PublishAuto Publishing = iota
	// PublishPlain is for a cluster that is shared with clients of Redisson that use plain channels: those before 3.22, and
	// those whose shardedSubscriptionMode is OFF.
	PublishPlain
	// PublishSharded is for clients of Redisson whose shardedSubscriptionMode is ON.
	PublishSharded
)

const (
	plainPublish = "PUBLISH"
	shardPublish = "SPUBLISH"
)

// channels knows by which command waiters are woken.
type channels struct {
	command atomic.Pointer[string] // nil: not known yet
}

func (ch *channels) set(command string) { ch.command.Store(&command) }

// settleChannels finds out, once, by which command waiters of t are woken. Everything that takes a lock does so first. It asks
// what Redisson does.
func (c *Client) settleChannels(ctx context.Context, t *target) error {
	if c.channels.command.Load() != nil {
		c.checkPublishing(t)
		return nil
	}
	command := shardPublish
	if _, err := c.server.Send(c.patient(ctx), resp.Cmd("PUBSUB", "SHARDNUMSUB", "0").On(t.name)); err != nil {
		reply, answered := errors.AsType[resp.Error](err)
		if !answered || errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) || passing(reply) {
			return fmt.Errorf("lock: whether there are shard channels: %w", err)
		}
		command = plainPublish
	}
	c.channels.set(command)
	c.checkPublishing(t)
	return nil
}

// publishing is the command by which waiters of t are woken; "" if they are not.
func (c *Client) publishing(t *target) string {
	if t.kind.silent {
		return ""
	}
	if command := c.channels.command.Load(); command != nil {
		return *command
	}
	return plainPublish // not settled: this client has taken nothing
}

// countsListeners reports whether a server that runs a script for t knows all who listen on its channels: not if they are
// plain channels of a cluster, who may be on any of its servers.
func (c *Client) countsListeners(t *target) bool {
	return c.nature.spread == nil || c.publishing(t) == shardPublish
}

// bySlot parts leases so that one script can renew those of each part: all at once where there is one server.
func (c *Client) bySlot(leases []*Lease) [][]*Lease {
	if c.nature.spread == nil {
		return [][]*Lease{leases}
	}
	return partition(leases, func(l *Lease) int { return c.nature.spread.Slot(l.target.name) })
}

// byServer parts list by the server that has what name tells of each, so that one which is slow keeps no other waiting.
func byServer[T any](c *Client, list []T, name func(T) string) [][]T {
	if c.nature.spread == nil || len(list) < 2 {
		return [][]T{list}
	}
	return partition(list, func(e T) string { return c.nature.spread.Route(name(e)) })
}

// partition parts list by key. The order stays within each part.
func partition[T any, K comparable](list []T, key func(T) K) [][]T {
	places := make(map[K]int)
	var parts [][]T
	for _, e := range list {
		k := key(e)
		i, ok := places[k]
		if !ok {
			i = len(parts)
			places[k], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], e)
	}
	return parts
}

// beside runs fn for each of parts at the same time, and returns when all have returned.
func beside[T any](parts [][]T, fn func([]T)) {
	if len(parts) == 1 {
		fn(parts[0])
		return
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { fn(part) })
	}
	wg.Wait()
}
