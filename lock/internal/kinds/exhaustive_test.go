package kinds_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/script"
)

// The scripts of each kind are run from every state that its model can be in, by TestServerScripts: restore the state on a
// server, run one operation, compare reply, messages and the whole keyspace with what the model says.
//
// A kind takes part by a scriptSet in the list scriptSets, in a file exhaustive_<kind>_test.go; exhaustive_reentrant_test.go has
// the plain one, with parts that others may use: latches, exclusive, acceptsHold, acceptsLatch. A scriptSet has
//   - a model: a small struct that says what the kind's state means (who holds, how often, for how long, what stands in the
//     line), not which commands its scripts run;
//   - moves: each operation with each choice of arguments that makes a difference, as KEYS and ARGV of the script and as
//     what it does to the model;
//   - a limit, since hold counts and lines grow for ever otherwise;
//   - accepts: what Redisson's own scripts expect of the keys and messages they find.
//
// Times are counted in steps of ten seconds. A span in ARGV is sent as milliseconds; in a state it is a key's remaining life,
// rounded up. Points in time are texts made by at and atMicro: steps from the server's present, as the value of a string, a
// field or a score, or in ARGV. Large integers in replies, and runs of 13 or 16 digits in texts, are turned into the same. Scripts are
// given publishBy in place of PUBLISH, so that a message is found as an element of a list that is named for its channel.
//
// Besides the moves of the kind there are two that happen by themselves from each state: a step of time passes, and a
// key expires before its time. Moves marked foreign are somebody else's doing, such as a key of another type: what
// scripts answer then is compared too, but the rules of accepts end there. TestScriptSets wants each script of each kind in some
// set, and TestServerScriptFaults wants each command, condition and loop of each script to make a difference to some set that runs it, or
// to the walks over the scripts with a line, which no set has.

const (
	stepTime  = 10 * time.Second
	stepMS    = int64(stepTime / time.Millisecond)
	publishBy = "RPUSH"
)

// span is a time in steps.
type span int

// at is a point in time in epoch milliseconds, so many steps from the server's present.
func at(steps span) string { return "@" + strconv.Itoa(int(steps)) }

// atMicro is at in epoch microseconds.
func atMicro(steps span) string { return "@@" + strconv.Itoa(int(steps)) }

// model is a state of what a kind has on the server.
type model interface {
	clone() model
	keys() space
	pass()             // a step of time
	expire(key string) // which is there and has a life
}

// move is something that happens.
type move struct {
	name    string   // as a failure shows it
	script  string   // the operation; "" happens to the state without a script
	keys    []string // KEYS
	args    []any    // ARGV
	foreign bool
	do      func(m model) (reply any, said []message) // see replyText for what reply may be
}

type message struct{ channel, payload string }

// scriptSet is a kind with its model.
type scriptSet struct {
	kind    string // in lock.Scripts
	name    string // of this way to look at the kind; "" if there is one
	start   model
	moves   []move
	within  func(m model) bool // states to go on from; those beyond are compared and left there
	accepts func(keys space, said []message) error
	values  func(text string) string // rewrites values that no model can foresee; nil: none
}

// operations are the scripts of the kind that the set has moves for.
func (s *scriptSet) operations() map[string]*script.Script {
	all := maps.Clone(kinds.All()[s.kind])
	maps.DeleteFunc(all, func(operation string, _ *script.Script) bool {
		return !slices.ContainsFunc(s.moves, func(m move) bool { return m.script == operation })
	})
	return all
}

func (s *scriptSet) String() string { return strings.TrimSuffix(s.kind+" "+s.name, " ") }

// status is a reply such as +OK, failure an error reply of that class.
type (
	status  string
	failure string
)

// replyText is a reply as text: nil, int, span, string, status, failure, or a list of such.
func replyText(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case span:
		return fmt.Sprintf("%d steps", v)
	case string:
		return strconv.Quote(v)
	case status:
		return "+" + string(v)
	case failure:
		return "!" + string(v)
	case []any:
		var list []string
		for _, e := range v {
			list = append(list, replyText(e))
		}
		return "[" + strings.Join(list, " ") + "]"
	}
	return fmt.Sprint(v)
}

// space is a keyspace: a list of keys, in any order.
type space []key

// key has parts as the server lists them: a hash its fields and values in turn, a sorted set its members and scores.
type key struct {
	name, kind string
	life       span // 0: for ever
	parts      []string
}

func (k key) text() string {
	if k.kind == "hash" || k.kind == "zset" {
		pairs := make([]string, 0, len(k.parts)/2)
		for i := 0; i+1 < len(k.parts); i += 2 {
			pairs = append(pairs, strconv.Quote(k.parts[i])+"="+k.parts[i+1])
		}
		slices.Sort(pairs)
		return fmt.Sprintf("%s %s for %d: %s", k.kind, k.name, k.life, strings.Join(pairs, " "))
	}
	return fmt.Sprintf("%s %s for %d: %q", k.kind, k.name, k.life, k.parts)
}

func (keys space) String() string {
	lines := make([]string, 0, len(keys))
	for _, k := range keys {
		lines = append(lines, k.text())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// restore returns the commands that make keys, on a server whose time is now.
func (keys space) restore(now time.Time) [][]any {
	var commands [][]any
	for _, k := range keys {
		command := []any{map[string]string{"hash": "HSET", "string": "SET", "list": "RPUSH", "zset": "ZADD", "set": "SADD"}[k.kind], k.name}
		for i := range k.parts {
			part := absolute(k.parts[i], now)
			if k.kind == "zset" { // ZADD wants them the other way round
				part = absolute(k.parts[i^1], now)
			}
			command = append(command, part)
		}
		commands = append(commands, command)
		if k.life != 0 {
			commands = append(commands, []any{"PEXPIRE", k.name, int64(k.life)*stepMS - 1})
		}
	}
	return commands
}

// absolute turns at and atMicro into numbers. One millisecond less keeps what is rounded up where it is.
func absolute(part string, now time.Time) string {
	micro, ok := strings.CutPrefix(part, "@@")
	if ok {
		n, _ := strconv.ParseInt(micro, 10, 64)
		return strconv.FormatInt(now.UnixMicro()+(n*stepMS-1)*1000, 10)
	}
	if words := strings.Split(part, " "); len(words) > 1 {
		for i := range words {
			words[i] = absolute(words[i], now)
		}
		return strings.Join(words, " ")
	}
	if milli, ok := strings.CutPrefix(part, "@"); ok {
		n, _ := strconv.ParseInt(milli, 10, 64)
		return strconv.FormatInt(now.UnixMilli()+n*stepMS-1, 10)
	}
	return part
}

// relative is the opposite: each run of 13 or 16 digits in text is a point in time.
func relative(text string, now time.Time) string {
	for start := 0; start < len(text); start++ {
		end := start
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		if n := end - start; n == 13 || n == 16 {
			value, _ := strconv.ParseInt(text[start:end], 10, 64)
			point := at(steps(value - now.UnixMilli()))
			if n == 16 {
				point = atMicro(steps((value - now.UnixMicro() + 999) / 1000))
			}
			return text[:start] + point + relative(text[end:], now)
		}
		start = end
	}
	return text
}

// steps rounds milliseconds up.
func steps(ms int64) span {
	n := ms / stepMS
	if ms > 0 && ms%stepMS != 0 {
		n++
	}
	return span(n)
}

// state is a state that has been reached, and how.
type state struct {
	model   model
	keys    space
	from    *state
	by      *move
	foreign bool
}

// path is the moves that lead to s.
func (s *state) path() []*move {
	var list []*move
	for ; s.from != nil; s = s.from {
		list = append(list, s.by)
	}
	slices.Reverse(list)
	return list
}

// transition is a move from a state, and what the model makes of it.
type transition struct {
	from  *state
	by    *move
	after *state
	reply string
	said  []message
}

// want is what a server should have: the reply, the messages and the keyspace.
func (t transition) want() string {
	return t.reply + "\n" + append(lists(t.said), t.after.keys...).String()
}

// step takes a move.
func (s *scriptSet) step(from *state, by *move) transition {
	next := &state{model: from.model.clone(), from: from, by: by, foreign: from.foreign || by.foreign}
	reply, said := by.do(next.model)
	next.keys = next.model.keys()
	return transition{from, by, next, replyText(reply), said}
}

// lists is what messages become with publishBy.
func lists(said []message) space {
	var keys space
	for _, m := range said {
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == m.channel })
		if i < 0 {
			i, keys = len(keys), append(keys, key{name: m.channel, kind: "list"})
		}
		keys[i].parts = append(keys[i].parts, m.payload)
	}
	return keys
}

// around returns the moves that happen by themselves from a state.
func around(from *state) []*move {
	list := []*move{{name: "a step of time passes", do: func(m model) (any, []message) { m.pass(); return nil, nil }}}
	for _, k := range from.keys {
		if k.life > 0 {
			list = append(list, &move{name: k.name + " expires", do: func(m model) (any, []message) { m.expire(k.name); return nil, nil }})
		}
	}
	return list
}

// check reports what Redisson would not accept of what t leaves.
func (s *scriptSet) check(t transition) error {
	if t.after.foreign || s.accepts == nil {
		return nil
	}
	return s.accepts(t.after.keys, t.said)
}

// explore gives visit every transition there is, breadth first, until it returns false: first those from states that only the
// kind's own scripts and time have made, then the others. It returns the states.
func (s *scriptSet) explore(visit func(t transition) bool) []*state {
	first := &state{model: s.start, keys: s.start.keys()}
	known := map[string]bool{first.keys.String(): true}
	line := []*state{first}
	for _, foreign := range []bool{false, true} {
		for i := 0; i < len(line); i++ {
			from := line[i]
			list := around(from)
			if foreign && !from.foreign {
				list = nil // taken in the first pass
			}
			for j := range s.moves {
				if m := &s.moves[j]; foreign && (m.foreign || from.foreign) || !foreign && !m.foreign {
					list = append(list, m)
				}
			}
			for _, by := range list {
				t := s.step(from, by)
				if !visit(t) {
					return line
				}
				text := t.after.keys.String()
				if !known[text] && (s.within == nil || s.within(t.after.model)) {
					known[text] = true
					line = append(line, t.after)
				}
			}
		}
	}
	return line
}

// walk gives visit n transitions of walks at random.
func (s *scriptSet) walk(random *rand.Rand, n int, visit func(t transition) bool) {
	first := &state{model: s.start, keys: s.start.keys()}
	at := first
	for depth := 0; n > 0; depth++ {
		if depth > 40 || s.within != nil && !s.within(at.model) {
			at, depth = first, 0
		}
		by := &s.moves[random.IntN(len(s.moves))]
		if others := around(at); random.IntN(8) == 0 {
			by = others[random.IntN(len(others))]
		} else if by.foreign && random.IntN(4) != 0 {
			continue
		} else {
			n--
		}
		t := s.step(at, by)
		if !visit(t) {
			return
		}
		at = t.after
	}
}

// shorten leaves out of a path what is not needed to come to the same state.
func (s *scriptSet) shorten(path []*move) []*move {
	end := func(path []*move) string {
		at := &state{model: s.start, keys: s.start.keys()}
		for _, by := range path {
			if strings.HasSuffix(by.name, " expires") && !slices.ContainsFunc(at.keys, func(k key) bool { return by.name == k.name+" expires" }) {
				return "impossible"
			}
			if s.within != nil && !s.within(at.model) {
				return "impossible"
			}
			at = s.step(at, by).after
		}
		return at.keys.String()
	}
	want := end(path)
	for i := 0; i < len(path); {
		if without := slices.Delete(slices.Clone(path), i, i+1); end(without) == want {
			path, i = without, 0
		} else {
			i++
		}
	}
	return path
}

// explain is the report of a transition that went another way than the model says.
func (s *scriptSet) explain(t transition, problem string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\nafter", s, problem)
	for _, by := range s.shorten(t.from.path()) {
		fmt.Fprintf(&b, "\n    %s", by.name)
	}
	fmt.Fprintf(&b, "\nwhich leaves\n    %s\nthen\n    %s", strings.ReplaceAll(t.from.keys.String(), "\n", "\n    "), t.by.name)
	return b.String()
}
