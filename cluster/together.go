package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// waits reports whether cmds, at least one, are a batch with WAIT or WAITAOF behind other commands. WAIT concerns
// the earlier commands on the same connection.
func waits(cmds []resp.Command) bool { return slices.ContainsFunc(cmds[1:], isWait) }

func isWait(cmd resp.Command) bool {
	name := cmd.Name()
	return strings.EqualFold(name, "wait") || strings.EqualFold(name, "waitaof")
}

// sendTogether sends a batch with WAIT to the node of its first key, over an exclusive
// connection. If the node has executed nothing, the whole batch is repeated, after a redirection on
// the named node. Otherwise the refusals are returned as replies.
func (c *Cluster) sendTogether(ctx context.Context, cmds []resp.Command) (values []resp.Value, err error) {
	slot, err := routeAll(cmds, false)
	if err != nil {
		return nil, err
	}
	if err := conn.CheckBatch(cmds); err != nil {
		return nil, err
	}
	ctx, traced := conn.StartCommands(ctx, c, cmds, false)
	defer func() { traced.End(ctx, err) }()
	k := call{c: c, ctx: ctx, name: commandName(&cmds[0])}
	var refusal error // of the last attempt
	_, err = run(&k, c.targetOf(slot), func(at target) (none struct{}, failed error) {
		refusal = nil
		if values, failed = at.together(ctx, cmds); failed != nil {
			return none, failed
		}
		refusal = refusedWhole(cmds, values)
		if refusal == nil || k.wantsRefusals() { // executed at least in part, or not to be repeated
			for _, v := range values {
				if err := v.Err(); err != nil { // a reply, from which the Cluster learns
					k.decide(at, err, &k.lastFailure)
				}
			}
			return none, nil
		}
		return none, refusal
	})
	switch {
	case err == nil || refusal == nil:
		return values, err
	case isRedirect(refusal):
		return nil, err
	}
	return values, nil // the refusals are the answer
}

// refusedWhole returns the first refusal if a node refused every command with a key, each for a reason that goes away.
// Otherwise it returns nil. WAIT does not count.
func refusedWhole(cmds []resp.Command, values []resp.Value) (first error) {
	for i := range cmds {
		if _, keyed, _ := firstKey(&cmds[i]); !keyed || isWait(cmds[i]) {
			continue
		}
		err := values[i].Err()
		if err == nil || judge(attempt{err: err}).action == stop {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}
