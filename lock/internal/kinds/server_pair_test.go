package kinds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/script"
)

// pairCall is a call of a script of a pair: an acquire and a release.
type pairCall struct {
	operation string
	keys      []string
	args      []any
}

// pair is a lock that nobody waits for, with the number of commands that the scripts of its acquire and release run.
type pair struct {
	kind     string
	before   []any // a command that makes what the pair needs
	calls    [2]pairCall
	commands int
}

// pairs returns pairs whose scripts publish by a command.
func pairs(publish string) map[string]pair {
	const lock, channel, line, owner, id = "{pair}", "channel", "lockwire_line:{pair}", "client:1", "0123456789abcdef"
	latches := [2]string{"redisson_unlock_latch:{pair}:1", "redisson_unlock_latch:{pair}:2"}
	keys := func(operation int, own ...string) []string { return append(own, latches[operation], line) }
	place, leaves := []any{"client:1:100"}, []any{"1", "client", "", ""}
	single := []any{owner, publish, "1"}
	if publish == "PUBLISH" {
		single = single[:1]
	}
	with := func(args []any, more ...any) []any { return append(args, more...) }
	reads := func(operation int) []string {
		return []string{lock, channel, "writers", lockscripts.TimeoutKey(lock, owner, 1), latches[operation], line}
	}
	fair := func(operation int) []string {
		return []string{lock, channel, "queue", "timeouts", "idle", latches[operation]}
	}
	read := [2]pairCall{
		{"acquire", reads(0), with([]any{60_000, owner, 0, soon()}, with(place, "join", "1", publish)...)},
		{"release", reads(1), with([]any{0, owner, publish, 20_000, 0, 0}, leaves...)},
	}
	return map[string]pair{
		"reentrant": {"reentrant", nil, [2]pairCall{
			{"acquire", keys(0, lock), with([]any{60_000, owner, soon()}, place...)},
			{"single", keys(1, lock, channel), single},
		}, 8},
		"reentrant of an Owner": {"reentrant", nil, [2]pairCall{
			{"acquire", keys(0, lock), with([]any{60_000, owner, soon()}, place...)},
			{"release", keys(1, lock, channel), with([]any{0, owner, publish, 20_000, 0, soon()}, leaves...)},
		}, 9},
		"fenced": {"fenced", nil, [2]pairCall{
			{"acquire", keys(0, lock, "token"), with([]any{60_000, owner, 0, 0, soon()}, place...)},
			{"single", keys(1, lock, channel), single},
		}, 10},
		"read":               {"read", nil, read, 11},
		"read, not the only": {"read", []any{"HSET", lock, "mode", "read", "client:2", 1}, read, 0},
		"write": {"write", nil, [2]pairCall{
			{"acquire", reads(0), with([]any{60_000, owner + ":write", 0, soon()}, place...)},
			{"release", reads(1), with([]any{0, owner + ":write", publish, 20_000, 0, 0}, leaves...)},
		}, 9},
		"fair": {"fair", nil, [2]pairCall{
			{"acquire", fair(0), []any{60_000, owner, 5_000, false, true, soon()}},
			{"release", fair(1), []any{0, owner, publish, 20_000, 0, 0, true}},
		}, 8},
		"plain": {"plain", nil, [2]pairCall{
			{"acquire", []string{lock, latches[0]}, []any{60_000, owner, soon()}},
			{"release", []string{lock, channel, latches[1]}, []any{0, owner, "", 20_000, 0, 0}},
		}, 6},
		"fastermulti, one value": {"fastermulti", nil, [2]pairCall{
			{"acquire", keys(0, lock), with([]any{60_000, owner + " value", soon()}, place...)},
			{"release", keys(1, lock, channel), with([]any{0, owner + " value", publish, 20_000, 0, 0}, leaves...)},
		}, 10},
		"semaphore": {"semaphore", []any{"SET", lock, 1}, [2]pairCall{
			{"acquire", keys(0, lock, channel), with([]any{5_000, 0, 1, 0, soon()}, with(place, "join", "1", publish)...)},
			{"add", keys(1, lock, channel), []any{60_000, publish, 1, 0, soon(), "1", "client"}},
		}, 11},
		"permits": {"permits", []any{"SET", lock, 1}, [2]pairCall{
			{"acquire", keys(0, lock, channel, "taken"), with([]any{60_000, id, publish, 0, 0, soon()}, with(place, "join", "1")...)},
			{"release", keys(1, lock, channel, "taken"), with([]any{0, id, publish, 20_000, "", ""}, leaves...)},
		}, 16},
	}
}

// Where nobody waits, the scripts of a pair make none of the functions of the line, and run few commands. They do what they do for a user
// who may not publish, too.
func TestServerPair(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := redistest.Open(t, s.Config())
		run := func(name, publish string, pair pair) {
			t.Run(name+", "+publish, func(t *testing.T) {
				s.Do("FLUSHALL")
				if pair.before != nil {
					s.Do(pair.before...)
				}
				var scripts [2]*script.Script
				for i, call := range pair.calls {
					source := kinds.All()[pair.kind][call.operation].Source()
					scripts[i] = script.New(strings.Replace(source, kinds.LineScript, "error('the functions of the line are made')\n", 1))
					if lined := !slices.Contains([]string{"fair", "plain"}, pair.kind); lined && scripts[i].Source() == source {
						t.Fatalf("%s has no functions of the line", call.operation)
					}
				}
				s.Do("CONFIG", "RESETSTAT")
				for i, call := range pair.calls {
					v, err := scripts[i].Run(t.Context(), pool, call.keys, call.args...)
					if n, _ := v.Int(); err != nil || i == 1 && n < 1 {
						t.Fatalf("%s = %v, %v", call.operation, v, err)
					}
				}
				if n := commandsInside(s); publish == "PUBLISH" && pair.commands > 0 && n != pair.commands {
					t.Errorf("the scripts run %d commands, want %d", n, pair.commands)
				}
			})
		}
		for _, publish := range []string{"PUBLISH", "FORBIDDEN"} {
			for name, pair := range pairs(publish) {
				run(name, publish, pair)
			}
		}
	})
}

// commandsInside returns how many commands scripts have run since the statistics began.
func commandsInside(s *redistest.Server) (all int) {
	text, _ := s.Do("INFO", "commandstats").Text()
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		for _, ours := range []string{"eval", "config", "info", "hello", "client", "ping", "auth", "select", "role"} {
			found = found && !strings.HasPrefix(name, ours)
		}
		var n int
		if _, err := fmt.Sscanf(rest, "%d,", &n); found && err == nil {
			all += n
		}
	}
	return all
}
