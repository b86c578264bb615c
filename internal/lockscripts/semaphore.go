package lockscripts

import (
	"strconv"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

const notPermits = fakeredis.Err("WRONGTYPE not a number of permits")

// numberAt is the number in key. there is false without a key; bad: the key holds something else.
func numberAt(c *fakeredis.Call, key string) (n int64, there, bad bool) {
	text, there := c.Do("GET", key).(string)
	if !there {
		return 0, false, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, true, err != nil
}

// remembered is the result of a late change, or the outcome of an earlier request with the same latch.
func remembered(c *fakeredis.Call) (any, bool) {
	if late := tooLate(c, c.Args[len(c.Args)-1]); late != nil {
		return late, true
	}
	text, ok := c.Do("GET", c.Keys[len(c.Keys)-1]).(string)
	return number(text), ok
}

// remember leaves the outcome of a change under its latch, and returns the outcome.
func remember(c *fakeredis.Call, outcome int64) any {
	life := number(c.Args[len(c.Args)-1]) - now(c) + number(c.Args[0])
	c.Do("SET", c.Keys[len(c.Keys)-1], strconv.FormatInt(outcome, 10), "PX", strconv.FormatInt(life, 10))
	return outcome
}

func announce(c *fakeredis.Call, publish string, free int64) {
	c.Do(publish, c.Keys[1], strconv.FormatInt(max(0, free), 10))
}

func modelSemaphoreAcquire(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	key, latch, permits := c.Keys[0], c.Keys[2], number(c.Args[2])
	switch taken, ok := c.Do("GET", latch).(string); {
	case taken == "0":
		return int64(-1)
	case ok:
		within, left := number(c.Args[0]), c.Int("PTTL", latch)
		if left > within/5 {
			left = 2 * within
		}
		c.Do("PEXPIRE", latch, strconv.FormatInt(max(1, left), 10))
		return nil
	}
	free, there, bad := numberAt(c, key)
	switch {
	case bad:
		return notPermits
	case !there && c.Args[3] != "1":
		return fakeredis.Status("unset")
	case !there, free < permits:
		return int64(-1)
	}
	c.Do("DECRBY", key, c.Args[2])
	c.Do("SET", latch, c.Args[2], "PX", strconv.FormatInt(2*number(c.Args[0]), 10))
	return nil
}

func modelSemaphoreUndo(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	key, latch := c.Keys[0], c.Keys[2]
	_, there, bad := numberAt(c, key)
	if bad {
		return notPermits
	}
	taken, ok := c.Do("GET", latch).(string)
	if taken != "0" {
		c.Do("DEL", latch)
	}
	undone(c, c.Keys[2], c.Args[4])
	if !ok || taken == "0" || !there {
		return int64(0)
	}
	announce(c, c.Args[2], c.Int("INCRBY", key, taken))
	return int64(1)
}

func modelSemaphoreInfo(c *fakeredis.Call) any {
	free, there, bad := numberAt(c, c.Keys[0])
	switch {
	case bad:
		return notPermits
	case !there:
		return []any{}
	}
	return []any{free, c.Do("PTTL", c.Keys[0])}
}

func modelSemaphoreSet(c *fakeredis.Call) any {
	if n, ok := remembered(c); ok {
		return n
	}
	_, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notPermits
	}
	if there {
		return remember(c, 0)
	}
	set := []string{"SET", c.Keys[0], c.Args[2]}
	if c.Args[3] != "0" {
		set = append(set, "PX", c.Args[3])
	}
	c.Do(set...)
	c.Do(c.Args[1], c.Keys[1], c.Args[2])
	return remember(c, 1)
}

func modelSemaphoreAdd(c *fakeredis.Call) any {
	if n, ok := remembered(c); ok {
		return n
	}
	_, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notPermits
	}
	if !there && c.Args[3] == "1" {
		return remember(c, 0)
	}
	announce(c, c.Args[1], c.Int("INCRBY", c.Keys[0], c.Args[2]))
	return remember(c, 1)
}

func modelSemaphoreDrain(c *fakeredis.Call) any {
	if n, ok := remembered(c); ok {
		return n
	}
	free, _, bad := numberAt(c, c.Keys[0])
	if bad {
		return notPermits
	}
	if free != 0 {
		c.Do("DECRBY", c.Keys[0], strconv.FormatInt(free, 10))
	}
	return remember(c, free)
}
