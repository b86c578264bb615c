package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// Digest is the server's digest of the script.
func TestServerDigests(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for kind, scripts := range kinds.All() {
			for operation, script := range scripts {
				got, err := s.Do("SCRIPT", "LOAD", script.Source()).Text()
				if err != nil || got != script.Digest() {
					t.Errorf("%s, %s: the server's digest is %q, %v, ours %q", kind, operation, got, err, script.Digest())
				}
			}
		}
	})
}

// twin runs the same scripts on a server, in Lua, and on the fake server, as Go functions.
type twin struct {
	t          *testing.T
	kind       string
	real, fake *conn.Pool
	owner      string    // of the operations that follow each other
	compared   time.Time // when the servers were compared last

	broken map[string]*script.Script // runs on the server in place of the script with a source
	differ func(text string)         // reports a difference
}

// TestScriptsLikeTheServer compares replies and keyspace of both after each step of a random walk over the operations of
// three owners on one lock, its expiry, and keys of another type.
func TestScriptsLikeTheServer(t *testing.T) {
	t.Parallel()
	walk(t, "reentrant", 1500, (*twin).step)
}

func TestReadWriteLikeTheServer(t *testing.T) {
	t.Parallel()
	walk(t, "readwrite", 1500, (*twin).readWriteStep)
}

// walk takes so many steps over the scripts of a kind, on each server; a third of the steps except in make exhaustive.
func walk(t *testing.T, kind string, steps int, step func(w *twin, random *rand.Rand) bool) {
	if os.Getenv(exhaustiveEnv) != "1" {
		steps /= 3
	}
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		w := newTwin(t, s, kind, proto)
		w.differ = func(text string) { t.Error(text) }
		seed := uint64(time.Now().UnixNano())
		if !w.walk(seed, steps, step) {
			t.Logf("seed %d", seed)
		}
	})
}

func newTwin(t *testing.T, s *redistest.Server, kind string, proto int) *twin {
	srv := fakeredis.New()
	t.Cleanup(srv.Close)
	lockscripts.Load(srv, kinds.All())
	fake := redistest.Open(t, conn.Config{Dial: srv.Dial, Protocol: proto})
	return &twin{t: t, kind: kind, real: redistest.Open(t, s.Config()), fake: fake, owner: "client:0"}
}

// walk takes so many steps at random, until one of them makes a difference.
func (w *twin) walk(seed uint64, steps int, step func(w *twin, random *rand.Rand) bool) bool {
	random := rand.New(rand.NewPCG(seed, 1))
	for range steps {
		if !step(w, random) {
			return false
		}
	}
	return true
}

const (
	walkLock, walkChannel = "walk", "redisson_lock__channel:{walk}"
	walkLatch             = "redisson_unlock_latch:{walk}:"
)

// soon is a time until which a request is good.
func soon() int64 { return time.Now().Add(30 * time.Second).UnixMilli() }

func (w *twin) step(random *rand.Rand) bool {
	owner := fmt.Sprintf("client:%d", random.IntN(3))
	lease := []int{0, 40_000, 60_000, 90_000}[random.IntN(4)]
	switch random.IntN(14) {
	case 13:
		keys := []string{walkLock, walkChannel, fmt.Sprint(walkLatch, random.IntN(4))}
		return w.script("keep", keys, 60_000, owner, []string{"PUBLISH", ""}[random.IntN(2)], 30_000, random.IntN(2), soon(), setNobody)
	case 12:
		keys := []string{walkLock, walkChannel, fmt.Sprint(walkLatch, random.IntN(4))}
		return w.script("single", keys, owner, "PUBLISH", 1, "", "", random.IntN(2))
	case 0, 1, 2, 3:
		keys := []string{walkLock, fmt.Sprint(walkLatch, random.IntN(4))}
		return w.script("acquire", keys, max(lease, 40_000), owner, soon())
	case 4, 5, 6:
		latch := fmt.Sprint(walkLatch, random.IntN(4))
		return w.script("release", []string{walkLock, walkChannel, latch}, lease, owner, "PUBLISH", 30_000, random.IntN(2), soon())
	case 7:
		keys := []string{walkLock, walkChannel, fmt.Sprint(walkLatch, random.IntN(4))}
		return w.script("undo", keys, lease, owner, "PUBLISH", random.IntN(3), soon())
	case 8:
		return w.script("renew", []string{walkLock, "free", "text", walkLock}, 70_000, owner, owner, owner, "client:1")
	case 9:
		return w.script("info", []string{walkLock, walkChannel})
	case 10:
		return w.script("force", []string{walkLock, walkChannel}, "PUBLISH", soon())
	}
	switch random.IntN(6) {
	case 0:
		return w.do("SET", walkLock, "x")
	case 1:
		return w.do("HSET", walkLock, "stranger:1", 1) // a hold without a lease
	case 2:
		return w.do("SET", "text", "x")
	default:
		return w.do("DEL", walkLock, walkLatch+"0", walkLatch+"1", walkLatch+"2", walkLatch+"3")
	}
}

func (w *twin) script(operation string, keys []string, args ...any) bool {
	w.t.Helper()
	return w.scriptOf(w.kind, operation, keys, args...)
}

func (w *twin) scriptOf(kind, operation string, keys []string, args ...any) bool {
	w.t.Helper()
	s := kinds.All()[kind][operation]
	run := func(s *script.Script, p *conn.Pool) string {
		v, err := s.Run(w.t.Context(), p, keys, args...)
		if n, _ := v.Int(); kind == "fastermulti" && operation == "acquire" && n > 0 && n <= 500 {
			return "soon" // TestServerWordOfAGroup
		}
		return answer(v, err)
	}
	onServer := s
	if broken := w.broken[s.Source()]; broken != nil {
		onServer = broken
	}
	return w.same(fmt.Sprint(kind, " ", operation, " ", keys, args), run(onServer, w.real), run(s, w.fake))
}

func (w *twin) do(args ...any) bool {
	w.t.Helper()
	run := func(p *conn.Pool) string {
		v, err := p.Do(w.t.Context(), args...)
		return answer(v, err)
	}
	return w.same(fmt.Sprint(args...), run(w.real), run(w.fake))
}

// same compares two replies, and the keys of both servers. After a step that took too long both begin anew.
func (w *twin) same(what, real, fake string) bool {
	w.t.Helper()
	a, b := keyspace(w.t, w.real), keyspace(w.t, w.fake)
	late := time.Since(w.compared) > longestStep
	w.compared = time.Now()
	switch {
	case late:
		return w.do("FLUSHALL")
	case !sameTexts(real, fake):
		w.differ(fmt.Sprintf("%s: the server answers %s, the fake %s", what, real, fake))
		return false
	case !sameTexts(a, b):
		w.differ(fmt.Sprintf("%s: the server has\n%s\nthe fake\n%s", what, a, b))
		return false
	}
	return !endsSoon(a) && !endsSoon(b) || w.do("FLUSHALL")
}

// longestStep is how long a step may take to be compared: what it leaves then differs by no more than sameTexts allows.
const longestStep = 2 * time.Second

// endsSoon reports whether a time in text is so short that on a busy machine it could end at one server before it ends at the other.
func endsSoon(text string) bool {
	for _, found := range timesInText.FindAllString(text, -1) {
		if ms, _ := strconv.Atoi(found[1:]); ms < 5000 {
			return true
		}
	}
	return false
}

// timesInText are the times that timeText has made.
var timesInText = regexp.MustCompile(`~\d+`)

// sameTexts reports whether a and b are the same but for their times, and these by no more than 5 s: the two servers are asked one
// after the other, and a busy machine is late. Leases differ by 10 s.
func sameTexts(a, b string) bool {
	if timesInText.ReplaceAllString(a, "~") != timesInText.ReplaceAllString(b, "~") {
		return false
	}
	others := timesInText.FindAllString(b, -1)
	for i, text := range timesInText.FindAllString(a, -1) {
		first, _ := strconv.ParseInt(text[1:], 10, 64)
		second, _ := strconv.ParseInt(others[i][1:], 10, 64)
		if max(first, second)-min(first, second) > 5000 {
			return false
		}
	}
	return true
}

// answer is a reply as text, for sameTexts. Errors are cut to their class: servers word them differently.
func answer(v resp.Value, err error) string {
	if err != nil {
		v := fmt.Sprint(err)
		if strings.Contains(v, "WRONGTYPE") {
			return "WRONGTYPE"
		}
		return v
	}
	switch v.Kind() {
	case resp.Array:
		var list []string
		for e := range v.All() {
			list = append(list, answer(e, nil))
		}
		return fmt.Sprint(list)
	case resp.Integer:
		n, _ := v.Int()
		return "int " + timeText(n)
	case resp.Null:
		return "null"
	}
	text, _ := v.Text()
	return v.Kind().String() + " " + text
}

// timeText is a time in ms as text, for sameTexts. Less than four seconds is no time: a count, a wait that does not depend on when it is
// asked for, or a key without a lease.
func timeText(ms int64) string {
	if ms < 4000 {
		return fmt.Sprint(ms)
	}
	return fmt.Sprint("~", ms)
}

// lifeText is what is left of a lease in ms as text, for sameTexts; 0 or less is none.
func lifeText(ms int64) string {
	if ms <= 0 {
		return fmt.Sprint(ms)
	}
	return fmt.Sprint("~", ms)
}

func keyspace(t *testing.T, p *conn.Pool) string {
	t.Helper()
	do := func(args ...any) resp.Value {
		v, err := p.Do(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var lines []string
	for key := range do("KEYS", "*").All() {
		name, _ := key.Text()
		kind, _ := do("TYPE", name).Text()
		left, _ := do("PTTL", name).Int()
		if left == -2 {
			continue // it has ended meanwhile
		}
		line := fmt.Sprint(kind, " ", name, " ", lifeText(left))
		switch kind {
		case "zset":
			if name == walkLine {
				members := lineMembers(do("ZRANGE", name, 0, -1))
				if line += members; ofVisitors(members) || members == "[]" {
					continue // it may have ended at the other server, or just now at this one: lastingVisit
				}
				break
			}
			line += scores(do("ZRANGE", name, 0, -1, "WITHSCORES"))
		case "hash":
			var fields []string
			pairs, _ := do("HGETALL", name).Pairs()
			for f, v := range pairs {
				field, value := answer(f, nil), answer(v, nil)
				if strings.HasSuffix(field, ":expire_time") {
					ends, _ := v.Int()
					value = lifeText(max(0, ends-time.Now().UnixMilli()))
				}
				fields = append(fields, field+"="+value)
			}
			slices.Sort(fields)
			line += fmt.Sprint(fields)
		default:
			line += answer(do("GET", name), nil)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// scores is a sorted set of ids by points in time, as times from now on.
func scores(v resp.Value) string {
	var list []string
	var member string
	add := func(e resp.Value) {
		score, err := e.Float()
		switch left := int64(score) - time.Now().UnixMilli(); {
		case err != nil:
			member, _ = e.Text()
		case score == never:
			list = append(list, fmt.Sprintf("%x=never", member))
		default:
			list = append(list, fmt.Sprintf("%x=%s", member, lifeText(max(0, left))))
		}
	}
	for e := range v.All() {
		if e.Kind() == resp.Array {
			add(e.At(0))
			add(e.At(1))
		} else {
			add(e)
		}
	}
	slices.Sort(list)
	return fmt.Sprint(list)
}
