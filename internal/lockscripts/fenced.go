package lockscripts

import (
	"strconv"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func fencedToken(c *fakeredis.Call) string { return c.Keys[1] }

// modelDraw draws the next token. The counter stays for life in ms after the time in the token; 0: for ever, -1: tokens without
// a time.
func modelDraw(c *fakeredis.Call, life string) string {
	drawn := c.Int("INCR", fencedToken(c))
	if life != "-1" {
		drawn = max(drawn, micros(c))
	}
	if number(life) > 0 {
		c.Do("SET", fencedToken(c), strconv.FormatInt(drawn, 10), "PX", strconv.FormatInt(drawn/1000-now(c)+number(life), 10))
	} else {
		c.Do("SET", fencedToken(c), strconv.FormatInt(drawn, 10))
	}
	return text(drawn)
}

func modelFencedAcquire(c *fakeredis.Call) any {
	draw := func() string { return modelDraw(c, c.Args[2]) }
	reply, again := modelTake(c, 2, 4, draw)
	if !again {
		return reply
	}
	shared := c.Args[3]
	if drawn := c.Do("GET", fencedToken(c)); shared == "0" || drawn != nil && drawn != any(shared) {
		shared = draw()
	}
	return []any{furtherHold(c, 2, 4), shared}
}

func modelFencedHandover(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[6]); late != nil {
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
