package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// needsMemory tells whether a server without memory may refuse an operation. It runs all others to their end, since the first command of
// their scripts that writes needs no memory.
func needsMemory(set *scriptSet, operation string) bool {
	switch operation {
	case "acquire", "set", "drain", "lease", "pass":
		return true
	case "add":
		return set.kind == "permits"
	case "handover":
		return strings.HasPrefix(set.kind, "fenced") // a token
	}
	return false
}

// full makes c compare with a server that has no memory while the script of a transition runs.
func (c *comparer) full() {
	c.pools = c.pools[:1] // the limit is for all databases
	c.skips = func(t transition) bool {
		// publishBy needs memory, other than PUBLISH, unless the script has written before. A latch is written at the end.
		return needsMemory(c.set, t.by.script) || len(t.said) > 0 && withoutLatches(t.after.keys) == withoutLatches(t.from.keys)
	}
	c.before, c.behind = []resp.Command{resp.Cmd("CONFIG", "SET", "maxmemory", 1)}, []resp.Command{resp.Cmd("CONFIG", "SET", "maxmemory", 0)}
}

func withoutLatches(keys space) string {
	return slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return strings.HasPrefix(k.name, "redisson_unlock_latch:") }).String()
}

// TestServerScriptsWithoutMemory is TestServerScripts on a server without memory, for the operations that need none.
func TestServerScriptsWithoutMemory(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for _, set := range scriptSets {
			t.Run(set.String(), func(t *testing.T) {
				c := newComparer(databases(t, s), set)
				c.full()
				failures := c.run(t.Context(), func(visit func(transition) bool) {
					sample(t, set, sampled/4, visit)
				})
				if len(failures) > 0 {
					t.Error(failures[0])
				}
			})
		}
	})
}

// evalsha is a call of a script that the server has.
func evalsha(s *script.Script, keys []string, args []any) resp.Command {
	words := []any{"EVALSHA", s.Digest(), len(keys)}
	for _, key := range keys {
		words = append(words, key)
	}
	return resp.Cmd(append(words, args...)...)
}
