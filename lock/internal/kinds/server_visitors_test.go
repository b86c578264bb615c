package kinds_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/script"
)

// A turn of visitors lasts for some 20 ms, and so does a line that has nothing else: TestLineLikeTheServer cannot compare it.

// visit is what a script does for visitors.
type visit struct {
	title     string
	operation string
	listen    string // a channel behind the lock's, or "-" for nobody; a number in front says by how many
	line      string // members before, each with its score in seconds from now
	want      string // the reply; how often it tells; members, and for how long the line stays; how many times as long as usual a visit is
}

var visits = []visit{
	{"to visitors alone", "single", "", "", "4, 1 told, [!* *] briefly"},
	{"to visitors alone, of an Owner", "release", "", "", "4, 1 told, [!* *] briefly"},
	{"to nobody", "single", "-", "", "2, 1 told, [] gone"},
	{"when visitors have left", "single", "-", "* -5", "2, 1 told, [] gone"},
	{"between two turns of visitors", "single", "", "* 5", "4, 1 told, [*] for ever"},
	{"to a place", "single", ":c1", "c1:0 -5", "1, 1 told, [!c1:0 c1:0] for long"},
	{"to a place, and to visitors beside it", "single", "", "c1:0 -5", "4, 1 told, [!c1:0 c1:0 *] for long"},
	{"of a permit beside a free one", "add", "", "* -5", "1, 1 told, [] gone"},
	{"of a permit beside that of visitors in their turn", "add", "", "!* -9 * -5", "1, 1 told, [!* *] for long"},
	{"to two visitors behind half of the places", "single", "2", "c1:0 -9 * -8 c2:0 -7", "4, 1 told, [!* c1:0 c2:0 *] for long"},
	{"to two visitors behind more of the places", "single", "2", "c1:0 -9 c2:0 -8 * -7 c3:0 -6", "4, 0 told, [!c1:0 c1:0 c2:0 * c3:0] for long"},
	{"to three visitors beside a place", "single", "3", "* -9 c1:0 -8", "4, 1 told, [!* c1:0 *] for long, 2 times as long"},
	{"to three visitors beside two places", "single", "3", "* -9 c1:0 -8 c2:0 -7", "4, 1 told, [!* c1:0 c2:0 *] for long, 1.5 times as long"},
	{"to a visitor behind half of the places", "single", "", "c1:0 -9 * -8 c2:0 -7", "4, 0 told, [!c1:0 c1:0 * c2:0] for long"},
	{"for the second after a visit", "acquire", "-", "!* 1 * 5 c1:0 -9 c0:0 -8", "100, 0 told, [!c1:0 c1:0 c0:0 *] for long"},
	{"for the last of ten after a visit", "acquire", "-", "!* 1 * 5 c1:0 -20 c2:0 -19 c3:0 -18 c4:0 -17 c5:0 -16 c6:0 -15 c7:0 -14 c8:0 -13 c9:0 -12 c0:0 -8",
		"900, 0 told, [!c1:0 c1:0 c2:0 c3:0 c4:0 c5:0 c6:0 c7:0 c8:0 c9:0 c0:0] for long"},
	{"for the first after a visit", "acquire", "-", "!* 1 * 5 c0:0 -9 c1:0 -8", "granted, 0 told, [c1:0 *] for ever"},
	{"for the called after a visit", "acquire", "-", "!* 2 !c0:0 1 * 5 c1:0 -9 c0:0 -8", "granted, 0 told, [c1:0 *] for ever"},
	{"for the second after the turns of visitors and of the first", "acquire", "-", "!* 2 !c1:0 1 * 5 c1:0 -9 c0:0 -8", "granted, 0 told, [*] for ever"},
	{"for the second between visits", "acquire", "-", "* 5 c1:0 -9 c0:0 -8", "granted, 0 told, [c1:0 *] for ever"},
	{"for the second before a visit", "acquire", "-", "* -5 c1:0 -9 c0:0 -8", "granted, 0 told, [c1:0 *] for ever"},
	{"for a reader after a visit", "read", "-", "!* 1 * 5 c1:0 -9 c0:r:0:100 -8", "granted, 0 told, [~c1:0 c1:0 *] for long"},
	{"of two permits after a visit", "two permits", "-", "!* 1 * 5 c1:0 -9 c0:0 -8", "granted, 0 told, [c1:0 *] for ever"},
	{"for readers, also without a line", "downgrade", "", "c1:r:0:100 -5", "[1 0], 1 told, [!c1:r:0:100 c1:r:0:100 *] for long"},
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

// call returns the script, its KEYS and ARGV, and a command that makes what it needs.
func (v visit) call() (s *script.Script, keys []string, args, before []any) {
	const latch, id = walkLatch + "0", "c0"
	all := kinds.All()
	switch v.operation {
	case "add":
		keys = []string{walkLock, walkOwnChannel, latch, walkLine}
		return all["semaphore"]["add"], keys, []any{60_000, publishBy, 1, 0, soon(), 1, id}, []any{"SET", walkLock, 1}
	case "downgrade":
		keys = []string{walkLock, walkReadWrite, walkWriters, lockscripts.TimeoutKey(walkLock, "client:1", 1), latch, walkLine}
		args = []any{60_000, "client:1", publishBy, 0, soon(), 1, id}
		return all["write"]["downgrade"], keys, args, []any{"HSET", walkLock, "mode", "write", "client:1:write", 1}
	case "acquire":
		return all["reentrant"]["acquire"], []string{walkLock, latch, walkLine}, []any{60_000, "client:1", soon(), "c0:0", "leave"}, []any{"PING"}
	case "read":
		keys = []string{walkLock, walkReadWrite, walkWriters, lockscripts.TimeoutKey(walkLock, "client:1", 1), latch, walkLine}
		return all["read"]["acquire"], keys, []any{60_000, "client:1", 0, soon(), "c0:r:0:100", "leave", 1, publishBy}, []any{"PING"}
	case "two permits":
		keys = []string{walkLock, walkOwnChannel, latch, walkLine}
		return all["semaphore"]["acquire"], keys, []any{60_000, "", 2, 0, soon(), "c0:0", "leave", 1, publishBy}, []any{"SET", walkLock, 2}
	}
	keys = []string{walkLock, walkChannel, latch, walkLine}
	args = []any{"client:1", publishBy, 1}
	if v.operation == "release" {
		args = []any{0, "client:1", publishBy, 30_000, 0, soon(), 1, id, "", ""}
	}
	return all["reentrant"][v.operation], keys, args, []any{"HSET", walkLock, "client:1", 1}
}

// run returns what the script does on a server, or the one in broken in its place.
func (v visit) run(t *testing.T, s *redistest.Server, broken map[string]*script.Script) string {
	t.Helper()
	pool := redistest.Open(t, s.Config())
	intact, keys, args, before := v.call()
	behind := strings.TrimLeft(v.listen, "-123456789")
	listeners, _ := strconv.Atoi(strings.TrimSuffix(v.listen, behind))
	if v.listen == behind {
		listeners = 1
	}
	for range listeners {
		sub := pubsub.New(pool, pubsub.Config{})
		defer sub.Close()
		if _, err := sub.Subscribe(t.Context(), keys[1]+behind); err != nil {
			t.Fatal(err)
		}
	}
	s.Do("FLUSHALL")
	s.Do(before...)
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
	all, err := script.New(strings.Replace(atOnce, "SCRIPT", now.Source(), 1)).Run(t.Context(), pool, keys,
		append(args, walkLine, keys[1]+behind)...)
	if err != nil {
		return err.Error()
	}
	reply, err := all.At(0).Text()
	if err != nil {
		reply = all.At(0).String()
	}
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
	end, _ := all.At(4).Float()
	next, _ := all.At(5).Float()
	pause := int64(next/1000 + end)
	for _, usual := range []int64{10, 50} { // a pause as long as the visit
		if end < 0 && pause > usual && pause <= 2*usual && pause != 50 {
			stays += fmt.Sprintf(", %g times as long", float64(pause)/float64(usual))
			break
		}
	}
	return fmt.Sprintf("%s, %d told, %s %s", reply, told, lineMembers(all.At(2)), stays)
}

// atOnce runs a script, and looks at what it has done before any time passes.
const atOnce = `
local function run()
SCRIPT
end
local line, told = ARGV[#ARGV - 1], ARGV[#ARGV]
return {run() or 'granted', redis.call('llen', told), redis.call('zrange', line, 0, -1), redis.call('pttl', line),
	redis.call('zscore', line, '!*') or '0', redis.call('zscore', line, '*') or '0'}`

// TestServerCountsOfListeners: clients that know the line are no visitors, however many they are. Valkey 9.1 miscounts 8, 15 and 16.
func TestServerCountsOfListeners(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := redistest.Open(t, s.Config())
		visitors := script.New(kinds.LineScript + "\nreturn visitors(KEYS[1], 'PUBLISH')")
		var channels []string
		for i := range 10 { // the miscount is another for each
			channels = append(channels, fmt.Sprint("c", i), fmt.Sprint("c", i, ":lockwire"))
		}
		for n := 1; n <= 17; n++ {
			sub := pubsub.New(pool, pubsub.Config{})
			defer sub.Close()
			if _, err := sub.Subscribe(t.Context(), channels...); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(channels); i += 2 {
				v, err := visitors.Run(t.Context(), pool, channels[i:i+1])
				if got, ok := v.Int(); err != nil || ok != nil || got > 0 {
					t.Errorf("%d visitors, %v, of %d clients that know the line", got, errors.Join(err, ok), n)
				}
			}
		}
	})
}
