package lockscripts

import (
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// How a release calls the next in the line, as in all_line.lua.

// A teller is the part of a script that tells waiting clients what is free.
type teller struct {
	line, channel, publish, counted, id string
	message                             string
	available                           float64
	known                               bool    // before is said
	before                              float64 // what was available before, unless a lock is freed
}

// Who waits, as a release tells its client.
const (
	someone     = 1
	nobody      = 2
	noListener  = 3
	visitorsToo = 4
)

// modelTellFree is tellFree.
func modelTellFree(c *fakeredis.Call, t teller) (waiting int64) {
	if t.publish == "" {
		return someone
	}
	waiting = nobody
	if t.line != "" {
		var lined bool
		if lined, waiting = t.callNext(c, ""); lined {
			if t.available > 0 && t.available < 1 && modelStrangers(c, t.channel, t.publish) > 0 {
				c.TryDo(t.publish, t.channel, t.message)
			}
			return waiting
		}
	}
	switch told, ok := c.TryDo(t.publish, t.channel, t.message).(int64); {
	case waiting != nobody:
		return waiting
	case !ok || told > 1:
		return someone
	case told == 0:
		return noListener
	}
	return nobody
}

// freed is the result of a release that frees a lock, when waiting do.
func freed(waiting int64) int64 {
	if waiting == visitorsToo {
		return visitorsToo
	}
	return 1
}

// tell is the function call of all_line.lua.
func (t teller) tell(c *fakeredis.Call, place string, others, at int64) (told, turn int64, allowed bool) {
	channel := t.channel
	if place != "*" {
		var waiter string
		waiter, turn = waiterOf(place)
		channel += ":" + waiter
	} else if others == 0 && t.counted == "1" {
		return 0, 0, true
	}
	if place == "*" {
		told, allowed = c.TryDo(t.publish, channel, t.message).(int64)
		return told, turn, allowed
	}
	told, allowed = tellWaiter(c, t.publish, channel, t.message, t.counted)
	return told, turn, allowed
}

// tellWaiter is the function of all_line.lua.
func tellWaiter(c *fakeredis.Call, publish, channel, message, counted string) (told int64, allowed bool) {
	if publish == "PUBLISH" && counted != "0" {
		if listening, _, known := listenersOf(c, publish, channel, channel); known && listening == 0 {
			return 0, true
		}
	}
	told, allowed = c.TryDo(publish, channel, message).(int64)
	return told, allowed
}

func (t teller) letVisitorsIn(c *fakeredis.Call, first string, others, at int64) {
	if others > 0 {
		c.TryDo("ZADD", t.line, "NX", arrival(first, at+1), "*")
	} else if t.counted != "1" || others < 0 {
		c.TryDo("ZADD", t.line, "NX", arrival(first, at+blindVisit), "*")
	}
}

// visitAlone is the function of all_line.lua.
func (t teller) visitAlone(c *fakeredis.Call, later bool, others, at int64) {
	switch {
	case others <= 0 || t.known && t.before > 0:
		c.Do("ZREM", t.line, "*")
	case t.available >= 1 && !later:
		c.Do("PEXPIRE", t.line, text(t.visit(c, others, at, visitTurn(at))))
	}
}

// visit is the function of all_line.lua.
func (t teller) visit(c *fakeredis.Call, others, at, turn int64) (ms int64) {
	pause := 1000 * turn
	switch {
	case others <= 0:
		pause = blindVisit
	case t.known:
		pause = permitVisit
	}
	c.TryDo("ZADD", t.line, strconv.FormatInt(-turn-at/1000, 10), "!*")
	c.TryDo("ZADD", t.line, text(at+1000*turn+pause), "*")
	return turn + pause/1000
}

// sinceNow is the function of all_line.lua.
func (t teller) sinceNow(c *fakeredis.Call, at int64) {
	list, _ := c.Do("ZRANGEBYSCORE", t.line, text(at+1000*turnLimit), text(manyPermits)).([]any)
	for i, place := range list {
		c.TryDo("ZADD", t.line, arrival(place.(string), at+int64(i)+1), place.(string))
	}
}

// comeForward is the function of all_line.lua.
func (t teller) comeForward(c *fakeredis.Call, visitors int64, turns lineTurns) (longer float64) {
	rank, ok := c.Do("ZRANK", t.line, "*").(int64)
	if !ok || turns.of["*"] > 0 {
		return 1
	}
	front, others := rank-2*turns.count, max(1, c.Int("ZCOUNT", t.line, "0", text(manyPermits))-turns.count-1)
	if front > 0 && front*visitors <= others*(visitors-1) {
		c.TryDo("ZADD", t.line, text(int64(scoreAt(c, t.line, turns.count))-1), "*")
	}
	return max(1, min(2, float64(visitors)/float64(others)))
}

func visitTurn(at int64) int64 {
	if at/1000%4 == 0 {
		return longVisitFor
	}
	return visitFor
}

// mark is markFor.
func (t teller) mark(place string, need float64, turns lineTurns) string {
	switch {
	case turns.count >= mostTurns:
	case turns.reserved+need <= t.available:
		return "!"
	case t.available > 0 && t.available < 1 && need == 1 && turns.reserved < 1 && place != "*":
		return "~"
	}
	return ""
}

// places are those from a rank on.
func (t teller) places(c *fakeredis.Call, at int64) []any {
	list, _ := c.Do("ZRANGE", t.line, text(at), text(at+mostTurns)).([]any)
	for len(list) > 0 && list[len(list)-1].(string)[0] == '=' {
		list = list[:len(list)-1]
	}
	return list
}

func (t teller) callNext(c *fakeredis.Call, behind string) (lined bool, waiting int64) {
	lined, alone, visitors := t.call(c, behind)
	switch {
	case alone:
		return lined, nobody
	case visitors:
		return lined, visitorsToo
	}
	return lined, someone
}

// call is callNext. It reports whether nobody else waits, and whether visitors do.
func (t teller) call(c *fakeredis.Call, behind string) (lined, alone, visitors bool) {
	turns := modelTurns(c, t.line, "", t.before, t.available, 0)
	others, at, rank := modelStrangers(c, t.channel, t.publish), micros(c), turns.count
	if !turns.waits && others <= 0 || turns.wrong {
		return false, true, false
	}
	t.sinceNow(c, at)
	if turns.of["*"] > 0 && t.known && t.available > t.before && others != 0 {
		c.TryDo(t.publish, t.channel, t.message)
	}
	if behind != "" {
		if place, ok := c.Do("ZRANK", t.line, behind).(int64); ok {
			rank = place + 1
		}
	}
	places := t.places(c, rank)
	switch {
	case turns.count == 0 && behind == "" && (len(places) == 0 || len(places) == 1 && places[0] == "*"):
		t.visitAlone(c, turns.later, others, at)
		return false, others <= 0, others > 0
	case len(places) > 0 && places[0] != "*":
		t.letVisitorsIn(c, places[0].(string), others, at)
	case len(places) == 0 && behind != "":
		t.letVisitorsIn(c, behind, others, at)
		places = t.places(c, rank)
	}
	visit := visitTurn(at)
	if others > 1 && behind == "" {
		visit = int64(float64(visit) * t.comeForward(c, others, turns))
		places = t.places(c, rank)
	}
	var over []string // behind lets others in
	if behind != "" && c.Do("ZRANK", t.line, behind) != nil && needOf(c, t.line, behind) > max(1, t.available) {
		over = []string{behind}
	}
	told := t.callPlaces(c, places, rank, turns, others, at, visit, over)
	t.endUnheard(c, told.passed)
	watched := told.watchers > 0 || told.next
	t.tellVisitors(c, told.called != "" && told.called != "*", watched, others, at)
	alone = others == 0 && turns.count == 0 && told.called != "" && strings.HasPrefix(told.called, t.id) && !watched && len(told.passed) == 0
	return told.called != "" || turns.count > 0 || behind != "" || watched || len(told.passed) > 0, alone, others > 0
}

// A call is what callPlaces of all_line.lua returns.
type call struct {
	called   string // place
	watchers int
	next     bool     // enough watch, or a place is next
	passed   []string // places
}

func (t teller) callPlaces(c *fakeredis.Call, places []any, rank int64, turns lineTurns, others, at, visit int64, over []string) (told call) {
	told.passed = over
	told.next = t.available > 0 && t.available < 1 && turns.reserved >= 1 // only readers are told
	for ; len(places) > 0 && len(told.passed) < mostPassed; places = t.places(c, rank) {
		for _, place := range places {
			place, mark := place.(string), ""
			need := needOf(c, t.line, place)
			if told.called == "" && told.watchers == 0 {
				mark = t.mark(place, need, turns)
			}
			lacks := need > max(1, t.available)
			switch {
			case lacks && (len(told.passed) > 0 || sharing(t.score(c, place), at/1000, keepsBack)):
				rank++
				told.passed = append(told.passed, place)
				continue
			case lacks && turns.of[place] > 0:
				told.next = true
				return told
			}
			told.next = told.next || mark == "~" && lettingIn(t.score(c, place), at/1000)
			if turns.of[place] > 0 || place == "*" && mark == "" || told.next && need >= 1 {
				rank++
				continue
			}
			n, turn, allowed := t.tell(c, place, others, at)
			switch {
			case !allowed:
				told.next = true
				return told
			case n == 0 && t.counted != "0":
				c.Do("ZREM", t.line, place, "="+place)
			case place == "*":
				t.visit(c, others, at, visit)
				c.Do("PEXPIRE", t.line, lineLife)
				rank++
				told.called = place
			case mark != "":
				if mark == "~" {
					turn, told.next = nextFor, true
				}
				c.TryDo("ZADD", t.line, strconv.FormatInt(-turn-at/1000, 10), mark+place)
				c.Do("PEXPIRE", t.line, lineLife)
				rank += 2
				told.called = place
			default:
				rank++
				if lacks && turns.awaited == 0 {
					c.TryDo("ZADD", t.line, strconv.FormatInt(-turn-at/1000, 10), "~"+place)
				}
				if told.watchers++; t.counted != "0" || told.watchers == 3 || lacks {
					told.next = true
					return told
				}
			}
		}
	}
	return told
}

// endUnheard is the function of all_line.lua.
func (t teller) endUnheard(c *fakeredis.Call, places []string) {
	if t.counted == "0" {
		return
	}
	for _, place := range places {
		waiter, _ := waiterOf(place)
		if _, listening, known := listenersOf(c, t.publish, t.channel, t.channel+":"+waiter); known && listening == 0 {
			c.Do("ZREM", t.line, place, "~"+place, "="+place)
		}
	}
}

func (t teller) score(c *fakeredis.Call, place string) float64 {
	text, _ := c.Do("ZSCORE", t.line, place).(string)
	score, _ := strconv.ParseFloat(text, 64)
	return score
}

// tellVisitors tells visitors beside the called process.
func (t teller) tellVisitors(c *fakeredis.Call, called, watched bool, others, at int64) {
	if called && others != 0 && t.available >= 1 && (!watched || t.known && t.available > t.before) {
		t.tell(c, "*", others, at)
	}
}
