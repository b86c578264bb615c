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

// Publishing selects the kind of channel for waking waiters.
type Publishing int

const (
	// PublishAuto is Redisson's rule: shard channels (SPUBLISH) in a cluster with shard channels, plain channels (PUBLISH)
	// everywhere else.
	PublishAuto Publishing = iota
	// PublishPlain is for a cluster shared with Redisson clients on plain channels: clients before 3.22, or with the
	// shardedSubscriptionMode OFF.
	PublishPlain
	// PublishSharded is for Redisson clients with the shardedSubscriptionMode ON.
	PublishSharded
)

const (
	plainPublish = "PUBLISH"
	shardPublish = "SPUBLISH"
)

// channels has the command for waking waiters.
type channels struct {
	command atomic.Pointer[string] // nil until known
}

func (ch *channels) set(command string) { ch.command.Store(&command) }

// settleChannels determines, once, the command for waking waiters of t. Every acquire calls settleChannels first. The
// question to the server is the same as Redisson's.
func (c *Client) settleChannels(ctx context.Context, t *target) error {
	if c.channels.command.Load() != nil {
		c.checkPublishing(t)
		return nil
	}
	command := shardPublish
	if _, err := c.server.Send(c.patient(ctx), resp.Cmd("PUBSUB", "SHARDNUMSUB", "0").On(t.name)); err != nil {
		reply, answered := errors.AsType[resp.Error](err)
		if !answered || errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) || passing(reply) {
			return fmt.Errorf("lock: asking whether the server has shard channels: %w", err)
		}
		command = plainPublish
	}
	c.channels.set(command)
	c.checkPublishing(t)
	return nil
}

// publishing returns the command for waking waiters of t; "" for a kind without notifications.
func (c *Client) publishing(t *target) string {
	if t.kind.silent {
		return ""
	}
	if command := c.channels.command.Load(); command != nil {
		return *command
	}
	return plainPublish // not settled: this client has not acquired a lock yet
}

// countsListeners reports whether the server of t knows all listeners of t's channels. Listeners of a cluster's plain
// channels may be connected to any server.
func (c *Client) countsListeners(t *target) bool {
	return c.nature.spread == nil || c.publishing(t) == shardPublish
}

// bySlot divides leases into parts, each renewable by a single script. With a single server all leases are in a part.
func (c *Client) bySlot(leases []*Lease) [][]*Lease {
	if c.nature.spread == nil {
		return [][]*Lease{leases}
	}
	return partition(leases, func(l *Lease) int { return c.nature.spread.Slot(l.target.name) })
}

// byServer divides list by the servers of the elements' names, so that a slow server does not delay the others.
func byServer[T any](c *Client, list []T, name func(T) string) [][]T {
	if c.nature.spread == nil || len(list) < 2 {
		return [][]T{list}
	}
	return partition(list, func(e T) string { return c.nature.spread.Route(name(e)) })
}

// partition divides list by key and keeps the order within each part.
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

// beside runs fn for all parts concurrently and waits for all to return.
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
