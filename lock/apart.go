package lock

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed all_apart.lua
var allApart string

//go:embed all_look.lua
var allLook string

var lookScript = &lazy[*script.Script]{make: func() *script.Script { return script.New(allLook) }}

const (
	// apartFor is how late a request may arrive that has no latch to be known by.
	apartFor = time.Second
	// apartMin and apartMax bound the growing pauses between attempts, which end with the caller's context or after apartLimit.
	apartMin, apartMax = 10 * time.Millisecond, 250 * time.Millisecond
	apartLimit         = 5 * time.Second
)

// call is a run of a script with several keys. While their slot migrates a server refuses to run it as long as one of them is
// missing, and the latch and the channel always are. Then it is run apart: see all_apart.lua.
//
// On the node that the slot leaves no key can be made, so there is no latch. A script that does harm without one, or makes
// other keys, waits there.
type call struct {
	script *script.Script
	target *target
	keys   []string
	args   []any
	leaves bool        // it may run on the node that the slot leaves
	once   bool        // it is not tried again here
	tells  bool        // it may have freed the lock
	apart  *bool       // set when it has been run apart; may be nil
	state  *ownerState // whose turn the caller has, if there is one
	owner  string      // of a release: who has so many
	holds  int64       // holds; 0: no matter
}

// run runs x by d.
func (c *Client) run(ctx context.Context, d conn.Doer, x *call) (resp.Value, error) {
	ctx = c.dividing(ctx)
	v, err := x.script.Run(ctx, d, x.keys, x.args...)
	if !refused(err) {
		return v, err
	}
	return c.divide(ctx, d, x, err)
}

// divide runs x after d has refused its keys with err.
func (c *Client) divide(ctx context.Context, d conn.Doer, x *call, err error) (v resp.Value, _ error) {
	if c.nature.spread == nil {
		return v, err
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	begin, pause := time.Now(), apartMin
	for {
		v, err = c.runApart(ctx, d, x)
		if err == nil && x.tells {
			c.tellSource(ctx, x.target)
		}
		if !refused(err) || x.once || time.Since(begin) > apartLimit {
			return v, err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return v, err
		}
		pause = min(2*pause, apartMax)
		if v, err = x.script.Run(ctx, d, x.keys, x.args...); !refused(err) {
			return v, err
		}
	}
}

// errMayCome is the answer to a request of an owner before that it may still come is certain not to be so of the last one.
const errMayCome = resp.Error("TRYAGAIN an earlier request may still arrive")

// runApart makes one attempt to run x with the lock as its only key.
func (c *Client) runApart(ctx context.Context, d conn.Doer, x *call) (resp.Value, error) {
	others := x.keys[1:]
	if x.target.kind.twin != nil {
		holds, err := c.timeoutsOf(ctx, x.target.name)
		if err != nil {
			return resp.Value{}, err
		}
		others = slices.Concat(others, holds)
	}
	own := len(x.keys) - 1
	looks := []script.Call{lookScript.get().Call(x.keys[:1])}
	for _, key := range others {
		looks = append(looks, lookScript.get().Call([]string{key}))
	}
	replies, err := script.RunBatch(ctx, c.server, looks)
	if err != nil {
		return resp.Value{}, err
	}
	var there, now int64
	args := []any{int64(0), x.leaves, x.owner, "", len(others)}
	for i, reply := range replies {
		if there, err = reply.At(0).Int(); err != nil {
			return resp.Value{}, err
		}
		if i > own { // those of others are looked at, and none of the script's KEYS
			there += 2
		}
		if i > 0 {
			args = append(args, others[i-1], there)
		} else if now, err = reply.At(1).Int(); err != nil {
			return resp.Value{}, err
		}
	}
	if x.state != nil && now <= x.state.mayCome {
		return resp.Value{}, errMayCome
	}
	latest := now + apartFor.Milliseconds()
	args[0] = latest
	if x.holds > 1 { // a repeat of the last one finds nothing to give back
		args[3] = x.holds
	}
	if x.state != nil {
		x.state.mayCome = latest
	}
	if x.apart != nil {
		*x.apart = true
	}
	v, err := c.apartScript(x.script).Run(ctx, d, x.keys[:1], append(args, x.args...)...)
	if x.state != nil && (err == nil || !uncertain(err)) {
		x.state.mayCome = 0
	}
	return v, err
}

// tellSource tells waiters of what has happened on the node that their slot goes to: shard channels stay with the node that it
// leaves until the end. The waiters of a queue look by themselves.
func (c *Client) tellSource(ctx context.Context, t *target) {
	if c.publishing(t) != shardPublish || t.kind.queued {
		return
	}
	message := "0"
	if t.kind.twin != nil || t.kind.permits {
		message = "1"
	}
	if _, err := c.server.Send(ctx, resp.Cmd(shardPublish, t.channel, message)); err != nil {
		c.warn("waiters look by themselves", "error", err)
	}
}

// apartScript returns s with all_apart.lua in front of it.
func (c *Client) apartScript(s *script.Script) *script.Script {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apart == nil {
		c.apart = make(map[*script.Script]*script.Script)
	}
	if c.apart[s] == nil {
		c.apart[s] = script.New(allApart + s.Source())
	}
	return c.apart[s]
}

// timeoutsOf returns the keys of the leases of all readers of a read-write lock.
func (c *Client) timeoutsOf(ctx context.Context, name string) (keys []string, err error) {
	fields, err := c.server.Send(ctx, resp.Cmd("HGETALL", name))
	if err != nil {
		return nil, err
	}
	pairs, err := fields.Pairs()
	if err != nil {
		return nil, err
	}
	for field, value := range pairs {
		owner, bad := field.Text()
		text, worse := value.Text()
		if bad != nil || worse != nil {
			return nil, fmt.Errorf("lock: unexpected reply to HGETALL")
		}
		count, _ := strconv.Atoi(text) // of "mode" none
		keys = append(keys, readLeases(name, owner, min(int64(count), maxHolds))...)
	}
	return keys, nil
}

// maxHolds bounds how many leases of a reader are looked at.
const maxHolds = 10_000
