package cluster_test

import (
	"strings"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/resp"
)

// command encodes words separated by spaces; ” is an empty one.
func command(text string) resp.Command {
	words := strings.Fields(text)
	for i, w := range words {
		if w == "''" {
			words[i] = ""
		}
	}
	return resp.CmdStrings(words)
}

func TestRoute(t *testing.T) {
	const none = "(none)"
	tests := []struct{ command, key string }{
		{"GET KEY", "KEY"}, {"get KEY", "KEY"}, {"SET KEY v", "KEY"}, {"MGET KEY other", "KEY"}, {"DEL KEY other", "KEY"},
		{"HSET KEY f v", "KEY"}, {"SPUBLISH KEY m", "KEY"}, {"SSUBSCRIBE KEY", "KEY"}, {"WATCH KEY", "KEY"},
		{"ZINTERSTORE KEY 2 a b", "KEY"}, {"GEORADIUSBYMEMBER_RO KEY m 1 km", "KEY"}, {"JSON.GET KEY", "KEY"},
		{"SOMECOMMANDWITHAVERYLONGNAME KEY", "KEY"}, {"SORT KEY BY a", "KEY"}, {"COPY KEY b", "KEY"},
		{"EVAL script 1 KEY a", "KEY"}, {"EVALSHA sha 2 KEY b a", "KEY"}, {"EVALSHA_RO sha 1 KEY", "KEY"},
		{"eval_ro script 1 KEY", "KEY"}, {"FCALL f 1 KEY a", "KEY"}, {"FCALL_RO f 1 KEY", "KEY"},
		{"EVAL script 0 a", none}, {"EVAL script", none}, {"EVAL script -1 a", none}, {"EVAL script 1", none},
		{"EVAL script 99999999999999999999 a", none},
		{"ZUNION 2 KEY b", "KEY"}, {"SINTERCARD 1 KEY", "KEY"}, {"LMPOP 1 KEY LEFT", "KEY"}, {"ZMPOP 1 KEY MIN", "KEY"},
		{"ZDIFF 1 KEY", "KEY"}, {"ZINTER 1 KEY", "KEY"}, {"ZINTERCARD 1 KEY", "KEY"}, {"MSETEX 1 KEY v", "KEY"},
		{"BLMPOP 1 1 KEY LEFT", "KEY"}, {"BZMPOP 0 1 KEY MIN", "KEY"},
		{"XREAD STREAMS KEY 0", "KEY"}, {"XREAD COUNT 5 BLOCK 0 streams KEY b 0 0", "KEY"}, {"XREAD COUNT 5", none},
		{"XREADGROUP GROUP STREAMS STREAMS STREAMS KEY >", "KEY"},
		{"XADD KEY * f v", "KEY"}, {"XGROUP CREATE KEY g $", "KEY"}, {"XINFO STREAM KEY", "KEY"}, {"XINFO HELP", none},
		{"OBJECT ENCODING KEY", "KEY"}, {"MEMORY USAGE KEY", "KEY"}, {"MEMORY DOCTOR", none}, {"BITOP AND KEY a b", "KEY"},
		{"DEBUG OBJECT KEY", "KEY"}, {"PFDEBUG ENCODING KEY", "KEY"},
		{"MIGRATE host 1 KEY 0 100", "KEY"}, {"MIGRATE host 1 '' 0 100 COPY KEYS KEY b", "KEY"},
		{"MIGRATE host 1 '' 0 100 AUTH KEYS KEYS KEY b", "KEY"}, {"MIGRATE host 1 '' 0 100 AUTH2 KEYS KEYS KEYS KEY", "KEY"},
		{"MIGRATE host 1 '' 0 100", none},
		{"PING", none}, {"PING text", none}, {"ECHO text", none}, {"PUBLISH channel m", none}, {"SCRIPT LOAD s", none},
		{"INFO all", none}, {"CLUSTER KEYSLOT a", none}, {"CONFIG GET a", none}, {"TIME", none}, {"WAIT 1 0", none},
		{"GET", none}, {"ACL WHOAMI", none}, {"PUBSUB SHARDNUMSUB c", none}, {"FUNCTION LIST", none},
	}
	for _, test := range tests {
		want := -1
		if test.key != none {
			want = cluster.Slot(test.key)
		}
		got, err := cluster.RouteOf(command(test.command))
		if err != nil || got != want {
			t.Errorf("%s goes to slot %d, %v, want %d (%s)", test.command, got, err, want, test.key)
		}
		if got, err := cluster.RouteOf(command(test.command).On("other")); err != nil || got != cluster.Slot("other") {
			t.Errorf("%s on another key goes to slot %d, %v", test.command, got, err)
		}
	}
}

func TestRouteRefuses(t *testing.T) {
	for _, text := range []string{"SCAN 0", "KEYS *", "DBSIZE", "randomkey", "FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "ASKING"} {
		if slot, err := cluster.RouteOf(command(text)); err == nil {
			t.Errorf("%s goes to slot %d, want an error", text, slot)
		}
	}
	if slot, err := cluster.RouteOf(command("SCAN 0").On("foo")); err != nil || slot != 12182 {
		t.Errorf("SCAN on a key goes to slot %d, %v", slot, err)
	}
}

// Whatever the words, a route is a slot, and the slot of a word in the command.
func FuzzRoute(f *testing.F) {
	for _, seed := range []string{"EVAL s 1 k", "XREAD STREAMS a 0", "MIGRATE h 1 '' 0 1 KEYS a", "GET {a}", "BLMPOP 1 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cmd := command(text)
		if cmd.Err() != nil {
			return
		}
		slot, err := cluster.RouteOf(cmd)
		if err != nil || slot == -1 {
			return
		}
		for word := range cmd.Args() {
			if cluster.Slot(word) == slot {
				return
			}
		}
		t.Errorf("%q goes to slot %d, which is that of no word", text, slot)
	})
}
