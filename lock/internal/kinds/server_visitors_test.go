package kinds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/script"
)

// A turn of visitors lasts for some 20 ms, and so does a line that has nothing else: TestLineLikeTheServer cannot compare it.

// visit is what a script does for visitors.
type visit struct {
	title  string
	permit int    // permits free before, of which one is added; 0: the release of a reentrant lock
	listen string // a channel behind the lock's, or "-" for nobody
	line   string // members before, each with its score in seconds from now
	want   string // the reply; how often it tells; members, and for how long the line stays
}

var visits = []visit{
	{"a release to visitors alone", 0, "", "", "1, 1 told, [!* *] briefly"},
	{"a release to nobody", 0, "-", "", "2, 1 told, [] gone"},
	{"a release when visitors have left", 0, "-", "* -5", "2, 1 told, [] gone"},
	{"a release between two turns of visitors", 0, "", "* 5", "1, 1 told, [*] for ever"},
	{"a release to a place", 0, ":c1", "c1:0 -5", "1, 1 told, [!c1:0 c1:0] for long"},
	{"a release to a place and to visitors", 0, "", "c1:0 -5", "1, 0 told, [!c1:0 c1:0 *] for long"},
	{"a permit beside a free one", 1, "", "* -5", "1, 1 told, [] gone"},
	{"a permit beside that of visitors in their turn", 1, "", "!* -9 * -5", "1, 1 told, [!* *] for ever"},
}

// TestServerVisits checks what scripts do for visitors.
func TestServerVisits(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for _, v := range visits {
			t.Run(v.title, func(t *testing.T) {
				if got := v.run(t, s, nil); got != v.want {
					t.Errorf("%s, want %s", got, v.want)
				}
			})
		}
	})
}

// script returns the script, its KEYS and ARGV.
func (v visit) script() (s *script.Script, keys []string, args []any) {
	if v.permit > 0 {
		keys = []string{walkLock, walkOwnChannel, walkLatch + "0", walkLine}
		return kinds.All()["semaphore"]["add"], keys, []any{60_000, publishBy, 1, 0, soon(), "1", "c0"}
	}
	keys = []string{walkLock, walkChannel, walkLatch + "0", walkLine}
	return kinds.All()["reentrant"]["single"], keys, []any{0, "client:1", publishBy, 30_000, 0, "1", "c0", "", ""}
}

// run returns what the script does on a server, or the one in broken in its place.
func (v visit) run(t *testing.T, s *redistest.Server, broken map[string]*script.Script) string {
	t.Helper()
	pool := redistest.Open(t, s.Config())
	intact, keys, args := v.script()
	sub := pubsub.New(pool, pubsub.Config{})
	defer sub.Close()
	if v.listen != "-" {
		if _, err := sub.Subscribe(t.Context(), keys[1]+v.listen); err != nil {
			t.Fatal(err)
		}
	}
	s.Do("FLUSHALL")
	if v.permit > 0 {
		s.Do("SET", walkLock, v.permit)
	} else {
		s.Do("HSET", walkLock, "client:1", 1)
	}
	fields := strings.Fields(v.line)
	for i := 0; i < len(fields); i += 2 {
		after, _ := time.ParseDuration(fields[i+1] + "s")
		score := time.Now().Add(after).UnixMicro()
		if strings.HasPrefix(fields[i], "!") {
			score = -time.Now().Add(-after).UnixMilli() // the end of the turn
		}
		s.Do("ZADD", walkLine, score, fields[i])
	}
	now := intact
	if other := broken[intact.Source()]; other != nil {
		now = other
	}
	all, err := script.New(strings.Replace(atOnce, "SCRIPT", now.Source(), 1)).Run(t.Context(), pool, append(keys, keys[1]+strings.TrimPrefix(v.listen, "-")), args...)
	if err != nil {
		return err.Error()
	}
	reply, _ := all.At(0).Int()
	told, _ := all.At(1).Int()
	left, _ := all.At(3).Int()
	stays := "for long"
	switch {
	case left == -2:
		stays = "gone"
	case left == -1:
		stays = "for ever"
	case left < 1000:
		stays = "briefly"
	}
	return fmt.Sprintf("%d, %d told, %s %s", reply, told, lineMembers(all.At(2)), stays)
}

// atOnce runs a script, and looks at what it has done before any time passes.
const atOnce = `
local function run()
SCRIPT
end
return {run(), redis.call('llen', KEYS[5]), redis.call('zrange', KEYS[4], 0, -1), redis.call('pttl', KEYS[4])}`
