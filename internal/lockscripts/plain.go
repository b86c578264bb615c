package lockscripts

import (
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func modelPlainAcquire(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[2]); late != nil {
		return late
	}
	if c.Int("EXISTS", c.Keys[1]) == 1 {
		return int64(-1)
	}
	switch holder, taken := c.Do("GET", c.Keys[0]).(string); {
	case !taken:
		c.Do("SET", c.Keys[0], c.Args[1], "PX", c.Args[0])
		return nil
	case holder == c.Args[1]:
		return fakeredis.Status("reentry")
	}
	return c.Do("PTTL", c.Keys[0])
}

func modelPlainRelease(c *fakeredis.Call) any {
	return plainEnd(c, func(key string) { c.Do("DEL", key) })
}

func modelPlainKeep(c *fakeredis.Call) any {
	return plainEnd(c, func(key string) {
		c.Do("PEXPIRE", key, c.Args[0])
		c.Do("SET", key, c.Args[6], "PX", c.Args[0])
	})
}

// plainEnd applies end to the key of an owner's lock.
func plainEnd(c *fakeredis.Call, end func(key string)) any {
	key, latch, owner := c.Keys[0], c.Keys[2], c.Args[1]
	life, answer, known := released(c, latch)
	if known {
		return answer
	}
	if holder, _ := c.Do("GET", key).(string); holder != owner {
		return unheld(c, latch, life)
	}
	end(key)
	c.Do("SET", latch, "1", "PX", life)
	return int64(1)
}

func modelPlainUndo(c *fakeredis.Call) any {
	key, owner, before := c.Keys[0], c.Args[1], c.Args[3]
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if undone(c, c.Keys[2], c.Args[4]) {
		return int64(0)
	}
	if number(before) > 0 {
		return int64(0)
	}
	if holder, _ := c.Do("GET", key).(string); holder != owner {
		return int64(0)
	}
	c.Do("DEL", key)
	return int64(1)
}

func modelPlainRenew(c *fakeredis.Call) any {
	outcomes := make([]any, len(c.Keys))
	for i, key := range c.Keys {
		switch holder := ask(c, "GET", key); holder {
		case c.Args[i+1]:
			if lease := number(c.Args[0]); lease > 0 {
				c.Do("PEXPIRE", key, text(max(c.Int("PTTL", key), lease)))
			}
			outcomes[i] = int64(1)
		case nil:
			outcomes[i] = int64(0)
		default:
			outcomes[i] = int64(-1)
		}
	}
	return outcomes
}

func modelPlainForce(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[1]); late != nil {
		return late
	}
	if holder := c.Do("GET", c.Keys[0]); holder == nil {
		return int64(0)
	} else if digits(strings.TrimPrefix(holder.(string), "-")) {
		return otherKind
	}
	return c.Do("DEL", c.Keys[0])
}

func modelPlainInfo(c *fakeredis.Call) any {
	holder := c.Do("GET", c.Keys[0])
	if holder == nil {
		return []any{int64(-2)}
	} else if digits(strings.TrimPrefix(holder.(string), "-")) {
		return otherKind
	}
	return []any{c.Do("PTTL", c.Keys[0]), holder, int64(1)}
}
