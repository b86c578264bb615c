package lockscripts

import "github.com/lockwire/lockwire/internal/fakeredis"

func modelLeaderPublish(c *fakeredis.Call) any {
	record := c.Keys[0]
	if len(c.Keys) > 1 {
		if c.Int("HEXISTS", c.Keys[1], c.Args[0]) == 0 {
			return int64(0)
		}
	} else if former, _ := c.Do("HGET", record, "token").(string); number(former) > number(c.Args[2]) {
		return int64(0)
	}
	c.Do("HSET", record, "owner", c.Args[0], "address", c.Args[1], "since", text(now(c)), "token", c.Args[2])
	return int64(1)
}

func modelLeaderWithdraw(c *fakeredis.Call) any {
	if owner, _ := c.Do("HGET", c.Keys[0], "owner").(string); owner != c.Args[0] {
		return int64(0)
	}
	return c.Do("DEL", c.Keys[0])
}
