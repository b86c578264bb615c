package lockscripts

import (
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func modelAcquire(c *fakeredis.Call) any {
	reply, again := modelTake(c, 1, 2, nil)
	if again {
		return fakeredis.Status(text(furtherHold(c, 1, 2)))
	}
	return reply
}

func modelNonReentrantAcquire(c *fakeredis.Call) any {
	reply, again := modelTake(c, 1, 2, nil)
	if again {
		return fakeredis.Status("reentry")
	}
	return reply
}

// modelTake takes a free lock, with a token if there is draw. latch is the position of the latch, ahead of the line, and last that of the
// request's last moment, ahead of the arguments for the line. again: the owner has the lock already.
func modelTake(c *fakeredis.Call, latch, last int, draw func() string) (reply any, again bool) {
	key, lease, owner := c.Keys[0], c.Args[0], c.Args[1]
	if late := tooLate(c, c.Args[last]); late != nil {
		return late, false
	}
	if c.Int("EXISTS", c.Keys[latch]) == 1 {
		return int64(-1), false
	}
	line, place, stand := lineKey(c, latch+1), arg(c, last+1), standOf(c, last+2)
	if c.Int("EXISTS", key) == 1 {
		if c.Int("HEXISTS", key, owner) == 1 {
			return nil, true
		}
		return modelWaitInLine(c, line, place, stand, c.Int("PTTL", key)), false
	}
	if left, reserved, _ := modelReserved(c, line, place, 0, 1); reserved {
		return modelWaitInLine(c, line, place, stand, left), false
	}
	if draw != nil {
		reply = []any{int64(1), draw()}
	}
	c.Do("HINCRBY", key, owner, "1")
	c.Do("PEXPIRE", key, lease)
	modelGiveWay(c, line, place, stand)
	return reply, false
}

// standOf returns what becomes of the place in the argument in front; a refused request always takes its place.
func standOf(c *fakeredis.Call, at int) string {
	if len(c.Args) == at {
		return "join"
	}
	return arg(c, at)
}

// furtherHold adds a hold, and returns the hold count. latch and last are as for modelTake.
func furtherHold(c *fakeredis.Call, latch, last int) int64 {
	key, lease, owner := c.Keys[0], c.Args[0], c.Args[1]
	count := c.Int("HINCRBY", key, owner, "1")
	modelGiveWay(c, lineKey(c, latch+1), arg(c, last+1), standOf(c, last+2))
	if c.Int("PTTL", key) < number(lease) {
		c.Do("PEXPIRE", key, lease)
	}
	return count
}

// now is the server's time in ms.
func now(c *fakeredis.Call) int64 { return micros(c) / 1000 }

// micros is the server's time in µs.
func micros(c *fakeredis.Call) int64 {
	time := c.Do("TIME").([]any)
	return number(time[0].(string))*1_000_000 + number(time[1].(string))
}

// tooLate is the result of a script after last; nil before.
func tooLate(c *fakeredis.Call, last string) any {
	if now := now(c); now > number(last) {
		return fakeredis.Status("late " + strconv.FormatInt(now, 10))
	}
	return nil
}

// undone notes under latch that requests valid until last are undone, and reports whether the note existed before.
func undone(c *fakeredis.Call, latch, last string) bool {
	lasts := strconv.FormatInt(max(1, number(last)-now(c), c.Int("PTTL", latch)), 10)
	if c.Int("PEXPIRE", latch, lasts) == 1 {
		return true
	}
	c.Do("SET", latch, "0", "PX", lasts)
	return false
}

// released returns the answer to a release that is late or has its outcome in the latch, and otherwise the life of the latch. The first
// request of an owner with a single hold is neither.
func released(c *fakeredis.Call, latch string) (life string, answer any, known bool) {
	life, last := c.Args[3], c.Args[5]
	if last == "0" {
		return life, nil, false
	}
	if late := tooLate(c, last); late != nil {
		return life, late, true
	}
	outcome, known := c.Do("GET", latch).(string)
	if outcome == "0" || outcome == "1" {
		answer = number(outcome)
	}
	return text(max(number(life), number(last)-now(c))), answer, known
}

// leaveLatch leaves the outcome of the release of one of several holds. If the user may not, the hold is given again: a repeat would end another.
func leaveLatch(c *fakeredis.Call, latch, life string, again ...string) {
	if _, failed := c.TryDo("SET", latch, "0", "PX", life).(fakeredis.Err); failed {
		c.Do(again...)
		c.Do("SET", latch, "0", "PX", life)
	}
}

// unheld is the answer to a release without a hold. A repeat keeps the first request from taking effect later.
func unheld(c *fakeredis.Call, latch, life string) any {
	if c.Args[4] == "1" {
		c.Do("DEL", latch)
		c.Do("SET", latch, "-1", "PX", life)
	}
	return nil
}

func modelRelease(c *fakeredis.Call) any {
	key, channel, latch := c.Keys[0], c.Keys[1], c.Keys[2]
	lease, owner, publish := c.Args[0], c.Args[1], c.Args[2]
	life, answer, known := released(c, latch)
	if known {
		return answer
	}
	count, holds := c.Do("HGET", key, owner).(string)
	if !holds {
		return unheld(c, latch, life)
	}
	if number(count) > 1 && number(lease) > 0 {
		c.Do("PEXPIRE", key, lease)
		c.Do("HINCRBY", key, owner, "-1")
		leaveLatch(c, latch, life, "HINCRBY", key, owner, "1")
		modelGiveWay(c, lineKey(c, 3), arg(c, 8), arg(c, 9))
		return int64(0)
	}
	if number(lease) > 0 {
		c.Do("DEL", key)
	} else {
		c.Do("HDEL", key, owner)
	}
	line := lineKey(c, 3)
	modelGiveWay(c, line, arg(c, 8), arg(c, 9))
	waiting := modelTellFree(c, teller{line, channel, publish, arg(c, 6), arg(c, 7), "0", 1, false, 0})
	c.Do("SET", latch, "1", "PX", life)
	return freed(waiting)
}

func modelSingle(c *fakeredis.Call) any {
	key, channel, latch := c.Keys[0], c.Keys[1], c.Keys[2]
	owner, publish, counted := c.Args[0], "PUBLISH", "1"
	if len(c.Args) > 1 {
		publish, counted = c.Args[1], c.Args[2]
	}
	switch {
	case arg(c, 5) == "1" && c.Do("GET", latch) == owner:
		return int64(1)
	case c.Int("HDEL", key, owner) == 0:
		return nil
	}
	line := lineKey(c, 3)
	modelGiveWay(c, line, arg(c, 3), arg(c, 4))
	id := owner[:strings.LastIndexByte(owner, ':')]
	waiting := modelTellFree(c, teller{line, channel, publish, counted, id, "0", 1, false, 0})
	c.Do("SET", latch, owner, "PX", "20000")
	return waiting
}

func modelKeep(c *fakeredis.Call) any {
	key, latch, rest, owner, publish := c.Keys[0], c.Keys[2], c.Args[0], c.Args[1], c.Args[2]
	if late := tooLate(c, c.Args[5]); late != nil {
		return late
	}
	switch {
	case c.Args[4] == "1" && c.Do("GET", latch) == owner:
		return int64(1)
	case c.Int("HEXISTS", key, owner) == 0:
		return nil
	}
	c.Do("HDEL", key, c.Args[6])
	c.Do("PEXPIRE", key, rest)
	c.Do("HSET", key, c.Args[6], "1")
	c.Do("HDEL", key, owner)
	if publish != "" {
		c.TryDo(publish, c.Keys[1], "0")
	}
	c.Do("SET", latch, owner, "PX", c.Args[3])
	return int64(1)
}

func modelHandover(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if c.Int("EXISTS", c.Keys[3]) == 1 {
		return nil
	}
	if c.Int("HDEL", c.Keys[0], c.Args[1]) == 0 {
		return nil
	}
	modelInherit(c)
	return int64(1)
}

func modelInherit(c *fakeredis.Call) {
	key, latch, lease, owner, heir, life := c.Keys[0], c.Keys[2], c.Args[0], c.Args[1], c.Args[2], c.Args[3]
	c.Do("DEL", key)
	c.Do("HSET", key, heir, "1")
	c.Do("PEXPIRE", key, lease)
	c.Do("SET", latch, owner, "PX", life)
}

func modelUndo(c *fakeredis.Call) any {
	key, channel := c.Keys[0], c.Keys[1]
	lease, owner, publish, before := c.Args[0], c.Args[1], c.Args[2], c.Args[3]
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if undone(c, c.Keys[2], c.Args[4]) {
		return int64(0)
	}
	text, _ := c.Do("HGET", key, owner).(string)
	if number(text) <= number(before) {
		return int64(0)
	}
	if number(before) > 0 && number(lease) > 0 {
		c.Do("HSET", key, owner, before)
		c.Do("PEXPIRE", key, lease)
		return int64(1)
	}
	c.Do("DEL", key)
	n := len(c.Args)
	modelTellFree(c, teller{lineKey(c, 3), channel, publish, arg(c, n-2), arg(c, n-1), "0", 1, false, 0})
	return int64(1)
}

// ask is c.Do, and the error as a result for a key of another type.
func ask(c *fakeredis.Call, args ...string) any {
	reply := c.TryDo(args...)
	if err, failed := reply.(fakeredis.Err); failed && !strings.Contains(string(err), "WRONGTYPE") {
		return c.Do(args...)
	}
	return reply
}

func modelRenew(c *fakeredis.Call) any {
	lease := c.Args[0]
	outcomes := make([]any, len(c.Keys))
	for i, key := range c.Keys {
		switch held := ask(c, "HEXISTS", key, c.Args[i+1]); {
		case held == int64(1):
			if number(lease) > 0 {
				c.Do("PEXPIRE", key, text(max(c.Int("PTTL", key), number(lease))))
			}
			outcomes[i] = int64(1)
		case c.Do("EXISTS", key) == int64(0):
			outcomes[i] = int64(0)
		default:
			outcomes[i] = int64(-1)
		}
	}
	return outcomes
}

func modelForce(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[1]); late != nil {
		return late
	}
	key, channel, publish := c.Keys[0], c.Keys[1], c.Args[0]
	if alien(c) {
		return otherKind
	} else if c.Int("EXISTS", key) == 0 {
		return int64(0)
	}
	c.Do("DEL", key)
	modelTellFree(c, teller{lineKey(c, 2), channel, publish, arg(c, 2), arg(c, 3), "0", 1, false, 0})
	return int64(1)
}

// alien reports whether the lock is a hash, but not an owner with its hold count.
func alien(c *fakeredis.Call) bool {
	list, _ := c.Do("HGETALL", c.Keys[0]).([]any)
	if len(list) != 2 {
		return len(list) > 0
	}
	return !digits(list[1].(string))
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func modelInfo(c *fakeredis.Call) any {
	if alien(c) {
		return otherKind
	}
	list, _ := c.Do("HGETALL", c.Keys[0]).([]any)
	return append([]any{c.Do("PTTL", c.Keys[0])}, list...)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
