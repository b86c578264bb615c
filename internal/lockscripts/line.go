package lockscripts

import (
	"math"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// The line of waiting processes, as in all_line.lua.

const (
	callFor      = 100
	visitFor     = 10
	longVisitFor = 50
	turnLimit    = 10_000
	blindVisit   = 1_000_000
	lineLife     = "25000"
)

// lineKey is the line among the keys of a script, or "".
func lineKey(c *fakeredis.Call, at int) string {
	if at < len(c.Keys) {
		return c.Keys[at]
	}
	return ""
}

// arg is an argument, possibly missing.
func arg(c *fakeredis.Call, at int) string {
	if at >= 0 && at < len(c.Args) {
		return c.Args[at]
	}
	return ""
}

func waitingClient(place string) string {
	id, _, _ := strings.Cut(place, ":")
	return id
}

// lineHead is the first member and its score.
func lineHead(list any) (member string, score int64, ok bool) {
	pair, _ := list.([]any)
	if len(pair) < 2 {
		return "", 0, false
	}
	f, _ := strconv.ParseFloat(pair[1].(string), 64)
	return pair[0].(string), int64(math.Round(f)), true
}

func modelReserved(c *fakeredis.Call, line, id string) (left int64, reserved bool) {
	if line == "" || id == "" {
		return 0, false
	}
	head, score, ok := lineHead(c.TryDo("ZRANGE", line, "0", "0", "WITHSCORES"))
	if !ok || score >= 0 || -score <= now(c) || -score > now(c)+turnLimit {
		return 0, false
	}
	if strings.HasPrefix(head[1:], id) {
		c.Do("ZREM", line, head)
		return 0, false
	}
	return -score - now(c), true
}

func modelWaitInLine(c *fakeredis.Call, line, place, stand string, left int64) any {
	if line == "" || stand == "" {
		return left
	}
	if _, ok := c.TryDo("ZADD", line, "NX", strconv.FormatInt(micros(c), 10), place).(int64); !ok {
		return left
	}
	c.Do("PEXPIRE", line, lineLife)
	if left < 0 {
		return left
	}
	ahead := c.Int("ZRANK", line, place)
	if _, score, _ := lineHead(c.Do("ZRANGE", line, "0", "0", "WITHSCORES")); score < 0 {
		ahead--
	}
	return left + ahead*callFor
}

func modelGiveWay(c *fakeredis.Call, line, place, stand string) {
	switch {
	case line == "":
	case stand == "leave":
		c.TryDo("ZREM", line, place)
	case stand == "move":
		c.TryDo("ZADD", line, strconv.FormatInt(micros(c), 10), place)
		c.Do("PEXPIRE", line, lineLife)
	}
}

func modelStrangers(c *fakeredis.Call, channel, publish string) int64 {
	numsub := "NUMSUB"
	if publish == "SPUBLISH" {
		numsub = "SHARDNUMSUB"
	}
	counts, ok := c.TryDo("PUBSUB", numsub, channel, channel+":lockwire").([]any)
	if !ok {
		return -1
	}
	return counts[1].(int64) - counts[3].(int64)
}

// modelTellFree is tellFree for the lock's channel, which the first key may not name: see modelQuit.
func modelTellFree(c *fakeredis.Call, line, channel, publish, counted, id string) (listeners int64, alone bool) {
	if publish == "" {
		return 0, false
	}
	if line != "" {
		if alone, done := modelCall(c, line, channel, publish, counted, id); done {
			return 1, alone
		}
	}
	told, ok := c.TryDo(publish, channel, "0").(int64)
	return told, ok && told < 2
}

func modelTellPlace(c *fakeredis.Call, channel, publish, place string) any {
	return c.TryDo(publish, channel+":"+waitingClient(place), "0")
}

func modelTellWatcher(c *fakeredis.Call, line, channel, publish string, counted string) bool {
	told, most := 0, 3
	if counted != "0" {
		most = 1
	}
	for _, place := range c.Do("ZRANGE", line, "1", "8").([]any) {
		switch {
		case told == most:
		case place == "*":
		case modelTellPlace(c, channel, publish, place.(string)) != any(int64(0)) || counted == "0":
			told++
		default:
			c.Do("ZREM", line, place.(string))
		}
	}
	return told > 0
}

func modelCall(c *fakeredis.Call, line, channel, publish string, counted string, id string) (alone, done bool) {
	head, score, ok := lineHead(c.TryDo("ZPOPMIN", line))
	if !ok {
		return false, false
	}
	strangers, at := modelStrangers(c, channel, publish), micros(c)
	real := head[0] != '*' && head[0] != '!'
	if strangers > 0 && real {
		c.TryDo("ZADD", line, "NX", strconv.FormatInt(at+1, 10), "*")
	} else if (counted != "1" || strangers < 0) && real {
		c.TryDo("ZADD", line, "NX", strconv.FormatInt(at+blindVisit, 10), "*")
	}
	for ; ok; head, score, ok = lineHead(c.Do("ZPOPMIN", line)) {
		turn, told := int64(callFor), any(int64(0))
		switch {
		case head == "*" && c.Int("ZCARD", line) == 0:
			return false, false
		case head == "*":
			if turn = visitFor; at%4 == 0 {
				turn = longVisitFor
			}
			if strangers != 0 || counted != "1" {
				told = c.TryDo(publish, channel, "0")
			}
		case score >= 0:
			told = modelTellPlace(c, channel, publish, head)
			if parts := strings.Split(head, ":"); len(parts) == 3 {
				turn = number(parts[2])
			}
		}
		n, allowed := told.(int64)
		if !allowed {
			return false, true
		}
		if (n > 0 || counted == "0") && score >= 0 {
			c.TryDo("ZADD", line, strconv.FormatInt(-turn-at/1000, 10), "!"+head)
			c.Do("PEXPIRE", line, lineLife)
			watched := modelTellWatcher(c, line, channel, publish, counted)
			return strangers == 0 && !watched && strings.HasPrefix(head, id), true
		}
	}
	return false, false
}

func modelQuit(c *fakeredis.Call) any {
	line, place := c.Keys[2], c.Args[3]
	if c.TryDo("ZREM", line, place, "!"+place) != any(int64(1)) || c.Int("EXISTS", c.Keys[0]) == 1 {
		return int64(0)
	}
	channel, publish, counted := c.Keys[1], c.Args[0], c.Args[1]
	if _, score, _ := lineHead(c.Do("ZRANGE", line, "0", "0", "WITHSCORES")); -score > now(c) {
		modelTellWatcher(c, line, channel, publish, counted)
	} else {
		modelTellFree(c, line, channel, publish, counted, c.Args[2])
	}
	return int64(1)
}
