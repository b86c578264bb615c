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
	uncalled     = 10_000
	mostTurns    = 8
	blindVisit   = 1_000_000
	permitVisit  = 40_000
	permitLook   = 1000
	nextFor      = 1000
	nextLook     = 500
	readLook     = 1000
	keepsOut     = 3000
	keepsBack    = 2000
	keepsValues  = 32
	longestBack  = 8000
	letsIn       = 2000
	inFront      = 1_000_000_000_000
	lineLife     = "25000"
	manyPermits  = 5_000_000_000_000_000
	mostPassed   = 100
	mostTogether = 100
	mostAhead    = 10
	mostSeen     = 1000
	fewPlaces    = 20
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

// share is the part of a lock that all readers have together, and that the turn of a reader reserves.
const share = 1.0 / 64

// waiterOf returns the waiter in a place, and the ms of its turn.
func waiterOf(place string) (waiter string, turn int64) {
	parts := strings.Split(place, ":")
	if n := len(parts); n > 2 && isNumber(parts[n-1]) && isNumber(parts[n-2]) {
		return strings.Join(parts[:n-2], ":"), number(parts[n-1])
	}
	return parts[0], callFor
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func needOf(c *fakeredis.Call, line, place string) float64 {
	if strings.Contains(place, ":r:") {
		return share
	}
	if noted, ok := c.Do("ZSCORE", line, "="+place).(string); ok {
		return float64(number(noted) - manyPermits)
	}
	return 1
}

func arrival(place string, at int64) string {
	if strings.Contains(place, ":w:") {
		at -= inFront
	}
	return strconv.FormatInt(at, 10)
}

// lineTurns is what turnsIn of all_line.lua returns for the beginning of a line.
type lineTurns struct {
	waits    bool   // the line has a member
	more     bool   // and not only the place of visitors
	wrong    bool   // the key is no line
	later    bool   // visitors have a place for later
	head     string // the first place of a process, of those that want no more than one
	of       map[string]int64
	count    int64
	reserved float64
	awaited  float64 // permits for which a place with a word waits
	first    int64   // ms for which the first turn lasts
	came     bool
	ended    bool // a turn of others has ended
	visited  bool // a turn of visitors has ended, and no further one
}

func modelTurns(c *fakeredis.Call, line, place string, free, available, spare float64) (t lineTurns) {
	list, ok := c.TryDo("ZRANGE", line, "0", strconv.Itoa(mostTurns), "WITHSCORES").([]any)
	t.waits, t.wrong, t.of = len(list) > 0, !ok, map[string]int64{}
	t.more = len(list) > 2 || t.waits && list[0] != "*"
	if i := slices.Index(list, any("*")); i >= 0 {
		score, _ := strconv.ParseFloat(list[i+1].(string), 64)
		t.later = int64(score) > 1000*now(c)
	}
	own, _ := waiterOf(place)
	for pair := range slices.Chunk(list, 2) {
		mark, at := pair[0].(string), now(c)
		f, _ := strconv.ParseFloat(pair[1].(string), 64)
		left := -int64(math.Round(f)) - at
		whose := mark[1:]
		waiter, _ := waiterOf(whose)
		lasts, mine, need := left > 0 && left <= turnLimit, own != "" && waiter == own, float64(0)
		if f < 0 {
			need = needOf(c, line, whose)
		}
		switch {
		case f >= 0 && mark == "*":
			continue
		case f >= 0:
			if f < manyPermits && t.head == "" && needOf(c, line, mark) <= 1 {
				t.head = mark
			}
		case mine && lasts && need < 1:
			t.came = true
		case mine && lasts && whose != place && (mark[0] == '~' || spare < 0 && strings.HasSuffix(place, ":0")):
			// another waiter of this client is still next, or called
		case mine:
			t.came = t.came || need >= 1
			c.Do("ZREM", line, mark, "="+whose)
			if whose != place || whose == "*" {
				c.Do("ZREM", line, whose)
			}
		case !lasts:
			if whose == "*" && t.later {
				c.Do("ZREM", line, mark)
			} else {
				c.Do("ZREM", line, mark, whose, "="+whose)
			}
			t.visited, t.ended = !t.ended && whose == "*", true
		case mark[0] == '~' && need <= available:
			c.Do("ZREM", line, mark)
		default:
			t.of[whose] = left
			t.count++
			if mark[0] == '~' && need > 1 {
				t.awaited += need
			} else {
				t.reserved += need
			}
		}
	}
	if t.of["*"] > 0 && t.reserved > free {
		c.Do("ZREM", line, "!*", "*")
		delete(t.of, "*")
		t.count--
		t.reserved--
	}
	for _, left := range t.of {
		if t.first == 0 || left < t.first {
			t.first = left
		}
	}
	return t
}

// headFirst is the function of all_line.lua.
func (t *lineTurns) headFirst(c *fakeredis.Call, line, place string) {
	head, turn := waiterOf(t.head)
	own, _ := waiterOf(place)
	if t.head == "" || head == own {
		return
	}
	c.TryDo("ZADD", line, strconv.FormatInt(-turn-now(c), 10), "!"+t.head)
	t.of[t.head], t.count, t.reserved, t.first = turn, 1, needOf(c, line, t.head), turn
}

func modelReserved(c *fakeredis.Call, line, place string, spare, free float64) (left int64, reserved bool, turns lineTurns) {
	if line == "" || place == "" {
		return 0, false, turns
	}
	turns = modelTurns(c, line, place, free, 0, spare)
	if turns.count == 0 && turns.visited && !turns.came && spare == 0 && free == 1 {
		turns.headFirst(c, line, place)
	}
	if left = turns.first; turns.count == 0 {
		left = -1
	}
	reserved = turns.reserved > spare || !turns.came && turns.reserved+turns.awaited > spare
	return left, reserved, turns
}

// lettingIn is the function of all_line.lua.
func lettingIn(since float64, ms int64) bool {
	waited := ms - int64(min(since, math.MaxInt64/2))
	for out := int64(keepsOut); waited >= out; out *= 2 {
		open := max(letsIn, out/2)
		if waited -= out; waited < open {
			return true
		}
		waited -= open
	}
	return false
}

// phaseAt is the function of all_line.lua.
func phaseAt(since float64, ms, out int64) (waited, phase int64) {
	waited = ms - int64(min(since, math.MaxInt64/2))
	for ; out < longestBack && waited >= 2*out; out *= 2 {
		waited -= 2 * out
	}
	return waited, out
}

// sharing is the function of all_line.lua.
func sharing(since float64, ms, atFirst int64) bool {
	waited, out := phaseAt(since, ms, atFirst)
	return waited >= 0 && waited%(2*out) >= out
}

// scoreAt is the score of the member of a line at a rank.
func scoreAt(c *fakeredis.Call, line string, rank int64) float64 {
	pair, _ := c.Do("ZRANGE", line, text(rank), text(rank), "WITHSCORES").([]any)
	score, _ := strconv.ParseFloat(pair[1].(string), 64)
	return score
}

// modelNext is becomeNext.
func modelNext(c *fakeredis.Call, line, place string, beside *lineTurns, permits bool) (next, keeps bool) {
	marks := c.Int("ZCOUNT", line, "-inf", "(0")
	list, _ := c.Do("ZRANGE", line, text(marks), text(marks+mostTurns+1), "WITHSCORES").([]any)
	since := math.Inf(1)
	for pair := range slices.Chunk(list, 2) {
		other := pair[0].(string)
		if other == place {
			since, _ = strconv.ParseFloat(pair[1].(string), 64)
			break
		}
		if other != "*" && !(beside.of[other] > 0 && (permits && beside.awaited == 0 || needOf(c, line, other) < 1)) {
			return false, false
		}
	}
	at := now(c)
	if since > float64(at) {
		c.Do("ZADD", line, text(at), place)
	}
	lets := lettingIn(since, at)
	if permits {
		lets = sharing(since, at, keepsBack)
	}
	if keeps = !lets; keeps {
		c.Do("ZADD", line, strconv.FormatInt(-nextFor-at, 10), "~"+place)
	}
	return true, keeps
}

func modelWaitInLine(c *fakeredis.Call, line, place, stand string, left int64) any {
	again, _ := modelWaitAs(c, line, place, stand, left, wait{})
	return again
}

// A wait is how a refused client waits in line.
type wait struct {
	most   int64      // ms to its next look; 0 for any
	beside *lineTurns // turns of others, for a writer refused because of readers

	permits int64 // refused, if any
}

func modelWaitAs(c *fakeredis.Call, line, place, stand string, left int64, w wait) (again int64, keeps bool) {
	if line == "" || stand == "" {
		return left, keeps
	}
	added, ok := c.TryDo("ZADD", line, "NX", arrival(place, micros(c)), place).(int64)
	if !ok {
		return left, keeps
	}
	if added == 0 {
		c.Do("ZREM", line, "!"+place, "~"+place, "="+place)
	}
	if w.permits > 1 {
		c.TryDo("ZADD", line, text(manyPermits+w.permits), "="+place)
	}
	c.Do("PEXPIRE", line, lineLife)
	if w.beside != nil {
		next := false
		if next, keeps = modelNext(c, line, place, w.beside, w.permits > 0); next {
			w.most = nextLook
		}
	}
	if w.most > 0 && (left < 0 || left > w.most) {
		left = w.most
	}
	if left < 0 {
		return left, keeps
	}
	return left + max(0, c.Int("ZRANK", line, place)-2*c.Int("ZCOUNT", line, "-inf", "(0"))*callFor, keeps
}

func modelGiveWay(c *fakeredis.Call, line, place, stand string) {
	switch {
	case line == "":
	case stand == "leave":
		c.TryDo("ZREM", line, place, "!"+place, "~"+place, "="+place)
	case stand == "move":
		c.TryDo("ZADD", line, arrival(place, micros(c)), place)
		c.Do("PEXPIRE", line, lineLife)
	}
}

func modelStrangers(c *fakeredis.Call, channel, publish string) int64 {
	all, ours, known := listenersOf(c, publish, channel, channel+":lockwire")
	if !known {
		return -1
	}
	return max(0, all-ours)
}

func listenersOf(c *fakeredis.Call, publish, one, other string) (ofOne, ofOther int64, known bool) {
	numsub := "NUMSUB"
	if publish == "SPUBLISH" {
		numsub = "SHARDNUMSUB"
	}
	counts, ok := c.TryDo("PUBSUB", numsub, one, other).([]any)
	if !ok {
		return 0, 0, false
	}
	return counts[1].(int64), counts[3].(int64), true
}

// admitReader is the function of all_line.lua.
func (t teller) admitReader(c *fakeredis.Call, place, stand string, turns lineTurns, first bool) {
	modelGiveWay(c, t.line, place, stand)
	if !turns.more || turns.reserved >= 1 && stand != "leave" {
		return
	}
	if stand == "move" && !turns.came && turns.count < mostTurns {
		_, turn := waiterOf(place)
		c.Do("ZADD", t.line, strconv.FormatInt(-turn-now(c), 10), "!"+place)
	}
	if first {
		modelTellFree(c, t)
	} else {
		t.callNext(c, "")
	}
}

// availableOf is how much of a lock is available.
func availableOf(c *fakeredis.Call, lock string) float64 {
	if mode, _ := c.TryDo("HGET", lock, "mode").(string); mode == "read" {
		return 1 - share
	}
	return float64(1 - c.Int("EXISTS", lock))
}

func modelQuit(c *fakeredis.Call) any {
	line, place, counts := c.Keys[2], c.Args[3], c.Args[4] == "1"
	list, _ := c.TryDo("ZRANGE", line, "0", "8").([]any)
	if ended, ok := c.TryDo("ZREM", line, place, "!"+place, "~"+place, "="+place).(int64); !ok || ended == 0 {
		return int64(0)
	}
	free, message := availableOf(c, c.Keys[0]), "0"
	if counts {
		value, _ := c.TryDo("GET", c.Keys[0]).(string)
		free, message = float64(number(value)), value
	}
	if !counts && free <= 0 {
		return modelTellOfLease(c, list, place)
	}
	if free <= 0 || c.Int("EXISTS", line) == 0 {
		return int64(0)
	}
	modelTellFree(c, teller{line, c.Keys[1], c.Args[0], c.Args[1], c.Args[2], message, free, true, free})
	return int64(1)
}

// modelTellOfLease tells the process behind the first place of a line, which has ended, to ask.
func modelTellOfLease(c *fakeredis.Call, list []any, place string) any {
	channel, publish, counted := c.Keys[1], c.Args[0], c.Args[1]
	list = slices.DeleteFunc(list, func(v any) bool { return strings.ContainsAny(v.(string)[:1], "!~*=") })
	if publish == "" {
		return int64(0)
	}
	if left, _ := c.TryDo("PTTL", c.Keys[0]).(int64); left < 0 || left > uncalled || len(list) == 0 || list[0] != place {
		return int64(0)
	}
	for _, other := range list[1:] {
		waiter, _ := waiterOf(other.(string))
		if told, allowed := tellWaiter(c, publish, channel+":"+waiter, "2", counted); told != 0 || !allowed || counted == "0" {
			return int64(1)
		}
	}
	return int64(0)
}
