package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// narrow is a user with the right to the keys of a single call.
const narrow = "narrow"

// keyRules are the ACL rules for the KEYS of a call, the lists in place of channels and, of a read-write lock, the leases of other
// readers. A caller without an Owner has one hold, and no call about others.
func keyRules(t transition, reads bool) []any {
	rules := []any{"ACL", "SETUSER", narrow, "resetkeys"}
	for _, key := range t.by.keys {
		rules = append(rules, "~"+key)
	}
	for _, message := range t.said {
		rules = append(rules, "~"+message.channel)
	}
	for _, reader := range setOwners {
		if reads && !slices.Contains(t.by.keys, lockscripts.TimeoutKey(setLock, reader, 2)) {
			rules = append(rules, "~"+strings.TrimSuffix(lockscripts.TimeoutKey(setLock, reader, 1), "1")+"*")
		}
	}
	return rules
}

// TestServerScriptKeys runs the scripts of each kind as a user with the right to KEYS alone, and to the leases of other readers:
// the effects are the same.
func TestServerScriptKeys(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		if !s.AtLeast(6, 0) {
			return // without users
		}
		s.Do("ACL", "SETUSER", narrow, "on", ">secret", "+@all")
		if s.AtLeast(6, 2) {
			s.Do("ACL", "SETUSER", narrow, "allchannels")
		}
		for _, set := range scriptSets {
			t.Run(set.String(), func(t *testing.T) {
				cfg := s.Config()
				cfg.DB, cfg.Timeout = 1, time.Minute
				all := redistest.Open(t, cfg)
				cfg.Username, cfg.Password = narrow, "secret"
				k := &keyTest{comparer: newComparer(databases(t, s), set), all: all, one: redistest.Open(t, cfg)}
				seed := uint64(time.Now().UnixNano())
				first := &state{model: set.start, keys: set.start.keys()}
				for i := range set.moves {
					k.visit(t, set.step(first, &set.moves[i]))
				}
				set.walk(rand.New(rand.NewPCG(seed, 1)), 300, func(step transition) bool { return k.visit(t, step) })
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
		}
	})
}

type keyTest struct {
	*comparer
	all, one *conn.Pool
}

func (k *keyTest) visit(t *testing.T, step transition) bool {
	if step.by.script == "" {
		return true
	}
	var restore []any
	now := time.Now()
	for _, command := range step.from.keys.restore(now) {
		restore = append(append(restore, len(command)), command...)
	}
	if _, err := restoreScript.Run(t.Context(), k.all, nil, restore...); err != nil {
		t.Error(err)
		return false
	}
	if _, err := k.all.Send(t.Context(), resp.Cmd(keyRules(step, k.set.kind == "read" || k.set.kind == "write")...)); err != nil {
		t.Error(err)
		return false
	}
	calls := []script.Call{k.scripts[step.by.script].Call(step.by.keys, sent(step.by.args, now)...)}
	replies, err := script.RunBatch(t.Context(), k.one, calls)
	if err != nil {
		t.Error(err)
		return false
	}
	dump, err := dumpScript.Run(t.Context(), k.all, nil)
	if err != nil {
		t.Error(err)
		return false
	}
	if got := k.got(replies[0], dump); got != step.want() {
		problem := fmt.Sprintf("%v %v by a user with a right to KEYS has\n%s\nand not\n%s", step.by.keys, step.by.args, indent(got), indent(step.want()))
		t.Error(k.shortfall(step, problem))
		return false
	}
	return true
}

// A script without the right to the leases of other readers leaves the lease of the lock as long as it is.
func TestServerReadersUnknown(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		if !s.AtLeast(6, 0) {
			return // without users
		}
		const reader, other = "client:0", "client:1"
		mine, theirs := lockscripts.TimeoutKey(setLock, reader, 1), lockscripts.TimeoutKey(setLock, other, 1)
		keys := []string{setLock, setReadWrite, setWriters, mine, "latch"}
		rules := []any{"ACL", "SETUSER", narrow, "on", ">secret", "+@all", "resetkeys"}
		for _, key := range keys {
			rules = append(rules, "~"+key)
		}
		s.Do(rules...)
		cfg := s.Config()
		cfg.Username, cfg.Password = narrow, "secret"
		pool := redistest.Open(t, cfg)
		scripts := kinds.All()["read"]
		for name, run := range map[string]func() (resp.Value, error){
			"release": func() (resp.Value, error) {
				return scripts["release"].Run(t.Context(), pool, keys, 0, reader, "PUBLISH", 30_000, 0, soon())
			},
			"undo": func() (resp.Value, error) {
				return scripts["undo"].Run(t.Context(), pool, keys, 0, reader, "PUBLISH", 0, soon(), 0)
			},
		} {
			for _, other := range []string{other, ""} {
				s.Do("FLUSHALL")
				s.Do("HSET", setLock, "mode", "read", reader, 1)
				s.Do("SET", mine, 1, "PX", 100_000)
				if other != "" {
					s.Do("HSET", setLock, other, 1)
					s.Do("SET", theirs, 1, "PX", 50_000)
				}
				s.Do("PEXPIRE", setLock, 100_000)
				if v, err := scripts["info"].Run(t.Context(), pool, keys[:3]); err != nil || v.Len() < 5 {
					t.Errorf("info = %v, %v", v, err)
				}
				v, err := run()
				if n, bad := v.Int(); err != nil || bad != nil || n != 1 {
					t.Errorf("%s = %v, %v", name, v, err)
				}
				held, _ := s.Do("HEXISTS", setLock, reader).Int()
				left, _ := s.Do("PTTL", setLock).Int()
				if kept := left > 60_000; held != 0 || kept != (other != "") {
					t.Errorf("after the %s of a reader beside %q the lock lasts for %d ms, with it as a reader: %d", name, other, left, held)
				}
			}
		}
	})
}
