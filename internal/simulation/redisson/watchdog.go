package redisson

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/lockwire/lockwire/script"
)

//go:embed lock_renew.lua
var lockRenewLua string

//go:embed read_renew.lua
var readRenewLua string

var (
	lockRenew = script.New(lockRenewLua)
	readRenew = script.New(readRenewLua)
)

func (c *Client) renew(h *Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = append(c.renewed, h)
}

// forget ends the renewal of a hold, and reports whether the hold was renewed.
func (c *Client) forget(h *Hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.renewed, h)
	if i >= 0 {
		c.renewed = slices.Delete(c.renewed, i, i+1)
	}
	return i >= 0
}

// watchdog renews a third of the lease after it has renewed last. The first failure ends a pass.
func (c *Client) watchdog() {
	for {
		select {
		case <-time.After(c.lease / 3):
		case <-c.end:
			return
		}
		c.renewLocks()
		c.renewReaders()
	}
}

// held are the holds under renewal, by name in order.
func (c *Client) held(readers bool) (names []string, holds map[string][]*Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds = map[string][]*Hold{}
	for _, h := range c.renewed {
		if h.reader() != readers {
			continue
		}
		if holds[h.name] == nil {
			names = append(names, h.name)
		}
		holds[h.name] = append(holds[h.name], h)
	}
	return names, holds
}

// renewLocks renews for the first owner of each name.
func (c *Client) renewLocks() {
	names, holds := c.held(false)
	if len(names) == 0 {
		return
	}
	args := []any{c.lease.Milliseconds()}
	for _, name := range names {
		args = append(args, holds[name][0].owner)
	}
	start := time.Now()
	v, err := lockRenew.Run(context.Background(), c.pool, names, args...)
	if err != nil {
		return
	}
	for i, name := range names {
		first := holds[name][0]
		if n, err := v.At(i).Int(); err != nil || n != 1 {
			c.forget(first)
			continue
		}
		for _, h := range holds[name] {
			if h.owner == first.owner {
				h.extend(start, c.lease)
			}
		}
	}
}

// renewReaders renews for all owners of each name.
func (c *Client) renewReaders() {
	names, holds := c.held(true)
	if len(names) == 0 {
		return
	}
	var keys []string
	args := []any{c.lease.Milliseconds()}
	for _, name := range names {
		keys = append(keys, name, "{"+name+"}")
		var owners []any
		for _, h := range holds[name] {
			if !slices.Contains(owners, any(h.owner)) {
				owners = append(owners, h.owner)
			}
		}
		args = append(append(args, len(owners)), owners...)
	}
	start := time.Now()
	v, err := readRenew.Run(context.Background(), c.pool, keys, args...)
	if err != nil {
		return
	}
	for i, name := range names {
		n, err := v.At(i).Int()
		for _, h := range holds[name] {
			switch {
			case err != nil || n != 1:
				c.forget(h)
			case len(holds[name]) == 1: // for several permits the answer does not name the remaining permits
				h.extend(start, c.lease)
			}
		}
	}
}
