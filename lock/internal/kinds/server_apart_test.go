package kinds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// A script preceded by all_apart.lua has the same effects on a node with all keys. On a node that a slot leaves, no key can be
// made: the script makes no latch and wakes nobody; a script that has to make another key fails without an effect.

// apartSource is a script with all_apart.lua in front of it.
func apartSource(s *script.Script) string {
	return kinds.All()[kinds.Any]["apart"].Source() + s.Source()
}

// apartCall returns the KEYS and ARGV of a transition run apart.
func apartCall(t transition, now time.Time, leaving bool) (keys []string, args []any) {
	there := map[string]int{}
	for _, k := range t.from.keys {
		there[k.name] = 1
	}
	var others []any
	for _, name := range t.by.keys[1:] {
		others = append(others, name, there[name])
	}
	for _, k := range t.from.keys {
		if strings.Contains(k.name, ":rwlock_timeout:") && !slices.Contains(t.by.keys, k.name) {
			others = append(others, k.name, 3)
		}
	}
	args = append([]any{now.Add(time.Minute).UnixMilli(), leaving, "", "", len(others) / 2}, others...)
	return t.by.keys[:1], append(args, sent(t.by.args, now)...)
}

// TestServerApart is TestServerScripts where the slot of a lock stays.
func TestServerApart(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for _, set := range scriptSets {
			t.Run(set.String(), func(t *testing.T) {
				c := newComparer(databases(t, s), set)
				for operation, s := range c.scripts {
					c.scripts[operation] = script.New(apartSource(s))
				}
				c.call = func(t transition, now time.Time) resp.Command {
					keys, args := apartCall(t, now, false)
					return evalsha(c.scripts[t.by.script], keys, args)
				}
				failures := c.run(t.Context(), func(visit func(transition) bool) {
					sample(t, set, sampled/4, func(t transition) bool { return t.by.script == "renew" || t.by.script == "end" || visit(t) })
				})
				if len(failures) > 0 {
					t.Error(failures[0])
				}
			})
		}
	})
}

// leaves are the scripts that may run on a node that the slot leaves.
func leaves(set *scriptSet, operation string) bool {
	switch operation {
	case "release", "single", "keep", "lease":
		return true
	case "undo":
		return set.kind != "semaphore"
	case "acquire":
		return slices.Contains([]string{"reentrant", "nonreentrant", "fenced", "fair", "write"}, set.kind)
	}
	return false
}

// TestServerApartLeaving is TestServerScripts on a node that the slot leaves.
func TestServerApartLeaving(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		if proto != 3 {
			return // scripts know no other
		}
		slot, err := c.Masters()[0].Do("CLUSTER", "KEYSLOT", setLock).Int()
		if err != nil {
			t.Fatal(err)
		}
		from := c.Owner(int(slot))
		to := c.Masters()[slices.IndexFunc(c.Masters(), func(s *redistest.Server) bool { return s != from })]
		target, _ := to.Do("CLUSTER", "MYID").Text()
		cfg := from.Config()
		cfg.Conns = 1
		l := &leaver{t: t, pool: redistest.Open(t, cfg), stay: resp.Cmd("CLUSTER", "SETSLOT", slot, "STABLE"),
			leave: resp.Cmd("CLUSTER", "SETSLOT", slot, "MIGRATING", target)}
		for _, set := range scriptSets {
			t.Run(set.String(), func(t *testing.T) {
				l := *l
				l.comparer, l.t = &comparer{set: set, scripts: set.operations()}, t
				sample(t, set, sampled/4, func(tr transition) bool {
					there := slices.ContainsFunc(tr.from.keys, func(k key) bool { return k.name == setLock }) // or it is ASK that is answered
					return !there || tr.after.foreign || !leaves(set, tr.by.script) || l.compare(tr)
				})
			})
		}
	})
}

// leaver compares transitions with a node that the slot of their keys leaves.
type leaver struct {
	*comparer
	t           *testing.T
	pool        *conn.Pool
	stay, leave resp.Command
}

func (l *leaver) compare(t transition) bool {
	l.t.Helper()
	now := time.Now()
	keys, args := apartCall(t, now, true)
	eval := func(source string, keys []string, args ...any) resp.Command {
		words := []any{"EVAL", source, len(keys)}
		for _, key := range keys {
			words = append(words, key)
		}
		return resp.Cmd(append(words, args...)...)
	}
	replies, err := l.pool.SendBatch(l.t.Context(), []resp.Command{
		l.stay, eval(restoreScript.Source(), nil, restoring(t, now)...),
		l.leave, eval(apartSource(l.scripts[t.by.script]), keys, args...),
		l.stay, eval(dumpScript.Source(), nil),
	})
	if err != nil {
		l.t.Error(err)
		return false
	}
	for i, v := range replies {
		if err := v.Err(); err != nil && i != 3 {
			l.t.Error(err)
			return false
		}
	}
	want := l.leaving(t, replies[3])
	if got := l.got(replies[3], replies[5]); got != want {
		l.t.Error(l.shortfall(t, fmt.Sprintf("the node that the slot leaves has\n%s\nthe model\n%s", indent(got), indent(want))))
		return false
	}
	return true
}

// leaving returns t as it is on a node that the slot leaves. The server tells the text of a failure.
func (l *leaver) leaving(t transition, reply resp.Value) string {
	before := func(name string) bool {
		return slices.ContainsFunc(t.from.keys, func(k key) bool { return k.name == name })
	}
	var keys space
	for _, k := range t.after.keys {
		switch {
		case before(k.name):
			keys = append(keys, k)
		case !strings.HasPrefix(k.name, "redisson_unlock_latch:") && !(l.set.kind == "fair" && t.by.script == "undo"): // who loses a place
			return replyText(failure("ERR")) + "\n" + t.from.keys.String()
		}
	}
	text := t.reply
	if t.by.script == "single" && text == "2" {
		text = "1" // nobody is told
	}
	return text + "\n" + keys.String()
}

// A request that is late, or misses a key that existed a moment ago, has no effect and may be repeated. A release of one of
// several holds runs only if the hold count is no less than the caller's: a smaller count is the release's own effect.
func TestServerApartRefuses(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		latch, release := setLatch(0), apartSource(kinds.All()["reentrant"]["release"])
		for name, test := range map[string]struct {
			late         time.Duration
			latchThere   int
			expected     any
			answer, left string // the reply, and the remaining holds of two
		}{
			"in time":             {expected: "", answer: "int 0", left: "1"},
			"too late":            {late: time.Hour, expected: "", answer: "TRYAGAIN", left: "2"},
			"a key is elsewhere":  {latchThere: 1, expected: "", answer: "TRYAGAIN", left: "2"},
			"as many as expected": {expected: 2, answer: "int 0", left: "1"},
			"it was done before":  {expected: 3, answer: "int 0", left: "2"},
			"fewer than expected": {expected: 4, answer: "null", left: "2"},
			"more than expected":  {expected: 1, answer: "int 0", left: "1"},
		} {
			s.Do("FLUSHALL")
			s.Do("HSET", setLock, setOwners[0], 2)
			v, err := s.Try("EVAL", release, 1, setLock, time.Now().Add(time.Minute-test.late).UnixMilli(), 0, setOwners[0], test.expected, 2,
				setChannel, 0, latch, test.latchThere, 30_000, setOwners[0], "PUBLISH", 20_000, 0, soon())
			got := answer(v, err)
			if strings.Contains(got, "TRYAGAIN") {
				got = "TRYAGAIN"
			}
			if left, _ := s.Do("HGET", setLock, setOwners[0]).Text(); got != test.answer || left != test.left {
				t.Errorf("%s: %s, and %s holds are left; want %s and %s", name, got, left, test.answer, test.left)
			}
		}
	})
}

// The error of a user without a right is that of the server, also where a command of several keys is run for each of them.
func TestServerApartWithoutARight(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		if !s.AtLeast(6, 0) {
			return // without users
		}
		s.Do("ACL", "SETUSER", narrow, "on", ">secret", "+@all", "-del", "allkeys")
		cfg := s.Config()
		cfg.Username, cfg.Password = narrow, "secret"
		call := script.New(apartSource(script.New("return redis.call('del', KEYS[1], KEYS[2])")))
		_, err := call.Run(t.Context(), redistest.Open(t, cfg), []string{setLock}, time.Now().Add(time.Minute).UnixMilli(), "0", "", "", 1, setLock, 0)
		if err == nil || !strings.Contains(err.Error(), "command") {
			t.Errorf("Run = %v, want the refusal of the command", err)
		}
	})
}
