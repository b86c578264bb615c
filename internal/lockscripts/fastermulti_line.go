package lockscripts

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// The line of a group, as in fastermulti_line.lua, fastermulti_wait.lua and fastermulti_call.lua.

// A groupLine is the line of a group, as a client asks from a place, or "".
type groupLine struct{ line, place, stand string }

// valuesOf returns the values of a place.
func valuesOf(place string) []string {
	parts := strings.Split(place, ":")
	if len(parts) == 1 {
		return nil
	}
	return strings.Fields(parts[1])
}

// ownerOf returns the Owner who waits in a place, or "".
func ownerOf(place string) string {
	waiter, _ := waiterOf(place)
	if parts := strings.Split(waiter, ":"); len(parts) == 3 {
		return parts[0] + ":" + parts[2]
	}
	return ""
}

// A mark is a turn or a word of others.
type mark struct {
	place string
	word  bool
	left  int64
}

// reservedValues is what the function of all scripts of a group returns.
type reservedValues struct {
	marks []mark
	own   []string
	came  bool
}

// of returns the ms for which a value is reserved, for an owner who asks or waits in a place. Words count only with words.
func (r reservedValues) of(c *fakeredis.Call, value, place, owner string, words bool) int64 {
	left := int64(0)
	for _, m := range r.marks {
		if slices.Contains(valuesOf(m.place), value) && (!m.word || words && m.place != place && !delays(c, owner, m.place)) {
			left = max(left, m.left)
		}
	}
	return left
}

// delays is the function of the scripts.
func delays(c *fakeredis.Call, owner, place string) bool {
	return owner != "" && slices.ContainsFunc(valuesOf(place), func(value string) bool {
		holder, _, ends := valueOf(c, c.Keys[0], value)
		return ends > now(c) && holder == owner
	})
}

func (g groupLine) reserved(c *fakeredis.Call) (r reservedValues) {
	list, _ := c.TryDo("ZRANGE", g.line, "0", strconv.Itoa(2*mostTogether), "WITHSCORES").([]any)
	own, _ := waiterOf(g.place)
	for pair := range slices.Chunk(list, 2) {
		marked := pair[0].(string)
		score, _ := strconv.ParseFloat(pair[1].(string), 64)
		m := mark{marked[1:], marked[0] == '~', -int64(math.Round(score)) - now(c)}
		waiter, _ := waiterOf(m.place)
		switch {
		case score >= 0:
			return r
		case waiter == own:
			r.own = append(r.own, marked)
			r.came = r.came || !m.word && m.left > 0
		case m.left <= 0 || m.left > turnLimit:
			c.Do("ZREM", g.line, marked, m.place)
		default:
			r.marks = append(r.marks, m)
		}
	}
	return r
}

func (g groupLine) endOwn(c *fakeredis.Call, r reservedValues) {
	for _, marked := range r.own {
		c.Do("ZREM", g.line, marked)
		if g.stand != "" && marked[1:] != g.place {
			c.Do("ZREM", g.line, marked[1:])
		}
	}
}

func (r reservedValues) words() (n int) {
	for _, m := range r.marks {
		if m.word {
			n++
		}
	}
	return n
}

// inFront returns how many places in front want a value of the place.
func (g groupLine) inFront(c *fakeredis.Call) (ahead int64) {
	list, _ := c.Do("ZRANGE", g.line, "0", "-1").([]any)
	list = slices.DeleteFunc(list, func(v any) bool { return strings.ContainsAny(v.(string)[:1], "!~") })
	for _, other := range list[:min(len(list), mostSeen+1)] {
		if other == g.place {
			break
		}
		if haveCommon(valuesOf(other.(string)), valuesOf(g.place)) {
			ahead++
		}
	}
	return ahead
}

// wait is waitForValues.
func (g groupLine) wait(c *fakeredis.Call, left int64, r reservedValues) any {
	if g.stand == "" {
		return left
	}
	if g.line == "" {
		return min(left, permitLook)
	}
	if _, placed := c.TryDo("ZADD", g.line, "NX", arrival(g.place, micros(c)), g.place).(int64); !placed {
		return min(left, permitLook)
	}
	g.endOwn(c, r)
	c.Do("PEXPIRE", g.line, lineLife)
	if ahead := g.inFront(c); ahead > 0 || len(valuesOf(g.place)) == 1 {
		return min(left, permitLook) + min(ahead, mostAhead)*callFor
	}
	since, at := scoreAt(c, g.line, c.Int("ZRANK", g.line, g.place)), now(c)
	if since > float64(at) {
		since = float64(at)
		c.Do("ZADD", g.line, text(at), g.place)
	}
	if !sharing(since, at, keepsValues) {
		return min(left, nextLook)
	}
	waited, phase := phaseAt(since, at, keepsValues)
	rest := max(1, phase-waited%phase)
	if r.words() < mostTogether {
		_, turn := waiterOf(g.place)
		c.TryDo("ZADD", g.line, text(-min(nextFor, rest+turn)-at), "~"+g.place)
	}
	return min(left, nextLook, rest)
}

// A groupCaller tells of free values.
type groupCaller struct{ group, line, channel, publish, counted string }

func (g groupCaller) tellVisitors(c *fakeredis.Call) bool {
	listening := modelStrangers(c, g.channel, g.publish)
	if listening <= 0 {
		if listening == 0 && g.counted == "1" {
			return false
		}
		if rank, ok := c.TryDo("ZRANK", g.line, "*").(int64); ok && float64(micros(c))-scoreAt(c, g.line, rank) < blindVisit {
			return false
		}
		c.TryDo("ZADD", g.line, text(micros(c)), "*")
	}
	c.TryDo(g.publish, g.channel, "0")
	return listening > 0
}

func (g groupCaller) fits(c *fakeredis.Call, place string, r reservedValues) bool {
	for _, value := range valuesOf(place) {
		holder, _, ends := valueOf(c, g.group, value)
		if ends > now(c) && holder != ownerOf(place) || r.of(c, value, place, ownerOf(place), true) > 0 {
			return false
		}
	}
	return true
}

// endDead is the function of the script.
func (g groupCaller) endDead(c *fakeredis.Call) {
	if g.counted == "0" {
		return
	}
	at := now(c)
	long := 1000 * (at - 25_000)
	old := c.Int("ZCOUNT", g.line, "0", text(long))
	if old == 0 {
		return
	}
	rank := c.Int("ZCOUNT", g.line, "-inf", "(0") + at%old
	list, _ := c.Do("ZRANGE", g.line, text(rank), text(rank+fewPlaces-1), "WITHSCORES").([]any)
	var dead []string
	for pair := range slices.Chunk(list, 2) {
		since, _ := strconv.ParseFloat(pair[1].(string), 64)
		if pair[0] != "*" && since <= float64(long) && (since > float64(at) || since <= float64(at-25_000)) {
			dead = append(dead, pair[0].(string))
		}
	}
	teller{line: g.line, channel: g.channel, publish: g.publish, counted: g.counted}.endUnheard(c, dead)
}

// callFor is callForValues.
func (g groupCaller) callFor(c *fakeredis.Call, values []string) {
	_, isLine := c.TryDo("ZCOUNT", g.line, "-inf", "(0").(int64)
	if !isLine || g.line == "" || c.Int("EXISTS", g.line) == 0 {
		c.TryDo(g.publish, g.channel, "0")
		return
	}
	if g.tellVisitors(c) {
		return
	}
	teller{line: g.line}.sinceNow(c, micros(c))
	g.endDead(c)
	r, open := groupLine{line: g.line}.reserved(c), slices.Clone(values)
	var lacking []string
	at := c.Int("ZCOUNT", g.line, "-inf", "(0")
	places, _ := c.Do("ZRANGE", g.line, text(at), text(at+mostSeen-1), "WITHSCORES").([]any)
	for pair := range slices.Chunk(places, 2) {
		place := pair[0].(string)
		since, _ := strconv.ParseFloat(pair[1].(string), 64)
		wanted := valuesOf(place)
		if len(open) == 0 || len(r.marks)-r.words() >= mostTogether {
			return
		}
		if !haveCommon(wanted, open) {
			lacking = append(lacking, wanted...)
			continue
		}
		sign := ""
		marked := slices.ContainsFunc(r.marks, func(m mark) bool { return m.place == place })
		switch {
		case g.fits(c, place, r):
			sign = "!"
		case len(wanted) == 1 || marked || haveCommon(wanted, lacking) || r.words() >= mostTogether:
		case since > float64(now(c)):
			c.Do("ZADD", g.line, text(now(c)), place)
		case sharing(since, now(c), keepsValues):
			sign = "~"
		}
		if sign != "" {
			waiter, turn := waiterOf(place)
			told, allowed := tellWaiter(c, g.publish, g.channel+":"+waiter, "0", g.counted)
			switch {
			case !allowed:
				return
			case told == 0 && g.counted != "0":
				c.Do("ZREM", g.line, place, "~"+place)
				continue
			}
			c.Do("ZREM", g.line, "~"+place)
			c.TryDo("ZADD", g.line, text(-turn-now(c)), sign+place)
			r.marks = append(r.marks, mark{place, sign == "~", turn})
		}
		if sign == "!" {
			open = slices.DeleteFunc(open, func(v string) bool { return slices.Contains(wanted, v) })
		}
		lacking = append(lacking, wanted...)
	}
}

// haveCommon reports whether two lists have a value in common.
func haveCommon(some, others []string) bool {
	return slices.ContainsFunc(some, func(v string) bool { return slices.Contains(others, v) })
}

func modelFasterMultiQuit(c *fakeredis.Call) any {
	line, place := c.Keys[2], c.Args[3]
	if ended, ok := c.TryDo("ZREM", line, place, "!"+place, "~"+place).(int64); !ok || ended == 0 {
		return int64(0)
	}
	if c.Int("EXISTS", line) == 1 {
		groupCaller{c.Keys[0], line, c.Keys[1], c.Args[0], c.Args[1]}.callFor(c, valuesOf(place))
	}
	return int64(1)
}
