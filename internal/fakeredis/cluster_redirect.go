package fakeredis

import (
	"slices"
	"strconv"
	"strings"
)

const (
	errCrossSlot   = Err("CROSSSLOT Keys in request don't hash to the same slot")
	errTryAgain    = Err("TRYAGAIN Multiple keys request during rehashing of slot")
	errClusterDown = Err("CLUSTERDOWN The cluster is down")
	errUnbound     = Err("CLUSTERDOWN Hash slot not served")
)

// Commands whose keys are not the first argument alone.
var (
	allKeys   = strings.Fields("del unlink exists mget")
	twoKeys   = strings.Fields("blmove")
	keysFirst = strings.Fields("blpop") // all but the last argument
	noKeys    = strings.Fields("keys scan dbsize flushall")
	sharded   = strings.Fields("ssubscribe sunsubscribe spublish")
)

// keysOf are the keys of a command, or its shard channels.
func (cmd *command) keysOf(args []string) []string {
	name, _, _ := strings.Cut(cmd.name, "|")
	switch {
	case name == "spublish":
		return args[1:2]
	case slices.Contains(sharded, name), slices.Contains(allKeys, name):
		return args[1:]
	case slices.Contains(twoKeys, name):
		return args[1:3]
	case slices.Contains(keysFirst, name):
		return args[1 : len(args)-1]
	case name == "mset":
		var list []string
		for i := 1; i < len(args); i += 2 {
			list = append(list, args[i])
		}
		return list
	case strings.HasPrefix(name, "eval"):
		if n, valid := parseInt(args[2]); valid && 0 <= n && n <= int64(len(args)-3) {
			return args[3 : 3+n]
		}
		return nil
	case cmd.keyed && !slices.Contains(noKeys, name):
		return args[1:2]
	}
	return nil
}

// redirect is a node's refusal of a request with foreign keys, "" if the node serves the keys. After ASKING a client is served
// in a slot under import.
func (s *Server) redirect(cmd *command, keys []string, asking bool) Err {
	c := s.cluster
	if c == nil || len(keys) == 0 {
		return ""
	}
	slot := slotOf(keys[0])
	owner := int(c.owners[slot])
	if owner < 0 {
		return errUnbound
	}
	if slices.ContainsFunc(keys[1:], func(key string) bool { return slotOf(key) != slot }) {
		return errCrossSlot
	}
	channels := slices.Contains(sharded, cmd.name)
	if !c.ok && !channels {
		return errClusterDown
	}
	target, migrating := c.migrating[slot]
	migrating = migrating && owner == c.self
	_, importing := c.importing[slot]
	missing := 0
	if (migrating || importing) && !channels {
		x := &call{s: s, db: &s.dbs[0], now: nowMs()}
		for _, key := range keys {
			if x.get(key) == nil {
				missing++
			}
		}
	}
	switch {
	case migrating && missing > 0 && missing < len(keys):
		return errTryAgain
	case migrating && missing > 0:
		return c.elsewhere("ASK", slot, target)
	case importing && asking && missing > 0 && len(keys) > 1:
		return errTryAgain
	case importing && asking, owner == c.self:
		return ""
	}
	return c.elsewhere("MOVED", slot, owner)
}

func (c *cluster) elsewhere(word string, slot, node int) Err {
	return Err(word + " " + strconv.Itoa(slot) + " " + c.peers[node].addr)
}

// redirectTx is redirect for EXEC: all keys of the transaction together.
func (s *Server) redirectTx(t *transaction, asking bool) Err {
	if s.cluster == nil || t == nil || t.broken {
		return ""
	}
	var all []string
	var last *command
	for _, args := range t.queued {
		if cmd, bad := s.lookup(args); bad == "" {
			all, last = append(all, cmd.keysOf(args)...), cmd
		}
	}
	return s.redirect(last, all, asking)
}

// foreign is the refusal of a script's undeclared key, "" if the script may use the key.
func (c *Call) foreign(cmd *command, args []string) Err {
	keys := cmd.keysOf(args)
	switch bad := c.x.s.redirect(cmd, keys, c.x.asking); {
	case bad == errClusterDown:
		return "ERR Script attempted to execute a command while the cluster is down"
	case bad == errCrossSlot:
		return "ERR Script attempted to access keys that do not hash to the same slot"
	case bad != "":
		return "ERR Script attempted to access a non local key in a cluster node"
	case c.x.s.cluster == nil || len(keys) == 0:
		return ""
	case c.slot > 0 && c.slot != 1+slotOf(keys[0]):
		return "ERR Script attempted to access keys that do not hash to the same slot"
	}
	c.slot = 1 + slotOf(keys[0])
	return ""
}
