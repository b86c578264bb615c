package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// The walks compare the scripts of the kinds without leases, and of permits, with their models: see TestScriptsLikeTheServer.

const walkOwnChannel = "redisson_sc:{walk}"

func latchOf(random *rand.Rand) string { return fmt.Sprint(walkLatch, random.IntN(4)) }

// elsewhere is what happens to the keys of a walk apart from its scripts.
func (w *twin) elsewhere(random *rand.Rand, more ...string) bool {
	switch random.IntN(8) {
	case 0:
		return w.do("SET", walkLock, "x")
	case 1:
		return w.do("SET", walkLock, 3, "PX", 90_000)
	case 2:
		return w.do("HSET", walkLock, "client:1", 1)
	case 3:
		return w.do("SET", walkLock, -2)
	}
	keys := []any{"DEL", walkLock, walkLatch + "0", walkLatch + "1", walkLatch + "2", walkLatch + "3"}
	for _, key := range more {
		keys = append(keys, key)
	}
	return w.do(keys...)
}

func TestSemaphoreLikeTheServer(t *testing.T) {
	t.Parallel()
	walk(t, "semaphore", 1500, func(w *twin, random *rand.Rand) bool {
		keys := []string{walkLock, walkOwnChannel, latchOf(random)}
		switch random.IntN(12) {
		case 0, 1, 2:
			return w.script("acquire", keys, 60_000, "", 1+random.IntN(3), random.IntN(2), soon())
		case 3, 4:
			return w.script("undo", keys, 0, "", "PUBLISH", 0, soon())
		case 5, 6:
			return w.script("add", keys, 60_000, "PUBLISH", random.IntN(7)-2, random.IntN(2), soon())
		case 7, 8:
			return w.script("set", keys, 60_000, "PUBLISH", random.IntN(4), 70_000*random.IntN(2), soon())
		case 9:
			return w.script("drain", keys, 60_000, "PUBLISH", soon())
		case 10:
			return w.script("info", keys[:2])
		}
		return w.elsewhere(random)
	})
}

func TestCountdownLikeTheServer(t *testing.T) {
	t.Parallel()
	walk(t, "latch", 1500, func(w *twin, random *rand.Rand) bool {
		keys := []string{walkLock, "redisson_countdownlatch__channel__{walk}", latchOf(random)}
		switch random.IntN(9) {
		case 0, 1:
			return w.script("acquire", keys[:1], 0, "")
		case 2, 3:
			return w.script("set", keys, 60_000, "PUBLISH", 1+random.IntN(3), soon())
		case 4, 5, 6:
			return w.script("down", keys, 60_000, "PUBLISH", soon())
		case 7:
			return w.script("delete", keys, 60_000, "PUBLISH", soon())
		}
		return w.elsewhere(random)
	})
}

// walkIDs returns the ids of 1 to 3 of 4 permits, one behind the other.
func walkIDs(random *rand.Rand) string {
	var ids strings.Builder
	for _, n := range random.Perm(4)[:1+random.IntN(3)] {
		ids.WriteString(strings.Repeat(fmt.Sprint(n), 15) + "\xff")
	}
	return ids.String()
}

// permits compares what info tells, without the order of those that end at almost the same time.
func (w *twin) permits(keys []string) bool {
	w.t.Helper()
	run := func(p *conn.Pool) string {
		v, err := kinds.All()[w.kind]["info"].Run(w.t.Context(), p, keys)
		if err != nil {
			return answer(v, err)
		}
		var list []string
		for i := 3; i+1 < v.Len(); i += 2 {
			list = append(list, answer(v.At(i), nil)+": "+answer(v.At(i+1), nil))
		}
		slices.Sort(list)
		return fmt.Sprint(answer(v.At(0), nil), answer(v.At(1), nil), answer(v.At(2), nil), list)
	}
	return w.same(fmt.Sprint(w.kind, " info ", keys), run(w.real), run(w.fake))
}

func TestPermitsLikeTheServer(t *testing.T) {
	t.Parallel()
	walk(t, "permits", 2000, func(w *twin, random *rand.Rand) bool {
		const taken = "{walk}:timeout"
		keys, ids := []string{walkLock, walkOwnChannel, taken, latchOf(random)}, walkIDs(random)
		lease := []int{-1000, 45_000, 65_000, 85_000}[random.IntN(4)]
		switch random.IntN(18) {
		case 0, 1, 2, 3, 4:
			return w.script("acquire", keys, lease, ids, "PUBLISH", random.IntN(2), random.IntN(5)/4, soon())
		case 5, 6:
			return w.script("release", keys, 0, ids, "PUBLISH", 30_000, 0)
		case 7:
			return w.script("give", keys, 60_000, "PUBLISH", ids, soon())
		case 8:
			return w.script("undo", keys, 0, ids, "PUBLISH", 0, soon())
		case 9:
			return w.script("renew", []string{walkLock, "free", "{free}:x", walkLock},
				[]int{-2, 75_000}[random.IntN(2)], ids, ids, ids, walkIDs(random))
		case 10:
			return w.script("force", keys[:3], "PUBLISH", soon())
		case 11, 12:
			return w.permits(keys[:3])
		case 13:
			return w.script("add", keys, 60_000, "PUBLISH", random.IntN(5)-1, 0, soon())
		case 14:
			return w.script("add", keys, 60_000, "PUBLISH", random.IntN(5), 1, soon())
		case 15:
			return w.script("lease", keys[:3], ids[:16], []int{-1, 0, 55_000}[random.IntN(3)], soon())
		case 16:
			if random.IntN(20) == 0 {
				return w.do("SET", taken, "x")
			}
			return w.do("SET", walkLock, random.IntN(5))
		}
		return w.elsewhere(random, taken)
	})
}
