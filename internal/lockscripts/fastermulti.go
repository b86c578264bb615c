package lockscripts

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// ownerAndValues splits the owner of a faster multi lock.
func ownerAndValues(text string) (owner string, values []string) {
	words := strings.Fields(text)
	return words[0], words[1:]
}

// valueOf returns the owner of a value, the prefix of the fields of its hold, and the end of its lease.
func valueOf(c *fakeredis.Call, group, value string) (holder, hold string, ends int64) {
	holder, _ = c.Do("HGET", group, value).(string)
	hold = value + ":" + holder
	text, _ := c.Do("HGET", group, hold+":expire_time").(string)
	return holder, hold, number(text)
}

// noGroup reports whether the key is a lock of another kind.
func noGroup(c *fakeredis.Call) bool {
	return c.Int("HLEN", c.Keys[0]) == 1 || c.Int("HEXISTS", c.Keys[0], "mode") == 1
}

func modelFasterMultiAcquire(c *fakeredis.Call) any {
	group := c.Keys[0]
	if late := tooLate(c, c.Args[2]); late != nil {
		return late
	}
	if c.Int("EXISTS", c.Keys[1]) == 1 {
		return int64(-1)
	}
	if noGroup(c) {
		return otherKind
	}
	owner, values := ownerAndValues(c.Args[1])
	left, mine := int64(0), true
	for _, value := range values {
		holder, _, ends := valueOf(c, group, value)
		mine = mine && holder == owner && ends > now(c)
		if holder != owner {
			left = max(left, ends-now(c))
		}
	}
	g := groupLine{lineKey(c, 2), arg(c, 3), arg(c, 4)}
	if len(c.Args) == 4 {
		g.stand = "join"
	}
	if g.line == "" || g.place == "" {
		if left > 0 {
			return left
		}
		return takeValues(c, owner, values)
	}
	r := g.reserved(c)
	if !mine && left == 0 {
		for _, value := range values {
			left = max(left, r.of(c, value, "", owner, g.stand != "" && !r.came))
		}
	}
	if left > 0 {
		return g.wait(c, left, r)
	}
	holds := takeValues(c, owner, values)
	g.endOwn(c, r)
	modelGiveWay(c, g.line, g.place, g.stand)
	return holds
}

// takeValues takes the values for an owner, and returns the answer of an acquire.
func takeValues(c *fakeredis.Call, owner string, values []string) any {
	group, lease := c.Keys[0], c.Args[0]
	var first []string
	for _, value := range values {
		holder, hold, ends := valueOf(c, group, value)
		count := int64(1)
		if ends > now(c) {
			before, _ := c.Do("HGET", group, hold+":lock_count").(string)
			count += number(before)
		}
		if count == 1 {
			first = append(first, value)
		}
		own, ends := value+":"+owner, max(ends, now(c)+number(lease))
		c.Do("HSET", group, value, owner, own+":expire_time", strconv.FormatInt(ends, 10), own+":lock_count", strconv.FormatInt(count, 10))
		if holder != "" && holder != owner {
			c.Do("HDEL", group, hold+":expire_time", hold+":lock_count")
		}
	}
	if c.Int("PTTL", group) < number(lease) {
		c.Do("PEXPIRE", group, lease)
	}
	if len(first) < len(values) {
		return fakeredis.Status(strings.Join(first, " "))
	}
	return nil
}

// giveValues takes a hold of each value from an owner, frees the values with their last holds, and tells those who wait. held: the
// owner had all values. kept: the owner has further holds.
func giveValues(c *fakeredis.Call, publish, line, counted string) (held, freed, kept bool) {
	group := c.Keys[0]
	owner, values := ownerAndValues(c.Args[1])
	keeps := strings.Fields(c.Args[0])
	held = true
	shorter := false
	for i, value := range values {
		holder, hold, ends := valueOf(c, group, value)
		has := holder == owner && ends > now(c)
		held = held && has
		if has && len(keeps) > 1 && keeps[2*i] != "0" {
			lease := number(keeps[2*i+1])
			c.Do("HSET", group, hold+":expire_time", strconv.FormatInt(now(c)+lease, 10), hold+":lock_count", keeps[2*i])
			if c.Int("PTTL", group) < lease {
				c.Do("PEXPIRE", group, keeps[2*i+1])
			}
			shorter, kept = shorter || ends > now(c)+lease+1000, true
			continue
		}
		if holder == owner {
			c.Do("HDEL", group, value)
			freed = true
		} else {
			hold = value + ":" + owner
		}
		c.Do("HDEL", group, hold+":expire_time", hold+":lock_count")
	}
	if freed || shorter {
		groupCaller{group, line, c.Keys[1], publish, counted}.callFor(c, values)
	}
	return held, freed, kept
}

func modelFasterMultiRelease(c *fakeredis.Call) any {
	lifetime, answer, known := released(c, c.Keys[2])
	if known {
		return answer
	}
	line := lineKey(c, 3)
	modelGiveWay(c, line, arg(c, 8), arg(c, 9))
	held, _, kept := giveValues(c, c.Args[2], line, arg(c, 6))
	outcome := int64(1)
	if kept {
		outcome = 0
	}
	if !held {
		outcome = -1
	}
	if held || c.Args[4] == "1" {
		c.Do("SET", c.Keys[2], strconv.FormatInt(outcome, 10), "PX", lifetime)
	}
	if !held {
		return nil
	}
	return outcome
}

func modelFasterMultiUndo(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if undone(c, c.Keys[2], c.Args[4]) {
		return int64(0)
	}
	if _, freed, _ := giveValues(c, c.Args[2], lineKey(c, 3), arg(c, len(c.Args)-2)); !freed {
		return int64(0)
	}
	return int64(1)
}

func modelFasterMultiRenew(c *fakeredis.Call) any {
	lease := number(c.Args[0])
	outcomes := make([]any, len(c.Keys))
	for i, group := range c.Keys {
		outcomes[i] = renewValues(c, group, c.Args[i+1], lease)
	}
	return outcomes
}

func renewValues(c *fakeredis.Call, group, ownerAnd string, lease int64) int64 {
	owner, values := ownerAndValues(ownerAnd)
	outcome := int64(1)
	for _, value := range values {
		holder := ask(c, "HGET", group, value)
		switch {
		case holder != nil && holder != owner:
			outcome = -1
		case outcome == 1:
			if _, _, ends := valueOf(c, group, value); holder == nil || ends <= now(c) {
				outcome = 0
			}
		}
	}
	if outcome != 1 || lease <= 0 {
		return outcome
	}
	for _, value := range values {
		if _, hold, ends := valueOf(c, group, value); ends < now(c)+lease {
			c.Do("HSET", group, hold+":expire_time", strconv.FormatInt(now(c)+lease, 10))
		}
	}
	c.Do("PEXPIRE", group, text(max(c.Int("PTTL", group), lease)))
	return outcome
}

func modelFasterMultiForce(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[1]); late != nil {
		return late
	}
	if noGroup(c) {
		return otherKind
	}
	taken := int64(0)
	for value := range strings.FieldsSeq(c.Args[2]) {
		holder, hold, ends := valueOf(c, c.Keys[0], value)
		if holder == "" {
			continue
		}
		if ends > now(c) {
			taken = 1
		}
		c.Do("HDEL", c.Keys[0], value, hold+":expire_time", hold+":lock_count")
	}
	if taken == 1 {
		groupCaller{c.Keys[0], lineKey(c, 2), c.Keys[1], c.Args[0], arg(c, 3)}.callFor(c, strings.Fields(c.Args[2]))
	}
	return taken
}

func modelFasterMultiInfo(c *fakeredis.Call) any {
	if noGroup(c) {
		return otherKind
	}
	holders := []any{}
	var values []string
	if len(c.Args) > 0 {
		values = strings.Fields(c.Args[0])
	} else {
		values = slices.DeleteFunc(slices.Sorted(maps.Keys(Fields(c, c.Keys[0]))), func(field string) bool { return strings.Contains(field, ":") })
	}
	for _, value := range values {
		holder, hold, ends := valueOf(c, c.Keys[0], value)
		if holder == "" || ends <= now(c) {
			continue
		}
		count, ok := c.Do("HGET", c.Keys[0], hold+":lock_count").(string)
		if !ok {
			count = "1"
		}
		holders = append(holders, holder, count, ends-now(c))
	}
	return holders
}
