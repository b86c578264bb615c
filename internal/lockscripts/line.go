package lockscripts

import (
	"math"
	"slices"
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
	mostTurns    = 8
	blindVisit   = 1_000_000
	permitVisit  = 50_000
	permitLook   = 1000
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

// lineTurns is what turnsIn of all_line.lua returns for the beginning of a line.
type lineTurns struct {
	waits  bool // the line has a member
	called map[string]int64
	count  int64
	first  int64 // ms for which the first turn lasts
	came   bool
}

func modelTurns(c *fakeredis.Call, line, place string, free int64) (t lineTurns) {
	list, _ := c.TryDo("ZRANGE", line, "0", strconv.Itoa(mostTurns-1), "WITHSCORES").([]any)
	t.waits, t.called = len(list) > 0, map[string]int64{}
turns:
	for pair := range slices.Chunk(list, 2) {
		member, at := pair[0].(string), now(c)
		f, _ := strconv.ParseFloat(pair[1].(string), 64)
		left := -int64(math.Round(f)) - at
		switch whose := member[1:]; {
		case f >= 0:
			break turns
		case place != "" && strings.HasPrefix(whose, waitingClient(place)):
			t.came = true
			c.Do("ZREM", line, member)
			if whose != place || whose == "*" {
				c.Do("ZREM", line, whose)
			}
		case left <= 0 || left > turnLimit:
			c.Do("ZREM", line, member, whose)
		default:
			t.called[whose] = left
			t.count++
		}
	}
	if t.called["*"] > 0 && t.count > free {
		c.Do("ZREM", line, "!*", "*")
		delete(t.called, "*")
		t.count--
	}
	for _, left := range t.called {
		if t.first == 0 || left < t.first {
			t.first = left
		}
	}
	return t
}

func modelReserved(c *fakeredis.Call, line, place string, spare, free int64) (left int64, reserved bool, turns lineTurns) {
	if line == "" || place == "" {
		return 0, false, turns
	}
	turns = modelTurns(c, line, place, free)
	if left = turns.first; turns.count == 0 {
		left = -1
	}
	return left, turns.count > spare, turns
}

func modelWaitInLine(c *fakeredis.Call, line, place, stand string, left int64, most ...int64) any {
	if line == "" || stand == "" {
		return left
	}
	added, ok := c.TryDo("ZADD", line, "NX", strconv.FormatInt(micros(c), 10), place).(int64)
	if !ok {
		return left
	}
	if added == 0 {
		c.Do("ZREM", line, "!"+place)
	}
	c.Do("PEXPIRE", line, lineLife)
	if len(most) > 0 && (left < 0 || left > most[0]) {
		left = most[0]
	}
	if left < 0 {
		return left
	}
	return left + max(0, c.Int("ZRANK", line, place)-2*c.Int("ZCOUNT", line, "-inf", "(0"))*callFor
}

func modelGiveWay(c *fakeredis.Call, line, place, stand string) {
	switch {
	case line == "":
	case stand == "leave":
		c.TryDo("ZREM", line, place, "!"+place)
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

// A teller is the part of a script that tells others what is free.
type teller struct {
	line, channel, publish, counted, id string
	message                             string
	available                           int64
	counts                              bool  // permits
	before                              int64 // what was available before, of permits
}

// modelTellFree is tellFree.
func modelTellFree(c *fakeredis.Call, t teller) (listeners int64, alone bool) {
	if t.publish == "" {
		return 0, false
	}
	if t.line != "" {
		if lined, alone := t.callNext(c, ""); lined {
			return 1, alone
		}
	}
	told, ok := c.TryDo(t.publish, t.channel, t.message).(int64)
	return told, ok && told < 2
}

// tell is the function call of all_line.lua.
func (t teller) tell(c *fakeredis.Call, place string, others, at int64) (told any, turn int64) {
	if place != "*" {
		turn = callFor
		if parts := strings.Split(place, ":"); len(parts) == 3 {
			turn = number(parts[2])
		}
		return c.TryDo(t.publish, t.channel+":"+waitingClient(place), t.message), turn
	}
	if turn = visitFor; at/1000%4 == 0 {
		turn = longVisitFor
	}
	if others != 0 || t.counted != "1" {
		return c.TryDo(t.publish, t.channel, t.message), turn
	}
	return int64(0), turn
}

func (t teller) visit(c *fakeredis.Call, others, at int64) {
	pause := int64(1)
	if t.counts {
		pause = permitVisit
	}
	if others > 0 {
		c.TryDo("ZADD", t.line, "NX", strconv.FormatInt(at+pause, 10), "*")
	} else if t.counted != "1" || others < 0 {
		c.TryDo("ZADD", t.line, "NX", strconv.FormatInt(at+blindVisit, 10), "*")
	}
}

// places are those from a rank on.
func (t teller) places(c *fakeredis.Call, at int64) []any {
	list, _ := c.Do("ZRANGE", t.line, text(at), text(at+mostTurns)).([]any)
	return list
}

func (t teller) callNext(c *fakeredis.Call, behind string) (lined, alone bool) {
	turns := modelTurns(c, t.line, "", t.before)
	if !turns.waits {
		return false, false
	}
	others, at, rank := modelStrangers(c, t.channel, t.publish), micros(c), turns.count
	if behind != "" {
		if place, ok := c.Do("ZRANK", t.line, behind).(int64); ok {
			rank = place + 1
		}
	}
	places, watchers := t.places(c, rank), 0
	calls := turns.count < min(t.available, mostTurns)
	alone = others == 0 && turns.count == 0
	switch {
	case turns.count == 0 && behind == "" && (len(places) == 0 || len(places) == 1 && places[0] == "*"):
		c.Do("ZREM", t.line, "*")
		return false, false
	case len(places) > 0 && places[0] != "*":
		t.visit(c, others, at)
	}
	for ; len(places) > 0; places = t.places(c, rank) {
		for _, place := range places {
			place := place.(string)
			if turns.called[place] > 0 || place == "*" && !calls {
				rank++
				continue
			}
			told, turn := t.tell(c, place, others, at)
			n, allowed := told.(int64)
			switch {
			case !allowed:
				return true, false
			case n == 0 && t.counted != "0":
				c.Do("ZREM", t.line, place)
			case calls:
				c.TryDo("ZADD", t.line, strconv.FormatInt(-turn-at/1000, 10), "!"+place)
				c.Do("PEXPIRE", t.line, lineLife)
				rank += 2
				turns.count++
				calls = false
				alone = alone && strings.HasPrefix(place, t.id)
			default:
				rank++
				if watchers++; t.counted != "0" || watchers == 3 {
					return true, false
				}
			}
		}
	}
	return turns.count > 0 || behind != "", alone && turns.count == 1 && watchers == 0
}

func modelQuit(c *fakeredis.Call) any {
	line, place, counts := c.Keys[2], c.Args[3], c.Args[4] == "1"
	if ended, ok := c.TryDo("ZREM", line, place, "!"+place).(int64); !ok || ended == 0 {
		return int64(0)
	}
	free, message := 1-c.Int("EXISTS", c.Keys[0]), "0"
	if counts {
		value, _ := c.TryDo("GET", c.Keys[0]).(string)
		free, message = number(value), value
	}
	if free < 1 || c.Int("EXISTS", line) == 0 {
		return int64(0)
	}
	modelTellFree(c, teller{line, c.Keys[1], c.Args[0], c.Args[1], c.Args[2], message, free, counts, map[bool]int64{true: free}[counts]})
	return int64(1)
}
