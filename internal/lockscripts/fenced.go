package lockscripts

import (
	"strconv"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func fencedToken(c *fakeredis.Call) string { return c.Keys[1] }

// modelDraw draws the next token. The counter stays for life in ms after the time in the token; 0: for ever, -1: tokens without
// a time.
func modelDraw(c *fakeredis.Call, life string) int64 {
	drawn := c.Int("INCR", fencedToken(c))
	if life != "-1" {
		drawn = max(drawn, micros(c))
	}
	if number(life) > 0 {
		c.Do("SET", fencedToken(c), strconv.FormatInt(drawn, 10), "PX", strconv.FormatInt(drawn/1000-now(c)+number(life), 10))
	} else {
		c.Do("SET", fencedToken(c), strconv.FormatInt(drawn, 10))
	}
	return drawn
}

func modelFencedAcquire(c *fakeredis.Call) any {
	key, lease, owner := c.Keys[0], c.Args[0], c.Args[1]
	if late := tooLate(c, c.Args[3]); late != nil {
		return late
	}
	if c.Int("EXISTS", c.Keys[2]) == 1 {
		return int64(-1)
	}
	line, place, stand := lineKey(c, 3), arg(c, 4), arg(c, 5)
	if c.Int("EXISTS", key) == 0 {
		if left, reserved, _ := modelReserved(c, line, place, 0, 1); reserved {
			return modelWaitInLine(c, line, place, stand, left)
		}
		drawn := modelDraw(c, c.Args[2])
		c.Do("HINCRBY", key, owner, "1")
		c.Do("PEXPIRE", key, lease)
		modelGiveWay(c, line, place, stand)
		return []any{int64(1), drawn}
	}
	if c.Int("HEXISTS", key, owner) == 0 {
		return modelWaitInLine(c, line, place, stand, c.Int("PTTL", key))
	}
	token, kept := c.Do("GET", fencedToken(c)).(string)
	if !kept {
		token = strconv.FormatInt(modelDraw(c, c.Args[2]), 10)
	}
	count := c.Int("HINCRBY", key, owner, "1")
	modelGiveWay(c, line, place, stand)
	if c.Int("PTTL", key) < number(lease) {
		c.Do("PEXPIRE", key, lease)
	}
	return []any{count, number(token)}
}

func modelFencedHandover(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[5]); late != nil {
		return late
	}
	if c.Int("EXISTS", c.Keys[3]) == 1 {
		return nil
	}
	if c.Int("HEXISTS", c.Keys[0], c.Args[1]) == 0 {
		return nil
	}
	drawn := modelDraw(c, c.Args[4])
	modelInherit(c)
	return []any{int64(1), drawn}
}

func modelFencedInfo(c *fakeredis.Call) any {
	if alien(c) {
		return otherKind
	}
	token, ok := c.Do("GET", fencedToken(c)).(string)
	if !ok {
		token = "0"
	}
	return append([]any{token}, modelInfo(c).([]any)...)
}

func modelNonReentrantAcquire(c *fakeredis.Call) any {
	key, lease, owner := c.Keys[0], c.Args[0], c.Args[1]
	if late := tooLate(c, c.Args[2]); late != nil {
		return late
	}
	line, place, stand := lineKey(c, 3), arg(c, 3), arg(c, 4)
	switch {
	case c.Int("EXISTS", c.Keys[2]) == 1:
		return int64(-1)
	case c.Int("EXISTS", key) == 0:
		if left, reserved, _ := modelReserved(c, line, place, 0, 1); reserved {
			return modelWaitInLine(c, line, place, stand, left)
		}
		c.Do("HINCRBY", key, owner, "1")
		c.Do("PEXPIRE", key, lease)
		modelGiveWay(c, line, place, stand)
		return nil
	case c.Int("HEXISTS", key, owner) == 1:
		return fakeredis.Status("reentry")
	}
	return modelWaitInLine(c, line, place, stand, c.Int("PTTL", key))
}
