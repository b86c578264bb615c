package lockscripts

import "github.com/lockwire/lockwire/internal/fakeredis"

func modelCountdownAcquire(c *fakeredis.Call) any {
	count, _, bad := numberAt(c, c.Keys[0])
	switch {
	case bad:
		return notNumber
	case count <= 0:
		return nil
	}
	return c.Do("PTTL", c.Keys[0])
}

func modelCountdownSet(c *fakeredis.Call) any {
	o := outcome{c.Keys[2], c.Args[len(c.Args)-1]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	_, there, bad := numberAt(c, c.Keys[0])
	switch {
	case bad:
		return notNumber
	case there:
		return o.remember(c, 0)
	}
	c.Do("SET", c.Keys[0], c.Args[2])
	c.Do(c.Args[1], c.Keys[1], "1")
	return o.remember(c, 1)
}

func modelCountdownDown(c *fakeredis.Call) any {
	o := outcome{c.Keys[2], c.Args[len(c.Args)-1]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	count, _, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	c.Do("DEL", o.latch)
	done := o.remember(c, max(0, count-1))
	if count > 1 {
		o.change(c, "DECR", c.Keys[0])
		return done
	}
	c.Do("DEL", c.Keys[0])
	if count == 1 {
		c.Do(c.Args[1], c.Keys[1], "0")
	}
	return done
}

func modelCountdownDelete(c *fakeredis.Call) any {
	o := outcome{c.Keys[2], c.Args[len(c.Args)-1]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	_, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	c.Do("DEL", o.latch)
	if !there {
		return o.remember(c, 0)
	}
	done := o.remember(c, 1)
	c.Do("DEL", c.Keys[0])
	c.Do(c.Args[1], c.Keys[1], "1")
	c.Do(c.Args[1], c.Keys[1], "0")
	return done
}
