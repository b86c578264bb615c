package kinds_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const walkLine = "lockwire_line:{walk}"

// lineWalks are walks over the scripts with a line: four clients, of which one does not listen, another kind of client that does now and
// then, and places that come and go. Several processes have permits at once; of readers and writers some go first.
var lineWalks = []*lineWay{
	{"reentrant", walkChannel, 1000, (*lineWalk).exclusive},
	{"nonreentrant", walkChannel, 500, (*lineWalk).exclusive},
	{"fenced", walkChannel, 500, (*lineWalk).exclusive},
	{"semaphore", walkOwnChannel, 1000, (*lineWalk).semaphore},
	{"permits", walkOwnChannel, 1000, (*lineWalk).permits},
	{"read-write", walkReadWrite, 2000, (*lineWalk).readWrite},
	{"fastermulti", walkChannel, 2000, (*lineWalk).group},
}

// lineWay is a walk of so many steps.
type lineWay struct {
	kind, channel string
	steps         int
	step          func(l *lineWalk, random *rand.Rand, as stander) bool
}

// walker returns the steps of one walk after the other.
func (way *lineWay) walker() func(w *twin, random *rand.Rand) bool {
	l := &lineWalk{channel: way.channel}
	return func(w *twin, random *rand.Rand) bool {
		return l.step(w, random, func(random *rand.Rand, as stander) bool { return way.step(l, random, as) })
	}
}

// scripts are those that a step may run.
func (way *lineWay) scripts() (list []*script.Script) {
	all := kinds.All()
	for _, kind := range strings.Split(strings.Replace(way.kind, "read-write", "read write", 1), " ") {
		list = slices.AppendSeq(list, maps.Values(all[kind]))
	}
	return list
}

// TestLineLikeTheServer compares the scripts with a line and their Go functions, step by step on random walks.
func TestLineLikeTheServer(t *testing.T) {
	t.Parallel()
	for _, way := range lineWalks {
		t.Run(way.kind, func(t *testing.T) {
			t.Parallel()
			walk(t, way.kind, way.steps, way.walker())
		})
	}
}

type lineWalk struct {
	twin      *twin
	channel   string
	strangers []*pubsub.Subscriber // as many of each server
}

// stander is a client with its place in the line.
type stander struct {
	client, place, stand, way string
	counts                    int // what the server is said to know of listeners
}

func (l *lineWalk) step(w *twin, random *rand.Rand, script func(random *rand.Rand, as stander) bool) bool {
	if l.twin != w {
		*l = lineWalk{twin: w, channel: l.channel}
		for _, p := range []*conn.Pool{w.real, w.fake} {
			s := pubsub.New(p, pubsub.Config{})
			w.t.Cleanup(func() { _ = s.Close() })
			for _, c := range []string{":c0", ":c1", ":c3"} {
				channels := []string{l.channel + c, l.channel + c + ":r", l.channel + c + ":w"}
				for _, values := range walkValues {
					channels = append(channels, l.channel+c+":"+values, l.channel+c+":"+values+":0")
				}
				if _, err := s.Subscribe(w.t.Context(), channels...); err != nil {
					w.t.Error(err)
					return false
				}
			}
		}
	}
	client := fmt.Sprintf("c%d", random.IntN(4))
	as := stander{
		client: client,
		place:  fmt.Sprint(client, ":", random.IntN(2)),
		stand:  []string{"", "join", "join", "leave", "move"}[random.IntN(5)],
		way:    []string{"", "leave", "move"}[random.IntN(3)],
		counts: random.IntN(3),
	}
	if random.IntN(16) == 0 {
		as.place, as.stand, as.way = "", "", "" // a client without a place
	}
	same := true
	switch random.IntN(13) {
	case 12: // the servers' clocks were set back
		same = w.do("ZADD", walkLine, "XX", time.Now().Add(time.Hour).UnixMicro(), as.place)
	case 0:
		if w.kind == "fastermulti" {
			as.place = groupPlace(random, client)
		}
		kind := strings.Replace(w.kind, "read-write", "write", 1)
		same = w.scriptOf(kind, "quit", []string{walkLock, l.channel, walkLine}, "PUBLISH", as.counts, client, as.place, w.kind == "semaphore" || w.kind == "permits")
	case 1:
		if random.IntN(2) == 0 {
			same = w.do("DEL", walkLatch+"0", walkLatch+"1", walkLatch+"2")
		} else if !l.changeStrangers(w, 1+random.IntN(3)) {
			return false
		}
	default:
		if (w.kind == "semaphore" || w.kind == "permits") && random.IntN(8) == 0 && !l.waitForMany(w, random) {
			return false
		}
		same = script(random, as)
	}
	turns := 9 * time.Second
	if random.IntN(6) == 0 {
		turns = []time.Duration{-9 * time.Second, time.Minute}[random.IntN(2)]
	}
	waited := []time.Duration{time.Second, 2500 * time.Millisecond, 4500 * time.Millisecond, 9 * time.Second}
	if w.kind == "fastermulti" { // who is next for values keeps others out in the second and in the third
		waited = []time.Duration{time.Second, 1500 * time.Millisecond, 3500 * time.Millisecond, 9 * time.Second}
	}
	return same && l.lastingVisit(w) && l.lastingTurns(w, turns) && l.farVisit(w, random.IntN(4) == 0) && l.sinceNext(w, waited[random.IntN(4)])
}

// exclusive is a step of a lock with one holder.
func (l *lineWalk) exclusive(random *rand.Rand, as stander) bool {
	w, keys, own := l.twin, []string{walkLock, walkChannel, fmt.Sprint(walkLatch, random.IntN(3)), walkLine}, []any(nil)
	taking := append([]string{walkLock}, keys[2:]...)
	if w.kind == "fenced" {
		own = []any{-1, 0} // tokens that count from 1
		taking = keys
	}
	owner := fmt.Sprintf("client:%d", random.IntN(2))
	switch random.IntN(9) {
	case 0, 1, 2, 3:
		args := append(append([]any{40_000, owner}, own...), soon(), as.place, as.stand)
		if as.stand == "join" {
			args = args[:len(args)-1]
		}
		return w.script("acquire", taking, args...)
	case 4, 5:
		if as.way == "" && as.counts == 1 {
			return w.script("single", keys, owner)
		}
		return w.script("single", keys, owner, "PUBLISH", as.counts, as.place, as.way, random.IntN(2))
	case 6:
		return w.script("release", keys, 40_000*random.IntN(2), owner, "PUBLISH", 30_000, 0, soon(), as.counts, as.client, as.place, as.way)
	case 7:
		return w.script("undo", keys, 0, owner, "PUBLISH", random.IntN(2), soon(), as.counts, as.client)
	}
	return w.script("force", []string{walkLock, walkChannel, walkLine}, "PUBLISH", soon(), as.counts, as.client)
}

// semaphore is a step of a number of permits.
func (l *lineWalk) semaphore(random *rand.Rand, as stander) bool {
	w, keys := l.twin, []string{walkLock, walkOwnChannel, fmt.Sprint(walkLatch, random.IntN(3)), walkLine}
	switch random.IntN(9) {
	case 0, 1, 2, 3:
		return w.script("acquire", keys, 60_000, "", 1+random.IntN(3), random.IntN(2), soon(), as.place, as.stand, as.counts, "PUBLISH")
	case 4:
		return w.script("undo", keys, 0, "", "PUBLISH", 0, soon(), as.counts, as.client)
	case 5, 6:
		return w.script("add", keys, 60_000, "PUBLISH", random.IntN(6)-1, random.IntN(2), soon(), as.counts, as.client)
	case 7:
		return w.script("set", keys, 60_000, "PUBLISH", random.IntN(4), 0, soon(), as.counts, as.client)
	}
	return w.do("DEL", walkLock)
}

// permits is a step of permits with ids.
func (l *lineWalk) permits(random *rand.Rand, as stander) bool {
	w, ids := l.twin, walkIDs(random)
	keys := []string{walkLock, walkOwnChannel, "{walk}:timeout", fmt.Sprint(walkLatch, random.IntN(3)), walkLine}
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		lease := []int{-1000, 45_000, 65_000, 85_000}[random.IntN(4)]
		return w.script("acquire", keys, lease, ids, "PUBLISH", random.IntN(2), 0, soon(), as.place, as.stand, as.counts)
	case 4:
		return w.script("release", keys, 0, ids, "PUBLISH", 30_000, 0, soon(), as.counts, as.client, as.place, as.way)
	case 5:
		return w.script("give", keys, 60_000, "PUBLISH", ids, soon(), as.counts, as.client)
	case 6:
		return w.script("undo", keys, 0, ids, "PUBLISH", 0, soon(), as.counts, as.client)
	case 7:
		return w.script("add", keys, 60_000, "PUBLISH", random.IntN(5)-1, random.IntN(2), soon(), as.counts, as.client)
	case 8:
		return w.script("force", []string{walkLock, walkOwnChannel, "{walk}:timeout", walkLine}, "PUBLISH", soon(), as.counts, as.client)
	}
	return w.script("set", append(append([]string{}, keys[:2]...), keys[3:]...), 60_000, "PUBLISH", random.IntN(5), 0, soon(), as.counts, as.client)
}

// groupPlace returns a place of a client for some values.
func groupPlace(random *rand.Rand, client string) string {
	owner := []string{"", "", ":0"}[random.IntN(3)]
	return fmt.Sprint(client, ":", walkValues[random.IntN(len(walkValues))], owner, ":", random.IntN(2), ":", 100+100*random.IntN(2))
}

var walkValues = []string{"a", "b", "a b", "b c", "c", "a b c"}

// group is a step of a group of values.
func (l *lineWalk) group(random *rand.Rand, as stander) bool {
	w, place := l.twin, ""
	keys := []string{walkLock, walkChannel, fmt.Sprint(walkLatch, random.IntN(3)), walkLine}
	values := walkValues[random.IntN(len(walkValues))]
	if as.place != "" {
		place = groupPlace(random, as.client)
		values = strings.Split(place, ":")[1]
	}
	owner := fmt.Sprintf("%s:%d ", as.client, random.IntN(2))
	keeps := "0"
	if random.IntN(3) == 0 {
		keeps = strings.Repeat([]string{"1 45000 ", "1 20000 ", "0 0 "}[random.IntN(3)], len(strings.Fields(values)))
	}
	switch random.IntN(9) {
	case 0, 1, 2, 3:
		args := []any{20_000 + 20_000*random.IntN(3), owner + values, soon(), place, as.stand}
		if as.stand == "join" {
			args = args[:4]
		}
		return w.script("acquire", append([]string{walkLock}, keys[2:]...), args...)
	case 4, 5, 6:
		return w.script("release", keys, keeps, owner+values, "PUBLISH", 30_000, 0, soon(), as.counts, as.client, place, as.way)
	case 7:
		return w.script("undo", keys, keeps, owner+values, "PUBLISH", random.IntN(2), soon(), as.counts, as.client)
	}
	return w.script("force", []string{walkLock, walkChannel, walkLine}, "PUBLISH", soon(), values, as.counts, as.client)
}

// waitForMany has clients wait for many permits at the head of the line, one of which does not listen. The first has been there for some time.
func (l *lineWalk) waitForMany(w *twin, random *rand.Rand) bool {
	args := []any{"ZADD", walkLine, time.Now().Add(-time.Second * time.Duration(1+2*random.IntN(2))).UnixMilli(), "c0:0"}
	for i, place := range []string{"c2:0", "c1:1"} {
		args = append(args, time.Now().Add(time.Duration(i)*time.Second-time.Hour).UnixMicro(), place)
	}
	for _, place := range []string{"c0:0", "c2:0", "c1:1"} {
		args = append(args, 5_000_000_000_000_000+int64(2+random.IntN(3)), "="+place)
	}
	return w.do(args...) && w.do("PEXPIRE", walkLine, 25_000)
}

// readWrite is a step of a read-write lock.
func (l *lineWalk) readWrite(random *rand.Rand, as stander) bool {
	w, owner := l.twin, fmt.Sprintf("client:%d", random.IntN(3))
	writer, told := owner+":write", 15_000*random.IntN(2)
	keys := []string{walkLock, walkReadWrite, walkWriters, lockscripts.TimeoutKey(walkLock, owner, 1), fmt.Sprint(walkLatch, random.IntN(3))}
	for n := range int64(40) {
		keys = append(keys, lockscripts.TimeoutKey(walkLock, owner, n+2))
	}
	keys = append(keys, walkLine)
	mode := []string{":r", ":r", "", ":w"}[random.IntN(4)]
	place := fmt.Sprint(as.client, mode, ":", random.IntN(2), ":", 100+100*random.IntN(2))
	free := []string{walkLock, walkReadWrite, walkWriters, walkLine}
	switch random.IntN(16) {
	case 0, 1, 2, 3, 4:
		if mode == ":r" {
			return w.scriptOf("read", "acquire", keys, 60_000, owner, random.IntN(4)/3, soon(), place, as.stand, as.counts, "PUBLISH")
		}
		return w.scriptOf("write", "acquire", keys, 60_000, writer, told, soon(), place, as.stand)
	case 5, 6, 7:
		return w.scriptOf("read", "release", keys, 60_000, owner, "PUBLISH", 30_000, 0, random.Int64N(2)*soon(), as.counts, as.client, place, as.way)
	case 8, 9, 10:
		return w.scriptOf("write", "release", keys, 60_000, writer, "PUBLISH", 30_000, 0, random.Int64N(2)*soon(), as.counts, as.client, place, as.way)
	case 11:
		return w.scriptOf("read", "undo", keys, 60_000, owner, "PUBLISH", random.IntN(2), soon(), as.counts, as.client)
	case 12:
		return w.scriptOf("write", "undo", keys, 60_000, writer, "PUBLISH", random.IntN(2), soon(), as.counts, as.client)
	case 13:
		return w.scriptOf("write", "downgrade", keys, 60_000, owner, "PUBLISH", 60_000*random.IntN(2), soon(), as.counts, as.client)
	case 14:
		return w.scriptOf("read", "quit", []string{walkLock, walkReadWrite, walkLine}, "PUBLISH", as.counts, as.client, place, 0)
	}
	half := []string{"read", "write"}[random.IntN(2)]
	return w.scriptOf(half, "force", free, "PUBLISH", soon(), half, as.counts, as.client)
}

// changeStrangers begins the subscriptions of n clients without a line, or ends those there are.
func (l *lineWalk) changeStrangers(w *twin, n int) bool {
	pools := []*conn.Pool{w.real, w.fake}
	if l.strangers == nil {
		for i := range 2 * n {
			s := pubsub.New(pools[i%2], pubsub.Config{})
			w.t.Cleanup(func() { _ = s.Close() })
			l.strangers = append(l.strangers, s)
			if _, err := s.Subscribe(w.t.Context(), l.channel); err != nil {
				w.t.Error(err)
				return false
			}
		}
		return true
	}
	for _, s := range l.strangers {
		_ = s.Close()
	}
	l.strangers = nil
	for _, p := range pools {
		for {
			v, err := p.Do(w.t.Context(), "PUBSUB", "NUMSUB", l.channel)
			if n, _ := v.At(1).Int(); err != nil || n == 0 {
				break
			}
		}
	}
	return true
}

// lastingVisit makes a line of visitors, which lasts for some 20 ms, last: otherwise the speed of the machine would decide.
func (l *lineWalk) lastingVisit(w *twin) bool {
	for _, p := range []*conn.Pool{w.real, w.fake} {
		v, err := p.Do(w.t.Context(), "ZRANGE", walkLine, 0, -1)
		if err != nil {
			w.t.Error(err)
			return false
		}
		if left := lineMembers(v); ofVisitors(left) {
			again := []any{"ZADD", walkLine, time.Now().Add(9 * time.Second).UnixMicro(), "*"}
			if strings.Contains(left, "!") {
				again = append(again, -time.Now().UnixMilli()-9000, "!*")
			}
			for _, p := range []*conn.Pool{w.real, w.fake} {
				for lasts := int64(0); lasts == 0; { // the line may end between the two commands
					_, _ = p.Do(w.t.Context(), again...)
					v, err := p.Do(w.t.Context(), "PEXPIRE", walkLine, 25_000)
					if err != nil {
						w.t.Error(err)
						return false
					}
					lasts, _ = v.Int()
				}
			}
			return w.do("PEXPIRE", walkLine, 25_000)
		}
	}
	return true
}

// ofVisitors tells whether nobody but visitors is in a line with these members.
func ofVisitors(members string) bool { return members == "[!* *]" || members == "[*]" }

// lastingTurns makes turns last for so long, or have ended so long ago: otherwise the speed of the machine would decide.
func (l *lineWalk) lastingTurns(w *twin, left time.Duration) bool {
	end := -time.Now().Add(left).UnixMilli()
	for _, p := range []*conn.Pool{w.real, w.fake} {
		v, err := p.Do(w.t.Context(), "ZRANGEBYSCORE", walkLine, "-inf", "(0")
		if err != nil {
			w.t.Error(err)
			return false
		}
		for mark := range v.All() {
			member, _ := mark.Text()
			if _, err := p.Do(w.t.Context(), "ZADD", walkLine, end, member); err != nil {
				w.t.Error(err)
				return false
			}
		}
	}
	return true
}

// farVisit moves a later visit nine seconds ahead, or to now, behind all places, or behind those of writers who go in front of all readers:
// otherwise the speed of the machine would decide the order.
func (l *lineWalk) farVisit(w *twin, due bool) bool {
	const inFront = 1_000_000 * time.Second
	for _, p := range []*conn.Pool{w.real, w.fake} {
		v, err := p.Do(w.t.Context(), "ZSCORE", walkLine, "*")
		if err != nil {
			w.t.Error(err)
			return false
		}
		score, missing := v.Float()
		now := time.Now()
		at, ahead := now, time.UnixMicro(int64(score)).Sub(now)
		if missing == nil && ahead < time.Minute-inFront {
			at, ahead = at.Add(-inFront), ahead+inFront
		}
		if missing == nil && ahead > 0 {
			if !due {
				at = at.Add(9 * time.Second)
			}
			same := w.do("ZADD", walkLine, at.UnixMicro(), "*")
			for time.Now().UnixMilli() == now.UnixMilli() { // scripts count in milliseconds: a visit of now is still to come until this one has passed
				runtime.Gosched()
			}
			return same
		}
	}
	return true
}

// sinceNext sets how long who is next has been so: a writer lets readers in after 4.5 s, and who waits for permits others after 2.5 s, of 1, 2.5, 4.5 and 9 s.
func (l *lineWalk) sinceNext(w *twin, waited time.Duration) bool {
	since := time.Now().Add(-waited).UnixMilli()
	for _, p := range []*conn.Pool{w.real, w.fake} {
		v, err := p.Do(w.t.Context(), "ZRANGEBYSCORE", walkLine, "0", time.Now().UnixMilli())
		if err != nil {
			w.t.Error(err)
			return false
		}
		for next := range v.All() {
			place, _ := next.Text()
			if _, err := p.Do(w.t.Context(), "ZADD", walkLine, since, place); err != nil {
				w.t.Error(err)
				return false
			}
		}
	}
	return true
}

// lineMembers are the members of a line in their order. The turns and words in front are in the order of their names: their times are in
// milliseconds, and a server that is slower than the other may make two times of one.
func lineMembers(v resp.Value) string {
	var members []string
	timed := 0
	for e := range v.All() {
		text, _ := e.Text()
		if members = append(members, text); strings.HasPrefix(text, "!") || strings.HasPrefix(text, "~") {
			timed = len(members)
		}
	}
	slices.Sort(members[:timed])
	return fmt.Sprint(members)
}

// Two calls of one millisecond on a server, and of two on the other, are the same to a comparison.
func TestTurnsOfALineByName(t *testing.T) {
	srv := fakeredis.New()
	t.Cleanup(srv.Close)
	pool := redistest.Open(t, conn.Config{Dial: srv.Dial})
	srv.Do("ZADD", "one", "-5", "!a", "-5", "!b", "2", "b", "3", "a")
	srv.Do("ZADD", "two", "-5", "!b", "-4", "!a", "2", "b", "3", "a")
	for _, name := range []string{"one", "two"} {
		members, err := pool.Do(t.Context(), "ZRANGE", name, 0, -1)
		if got := lineMembers(members); err != nil || got != "[!a !b b a]" {
			t.Errorf("line %s: %s, %v, want [!a !b b a]", name, got, err)
		}
	}
}
