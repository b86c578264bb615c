package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/script"
)

// TestServerScriptFaults leaves out each command and each loop of each script, and turns each condition round. The models of the sets that run
// the script have to notice that, on a server with memory or without it, or else the walks over the scripts with a line, or TestServerVisits: a
// model that agrees with what is broken compares nothing.
func TestServerScriptFaults(t *testing.T) {
	if os.Getenv(exhaustiveEnv) != "1" {
		return
	}
	s := redistest.Start(t, redistest.Options{})
	f := &faults{server: s, pools: databases(t, s), states: map[*scriptSet][]*state{}}
	lines, allowed := 0, 0
	for _, text := range breakableTexts() {
		t.Run(text.title, func(t *testing.T) {
			for _, broken := range text.broken() {
				lines++
				why := allowances[text.title][broken.line]
				if why != "" {
					allowed++
				}
				t.Run(fmt.Sprint("line ", broken.number), func(t *testing.T) {
					switch noticed := f.noticed(t, broken.sources); {
					case noticed && why != "":
						t.Logf("an allowance that this run does not need: %s", broken.line) // the walks take different ways on a slow machine
					case !noticed && why == "":
						t.Errorf("works as well with this line broken: %s", broken.line)
					}
				})
			}
		})
	}
	t.Logf("%d lines broken, %d of them with an allowance", lines, allowed)
}

// allowances say why the scripts may work as well with a line broken, by the title of the script and by the line.
var allowances = map[string]map[string]string{
	"All kinds, line": {
		"for i = 2, #counts, 2 do": "only Valkey 9.1 miscounts; TestServerCountsOfListeners needs the line",
	},
	"Faster multi lock, call": {
		"redis.pcall(publish, channel, '0')":                                        "the walks compare no messages; TestServerWordOfAGroup needs the line",
		"for value in string.gmatch(could and valuesOf(places[i]) or '', '%S+') do": "without it more places are looked at, which could not have their values",
	},
	"Faster multi lock, dead": {
		"for i = 1, #list, 2 do": "no place of the walks is old; TestServerDeadPlaceOfAGroup needs the line",
	},
	"Faster multi lock, acquire": {
		"if marks.words < mostTogether then": "the walks come too seldom to a place that keeps others out; TestServerWordOfAGroup needs the line",
	},
	"Fair lock, undo": {
		"redis.call('lrem', queue, 0, owner) -- one that had the lock as another kind may stand there": "no model has another kind of the lock; " +
			"TestServerFairPlaceAfterAnUndo needs the line",
	},
	"Faster multi lock, undo": {
		"redis.call('hdel', group, '') -- a write that needs no memory: a full server refuses none behind it": "it writes a latch before; the release " +
			"with this text needs the line",
	},
	"Fair lock, acquire": {
		"if stands and redis.call('zrem', timeouts, owner) == 1 then redis.call('lrem', queue, 1, owner) end -- it has the lock as another kind": "no " +
			"model has another kind of the lock; TestServerFairPlaceOfAFurtherHold needs the line",
	},
	"Fair lock, release": {
		"redis.call('hincrby', lock, owner, 1) -- or else a repeat, or an earlier request, would end another hold": withoutRight,
		"redis.call('set', latch, 0, 'px', lifetime) -- refused again: the error of the script":                    withoutRight,
	},
	"Reentrant lock, release": {
		"if rest > 0 then redis.call('hincrby', lock, owner, 1) end -- or else a repeat, or an earlier request, would end another hold": withoutRight,
		"redis.call('set', latch, '0', 'px', lifetime) -- refused again: the error of the script":                                       withoutRight,
	},
	"Permit semaphore, renew": {
		"redis.call('zadd', permits, now, '')": "what it writes is gone behind it; TestServerRenewalsWrite needs the line",
	},
	"Write lock, downgrade": {
		"redis.call('hset', lock, 'mode', 'write', owner, count - 1) -- or else others would read beside the writer": withoutRight,
		"redis.call('hdel', lock, writer) -- refused again: the error of the script":                                 withoutRight,
	},
	"Write lock, leave": {
		"redis.call('hset', lock, 'mode', 'write') -- or else others would read beside the writer": withoutRight,
		"redis.call('hdel', lock, owner) -- refused again: the error of the script":                withoutRight,
	},
	"Write lock, release": {
		"if rest > 0 then redis.call('hset', lock, owner, holds) end -- or else a repeat, or an earlier request, would end another hold": withoutRight,
		"redis.call('set', latch, '0', 'px', lifetime) -- refused again: the error of the script":                                        withoutRight,
	},
	"Read lock, release": {
		"if rest > 0 then redis.call('hset', lock, owner, holds) end -- or else a repeat, or an earlier request, would end another hold": withoutRight,
		"redis.call('set', latch, '0', 'px', lifetime) -- refused again: the error of the script":                                        withoutRight,
		"redis.call('del', latch) -- a write that needs no memory: a full server refuses none behind it": "it deletes the leases of ended holds " +
			"before; the other scripts with this text need the line",
	},
	"Countdown latch, down": {
		"redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done": withoutRight,
		"redis.call('decr', countdown) -- refused again: the error of the script":           withoutRight,
	},
	"Permit semaphore, acquire": {
		"for i = 1, ended do redis.call('zadd', permits, now, string.sub(ids, 1, 16) .. i) end -- for the next acquire to count": withoutRight,
		"redis.call('incrby', semaphore, ended) -- refused again: the error of the script":                                       withoutRight,
		"redis.call('decrby', semaphore, -count) -- nobody has them, and no lease would give them back; this right is there":     withoutRight,
		"redis.call('zadd', permits, ends, id) -- refused again: the error of the script":                                        withoutRight,
	},
	"Permit semaphore, add": {
		"redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done": withoutRight,
		"redis.call('incrby', semaphore, more) -- refused again: the error of the script":   withoutRight,
	},
	"Permit semaphore, force": {
		"redis.call('incrby', semaphore, -taken) -- they stay taken; this right is there": withoutRight,
		"redis.call('del', permits) -- refused again: the error of the script":            withoutRight,
	},
	"Permit semaphore, give": {
		"redis.call('zadd', permits, unpack(taken)) -- else nobody would have them, and they would never come back": withoutRight,
		"redis.call('incrby', semaphore, #taken / 2) -- refused again: the error of the script":                     withoutRight,
	},
	"Permit semaphore, release": {
		"redis.call('zadd', permits, unpack(taken)) -- else nobody would have them, and they would never come back": withoutRight,
		"redis.call('incrby', semaphore, #taken / 2) -- refused again: the error of the script":                     withoutRight,
	},
	"Permit semaphore, undo": {
		"redis.call('zadd', permits, unpack(taken)) -- else nobody would have them, and they would never come back": withoutRight,
		"redis.call('incrby', semaphore, #taken / 2) -- refused again: the error of the script":                     withoutRight,
	},
	"Semaphore, acquire": {
		"redis.call('set', latch, 0, 'px', 1) -- or else an undo would give back what was not taken": withoutRight,
		"redis.call('decrby', semaphore, permits) -- refused again: the error of the script":         withoutRight,
	},
	"Semaphore, add": {
		"redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done":  withoutRight,
		"redis.call('incrby', semaphore, permits) -- refused again: the error of the script": withoutRight,
	},
	"Semaphore, drain": {
		"redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done": withoutRight,
		"redis.call('decrby', semaphore, free) -- refused again: the error of the script":   withoutRight,
	},
	"Semaphore, undo": {
		"redis.call('set', latch, taken, 'px', math.max(life, left)) -- for the repeat of this undo": withoutRight,
		"redis.call('incrby', semaphore, taken) -- refused again: the error of the script":           withoutRight,
	},
}

// withoutRight is the reason for lines that run only for a user who lacks a right.
const withoutRight = "the models have all rights; TestPermitsWithoutRights of package lock or TestServerChangeRefusedHalfway needs the line"

// faults runs broken scripts.
type faults struct {
	server *redistest.Server
	pools  []*conn.Pool
	states map[*scriptSet][]*state
}

// noticed reports whether a model differs from broken scripts, by their intact sources: a few transitions and a walk first, then
// many of both.
func (f *faults) noticed(t *testing.T, broken map[string]*script.Script) bool {
	t.Helper()
	var sets []*scriptSet
	for source := range broken {
		sets = append(sets, setsByScript()[source]...)
	}
	more := 50_000
	if len(broken) > 1 {
		more = 0 // a common text, whose lines are in the walks: no set has a line of processes
	}
	for _, v := range visits {
		if s, _, _, _ := v.call(); broken[s.Source()] != nil && v.run(t, f.server, broken) != v.want {
			return true
		}
	}
	for seed, most := range []int{3000, more, 0} {
		for _, full := range []bool{false, true} {
			for _, set := range sets {
				if f.noticedBy(t, set, broken, full, most/len(sets)) {
					return true
				}
			}
		}
		for _, way := range lineWalks {
			if slices.ContainsFunc(way.scripts(), func(s *script.Script) bool { return broken[s.Source()] != nil }) && f.noticedOnWalk(t, way, uint64(seed), broken) {
				return true
			}
		}
	}
	return false
}

// noticedBy reports whether one of at most so many transitions of a set differs.
func (f *faults) noticedBy(t *testing.T, set *scriptSet, broken map[string]*script.Script, full bool, most int) bool {
	t.Helper()
	if most == 0 {
		return false
	}
	c := newComparer(f.pools, set)
	if full {
		c.full()
	}
	var operations []string
	for operation, intact := range c.scripts {
		if s := broken[intact.Source()]; s != nil {
			c.scripts[operation] = s
			operations = append(operations, operation)
		}
	}
	return operations != nil && len(c.run(t.Context(), func(visit func(transition) bool) {
		f.scatter(set, operations, func(t transition) bool { most--; return visit(t) && most > 0 })
	})) > 0
}

// scatter gives visit all transitions of a set by some operations, in no order: a difference is found soon.
func (f *faults) scatter(set *scriptSet, operations []string, visit func(transition) bool) {
	if f.states[set] == nil {
		random := rand.New(rand.NewPCG(1, 1))
		states := set.explore(func(transition) bool { return true })
		random.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
		f.states[set] = states
	}
	for _, from := range f.states[set] {
		for i := range set.moves {
			if by := &set.moves[i]; slices.Contains(operations, by.script) && !visit(set.step(from, by)) {
				return
			}
		}
	}
}

// noticedOnWalk reports whether the server with broken scripts and the fake with their Go functions go different ways.
func (f *faults) noticedOnWalk(t *testing.T, way *lineWay, seed uint64, broken map[string]*script.Script) (noticed bool) {
	t.Helper()
	t.Run("walk", func(t *testing.T) {
		f.server.Do("FLUSHALL")
		w := newTwin(t, f.server, way.kind, 3)
		w.broken, w.differ = broken, func(string) {}
		noticed = !w.walk(seed, way.steps, way.walker())
	})
	return noticed
}

// breakableText is a script, or a common text.
type breakableText struct {
	title string
	text  string
	in    func(text string) map[string]string // with text in place of the text: the sources of scripts, by their intact ones
}

// breakableTexts are the scripts, and those of the common texts that are broken in all scripts at once.
func breakableTexts() []breakableText {
	var texts []struct{ file, text string }
	for _, file := range []string{"fastermulti_call.lua", "fastermulti_dead.lua", "fastermulti_next.lua", "fastermulti_line.lua", "all_tell.lua", "all_line.lua"} { // names the last
		texts = append(texts, struct{ file, text string }{file, kinds.Texts[file]})
	}
	put := func(source, file, text string) string {
		return strings.Replace(source, "-- "+file+"\n", "-- "+file+"\n"+text, 1)
	}
	all := map[string]string{} // the sources of scripts without these texts, by their sources
	for kind, scripts := range kinds.All() {
		for _, s := range scripts {
			if kind == kinds.Any {
				continue // no set and no walk has them
			}
			own := s.Source()
			for _, common := range slices.Backward(texts) {
				own = strings.Replace(own, common.text, "", 1)
			}
			all[s.Source()] = own
		}
	}
	var list []breakableText
	for source, own := range all {
		list = append(list, breakableText{lockscripts.Title(source), own, func(text string) map[string]string {
			for _, common := range texts {
				text = put(text, common.file, common.text)
			}
			return map[string]string{source: text}
		}})
	}
	for _, broken := range texts {
		list = append(list, breakableText{lockscripts.Title(broken.text), broken.text, func(text string) map[string]string {
			sources := map[string]string{}
			for source, own := range all {
				for _, common := range texts {
					if common.file == broken.file {
						common.text = text
					}
					own = put(own, common.file, common.text)
				}
				if own != source {
					sources[source] = own
				}
			}
			return sources
		}})
	}
	slices.SortFunc(list, func(a, b breakableText) int { return strings.Compare(a.title, b.title) })
	return list
}

// brokenText is a text that differs from its intact one by a line.
type brokenText struct {
	number  int
	line    string
	sources map[string]*script.Script // the scripts with it, by their intact sources
}

var (
	commandLine   = regexp.MustCompile(`^\s*redis\.p?call\(.*\)\s*(--.*)?$`)
	conditionLine = regexp.MustCompile(`^(\s*(?:else)?if )(.*?)( then\b.*)$`)
	loopLine      = regexp.MustCompile(`^(\s*)(?:for|while) .*? do\b`)
	whileLine     = regexp.MustCompile(`(?m)^(\s*while .* do)$`)
	againLine     = regexp.MustCompile(`(?m)^\s*return (?:head|drop)\(`)
)

const again = " again = again + 1 if again > 1000 then error('endless') end "

// broken returns the texts that differ by one line. What that line has kept from going on for ever ends with an error.
func (b breakableText) broken() (list []brokenText) {
	lines := strings.Split(b.text, "\n")
	for i, line := range lines {
		broken := slices.Clone(lines)
		if m := conditionLine.FindStringSubmatch(line); m != nil {
			broken[i] = m[1] + "not (" + m[2] + ")" + m[3]
		} else if commandLine.MatchString(line) {
			broken[i] = ""
		} else if loopLine.MatchString(line) {
			broken[i] = loopLine.ReplaceAllString(line, "${1}while false do")
		} else {
			continue
		}
		sources := map[string]*script.Script{}
		for intact, source := range b.in(strings.Join(broken, "\n")) {
			source = againLine.ReplaceAllString(whileLine.ReplaceAllString(source, "$1"+again), again+"$0")
			sources[intact] = script.New("local again = 0\n" + source)
		}
		list = append(list, brokenText{i + 1, strings.TrimSpace(line), sources})
	}
	return list
}
