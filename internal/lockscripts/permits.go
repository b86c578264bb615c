package lockscripts

import (
	"strconv"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

const never = 922337203685477

func text(n int64) string { return strconv.FormatInt(n, 10) }

// idsOf cuts an owner into the ids of its permits.
func idsOf(owner string) []string {
	var ids []string
	for ; len(owner) >= 16; owner = owner[16:] {
		ids = append(ids, owner[:16])
	}
	return ids
}

// ends is the end of a permit's lease, 0 for a free permit.
func ends(c *fakeredis.Call, key, id string) int64 {
	score, _ := c.Do("ZSCORE", key, id).(string)
	return number(score)
}

func modelPermitsAcquire(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[5]); late != nil {
		return late
	}
	key, set, ids, publish := c.Keys[0], c.Keys[2], idsOf(c.Args[1]), c.Args[2]
	if c.Int("EXISTS", c.Keys[3]) == 1 {
		return int64(-1)
	}
	if ends(c, set, ids[0]) != 0 {
		return nil
	}
	if _, _, bad := numberAt(c, key); bad {
		return notNumber
	}
	now, count := now(c), int64(len(ids))
	a := asker{lineKey(c, 4), arg(c, 6), arg(c, 7), arg(c, 8), publish}
	lined := a.line != "" && c.Int("EXISTS", a.line) == 1
	if ended := c.Int("ZREMRANGEBYSCORE", set, "-inf", text(now)); ended > 0 {
		total, done := c.TryDo("INCRBY", key, text(ended)).(int64)
		if !done {
			for i := range ended {
				c.Do("ZADD", set, text(now), ids[0]+text(i+1))
			}
			c.Do("INCRBY", key, text(ended))
		}
		if total > 0 {
			announce(c, publish, total)
		}
	}
	free, there, _ := numberAt(c, key)
	if !there && c.Args[3] != "1" {
		return fakeredis.Status("unset")
	}
	left, reserved, turns := modelReserved(c, a.line, a.place, float64(free-count), float64(free))
	if free < count {
		if left, reserved = -1, true; there {
			left = nextPermit(c, set, now)
		}
	}
	if reserved {
		return a.refused(c, count, free, left, turns)
	}
	c.Do("DECRBY", key, text(count))
	end := text(now + number(c.Args[0]))
	if c.Args[4] == "1" {
		end = text(never)
	}
	for _, id := range ids {
		if _, refused := c.TryDo("ZADD", set, end, id).(fakeredis.Err); refused {
			c.Do("DECRBY", key, text(-count))
			c.Do("ZADD", set, end, id)
		}
	}
	if left := c.Int("PTTL", key); left > 0 {
		c.Do("PEXPIRE", set, text(left))
	}
	a.granted(c, free-count, lined)
	return nil
}

// nextPermit returns how long the first lease to end lasts, in ms, -1 for ever.
func nextPermit(c *fakeredis.Call, set string, now int64) int64 {
	first, _ := c.Do("ZRANGE", set, "0", "0", "WITHSCORES").([]any)
	if len(first) == 2 {
		if end := number(first[1].(string)); end < never {
			return end - now
		}
	}
	return -1
}

// giveBack returns the taken permits among ids, and publishes the change. args is the position of the arguments for the line.
func giveBack(c *fakeredis.Call, ids []string, publish string, undo bool, args int) int64 {
	var taken []string
	for _, id := range ids {
		if end, there := c.Do("ZSCORE", c.Keys[2], id).(string); c.Int("ZREM", c.Keys[2], id) == 1 && there {
			taken = append(taken, end, id)
		}
	}
	returned := int64(len(taken) / 2)
	if returned == 0 {
		return 0
	}
	total, done := c.TryDo("INCRBY", c.Keys[0], text(returned)).(int64)
	if !done {
		c.Do(append([]string{"ZADD", c.Keys[2]}, taken...)...)
		c.Do("INCRBY", c.Keys[0], text(returned))
	}
	told := total
	if len(ids) > 1 && !undo {
		told = returned
	}
	tellPermits(c, lineKey(c, 4), publish, args, told, total, total-returned)
	return returned
}

func allHeld(c *fakeredis.Call, ids []string) bool {
	now := now(c)
	for _, id := range ids {
		if ends(c, c.Keys[2], id) <= now {
			return false
		}
	}
	return true
}

func modelPermitsRelease(c *fakeredis.Call) any {
	if c.Int("EXISTS", c.Keys[3]) == 1 {
		return int64(1)
	}
	if _, _, bad := numberAt(c, c.Keys[0]); bad {
		return notNumber
	}
	ids := idsOf(c.Args[1])
	held := allHeld(c, ids)
	modelGiveWay(c, lineKey(c, 4), arg(c, 8), arg(c, 9))
	giveBack(c, ids, c.Args[2], false, 6)
	if !held {
		return nil
	}
	c.Do("SET", c.Keys[3], "1", "PX", c.Args[3])
	return int64(1)
}

func modelPermitsEnd(c *fakeredis.Call) any {
	held, now := any(int64(1)), now(c)
	for _, id := range idsOf(c.Args[0]) {
		if ends(c, c.Keys[0], id) > now {
			c.Do("ZADD", c.Keys[0], text(now), id)
		} else {
			held = nil
		}
	}
	return held
}

func modelPermitsGive(c *fakeredis.Call) any {
	o := outcome{c.Keys[3], c.Args[3]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	if _, _, bad := numberAt(c, c.Keys[0]); bad {
		return notNumber
	}
	ids := idsOf(c.Args[2])
	if !allHeld(c, ids) {
		return int64(0)
	}
	giveBack(c, ids, c.Args[1], false, 4)
	return o.remember(c, 1)
}

func modelPermitsUndo(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if undone(c, c.Keys[3], c.Args[4]) {
		return int64(0)
	}
	if _, _, bad := numberAt(c, c.Keys[0]); bad {
		return notNumber
	}
	returned := giveBack(c, idsOf(c.Args[1]), c.Args[2], true, len(c.Args)-2)
	return min(1, returned)
}

func modelPermitsRenew(c *fakeredis.Call) any {
	lease, now := number(c.Args[0]), now(c)
	outcomes := make([]any, len(c.Keys))
	for i, set := range c.Keys {
		ids, outcome := idsOf(c.Args[i+1]), int64(1)
		for _, id := range ids {
			switch score := ask(c, "ZSCORE", set, id).(type) {
			case fakeredis.Err:
				outcome = -1
			case string:
				if number(score) <= now {
					outcome = min(outcome, 0)
				}
			default:
				outcome = min(outcome, 0)
			}
		}
		if outcome == 1 && lease > 0 {
			c.Do("ZADD", set, text(now), "")
			c.Do("ZREM", set, "")
		}
		for _, id := range ids {
			if outcome == 1 && ends(c, set, id) < now+lease {
				c.Do("ZADD", set, text(now+lease), id)
			}
		}
		outcomes[i] = outcome
	}
	return outcomes
}

func modelPermitsForce(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[1]); late != nil {
		return late
	}
	if _, _, bad := numberAt(c, c.Keys[0]); bad {
		return notNumber
	}
	taken := c.Int("ZCARD", c.Keys[2])
	if taken == 0 {
		return int64(0)
	}
	c.Do("ZREM", c.Keys[2], "")
	total := c.Int("INCRBY", c.Keys[0], text(taken))
	if _, refused := c.TryDo("DEL", c.Keys[2]).(fakeredis.Err); refused {
		c.Do("INCRBY", c.Keys[0], text(-taken))
		c.Do("DEL", c.Keys[2])
	}
	tellPermits(c, lineKey(c, 3), c.Args[0], 2, total, total, total-taken)
	return int64(1)
}

func modelPermitsInfo(c *fakeredis.Call) any {
	free, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	now := now(c)
	ended := c.Int("ZCOUNT", c.Keys[2], "-inf", text(now))
	set := int64(0)
	if there {
		set = 1
	}
	info := []any{set, free + ended, c.Int("ZCARD", c.Keys[2]) - ended}
	list, _ := c.Do("ZRANGE", c.Keys[2], text(ended), text(ended+999), "WITHSCORES").([]any)
	for i := 0; i+1 < len(list); i += 2 {
		left := number(list[i+1].(string)) - now
		if left+now >= never {
			left = -1
		}
		info = append(info, list[i], left)
	}
	return info
}

func modelPermitsAdd(c *fakeredis.Call) any {
	o := outcome{c.Keys[3], c.Args[4]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	free, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	more, total := number(c.Args[2]), c.Args[3] == "1"
	if total && there {
		more -= free + c.Int("ZCARD", c.Keys[2])
	}
	done := o.remember(c, 1)
	if more != 0 || !there {
		available := o.change(c, "INCRBY", c.Keys[0], text(more))
		if total || more > 0 {
			tellPermits(c, lineKey(c, 4), c.Args[1], 5, number(c.Args[2]), available, available-more)
		}
	}
	return done
}

func modelPermitsLease(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[2]); late != nil {
		return late
	}
	now, lease := now(c), number(c.Args[1])
	switch end := ends(c, c.Keys[2], c.Args[0]); {
	case end <= now:
		return nil
	case lease < 0:
		c.Do("ZADD", c.Keys[2], text(never), c.Args[0])
		return int64(-1)
	case lease > 0:
		c.Do("ZADD", c.Keys[2], text(now+lease), c.Args[0])
		return lease
	case end < never:
		return end - now
	}
	return int64(-1)
}
