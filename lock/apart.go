package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const (
	// apartFor limits the delay of a request without a latch.
	apartFor = time.Second
	// apartMin and apartMax bound the growing pauses between attempts. The attempts end with the caller's context or
	// after apartLimit.
	apartMin, apartMax = 10 * time.Millisecond, 250 * time.Millisecond
	apartLimit         = 5 * time.Second
)

// call is a run of a script with several keys. While their slot migrates, a server refuses to run the script as long
// as any key is missing, and the latch and the channel are always missing. The script then runs apart: see
// all_apart.lua.
//
// The source node of a migrating slot cannot create keys, so there is no latch. A script that does harm without a
// latch, or creates other keys, waits there.
type call struct {
	script *script.Script
	target *target
	keys   []string
	args   []any
	leaves bool        // may run on the source node of a migrating slot
	once   bool        // no further attempts here
	tells  bool        // may free the lock
	apart  *bool       // set after a run apart; may be nil
	state  *ownerState // the owner whose turn the caller has, if any
	owner  string      // for a release: the owner expected to have
	holds  int64       // holds; 0 for any number
}

// run runs x on d.
func (c *Client) run(ctx context.Context, d conn.Doer, x *call) (resp.Value, error) {
	ctx = c.dividing(ctx)
	v, err := x.script.Run(ctx, d, x.keys, x.args...)
	if !refused(err) {
		return v, err
	}
	return c.divide(ctx, d, x, err)
}

// divide runs x after d has refused the keys with err.
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

// errMayCome is the reply to a request while an earlier request of the same owner may still arrive.
const errMayCome = resp.Error("TRYAGAIN an earlier request may still arrive")

// errLeaving is the outcome of a script that would have created a key on the source node of a migrating slot. Such a script
// has changed nothing.
const errLeaving = resp.Error("TRYAGAIN the slot is leaving")

// createsKey reports whether err is the reply to such a script.
func createsKey(err error) bool {
	reply, answered := errors.AsType[resp.Error](err)
	return answered && strings.Contains(string(reply), "non local key")
}

// runApart makes one attempt to run x with the lock as the only key.
func (c *Client) runApart(ctx context.Context, d conn.Doer, x *call) (resp.Value, error) {
	others := x.keys[1:]
	if n := len(others); n > 0 && others[n-1] == x.target.line {
		others = others[:n-1] // a line on another server would keep the script from running: all listeners are told instead
	}
	own := len(others)
	if x.target.kind.twin != nil {
		holds, err := c.timeoutsOf(ctx, x.target.name)
		if err != nil {
			return resp.Value{}, err
		}
		others = slices.Concat(others, holds)
	}
	looks := []script.Call{kinds.Look().Call(x.keys[:1])}
	for _, key := range others {
		looks = append(looks, kinds.Look().Call([]string{key}))
	}
	replies, err := script.RunBatch(ctx, c.server, looks)
	if err != nil {
		return resp.Value{}, err
	}
	var there, now int64
	args := []any{int64(0), x.leaves, x.owner, "", len(others)}
	for i, reply := range replies {
		if err := reply.Err(); err != nil {
			return resp.Value{}, err // a node that gives the slot away, or one that does not take it
		}
		if there, err = reply.At(0).Int(); err != nil {
			return resp.Value{}, err
		}
		if i > own { // not among the script's KEYS: leases of other readers
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
	if x.holds > 1 { // a repeat of the last release finds nothing to release
		args[3] = x.holds
	}
	if x.state != nil {
		x.state.mayCome = latest
	}
	if x.apart != nil {
		*x.apart = true
	}
	v, err := c.apartScript(x.script).Run(ctx, d, x.keys[:1], append(args, x.args...)...)
	if createsKey(err) {
		err = errLeaving
	}
	if x.state != nil && (err == nil || !uncertain(err)) {
		x.state.mayCome = 0
	}
	return v, err
}

// tellSource publishes on the source node of a migrating slot for waiters on the target node: shard channels stay
// with the source until the end of the migration. Queued waiters look by themselves.
func (c *Client) tellSource(ctx context.Context, t *target) {
	if c.publishing(t) != shardPublish || t.kind.queued {
		return
	}
	message := "0"
	if t.kind.twin != nil || t.kind.permits {
		message = "1"
	}
	if _, err := c.server.Send(ctx, resp.Cmd(shardPublish, t.channel, message)); err != nil {
		c.warn("waiters are not woken by messages, and look now and then", "error", err)
	}
}

// apartScript returns s preceded by all_apart.lua.
func (c *Client) apartScript(s *script.Script) *script.Script {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apart == nil {
		c.apart = make(map[*script.Script]*script.Script)
	}
	if c.apart[s] == nil {
		c.apart[s] = kinds.Apart(s)
	}
	return c.apart[s]
}

// timeoutsOf returns the lease keys of all readers of a read-write lock.
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
		count, _ := strconv.Atoi(text) // 0 for "mode"
		keys = append(keys, kinds.ReadLeases(name, owner, min(int64(count), maxHolds))...)
	}
	return keys, nil
}

// maxHolds limits the leases examined per reader.
const maxHolds = 10_000
