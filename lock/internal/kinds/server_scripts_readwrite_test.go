package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/lockwire/lockwire/internal/lockscripts"
)

const (
	walkReadWrite = "redisson_rwlock:{walk}"
	walkWriters   = "lockwire_rwlock_writers:{walk}"
)

// published takes the place of PUBLISH: the payloads are kept under the name of the channel, and compared with the rest.
const published = "APPEND"

// readWriteStep does one operation of either half, or lets a lease end, or puts something else in the lock's place.
func (w *twin) readWriteStep(random *rand.Rand) bool {
	if random.IntN(100) == 0 {
		return w.do("FLUSHALL") // before anything is old enough to be rounded otherwise on the other server
	}
	if random.IntN(4) == 0 {
		w.owner = fmt.Sprintf("client:%d", random.IntN(3)) // of the next few operations
	}
	owner := w.owner
	writer := owner + ":write"
	lease := []int{0, 40_000, 60_000, 90_000}[random.IntN(4)]
	keys := []string{walkLock, walkReadWrite, walkWriters, lockscripts.TimeoutKey(walkLock, owner, 1), fmt.Sprint(walkLatch, random.IntN(4))}
	holds := func(owner string) (keys []string) {
		for n := range int64(20) {
			keys = append(keys, lockscripts.TimeoutKey(walkLock, owner, n+1))
		}
		return keys
	}
	keys = append(keys, holds(owner)[1:]...)
	some := keys
	if random.IntN(2) == 0 {
		some = slices.Clone(keys)
		some[4] = walkLatch + "9" // nobody's
		w.real.Do(w.t.Context(), "DEL", some[4])
		w.fake.Do(w.t.Context(), "DEL", some[4])
	}
	before := random.IntN(3)
	switch random.IntN(25) {
	case 20, 21, 22:
		return w.do("DEL", walkLatch+"0", walkLatch+"1", walkLatch+"2", walkLatch+"3")
	case 23:
		return w.scriptOf("write", "acquire", some, max(lease, 40_000), writer, 0, soon()) &&
			w.scriptOf("read", "acquire", some, max(lease, 40_000), owner, 0, soon())
	case 0, 1, 2:
		return w.scriptOf("read", "acquire", some, max(lease, 40_000), owner, random.IntN(2), soon())
	case 3, 4:
		return w.scriptOf("write", "acquire", some, max(lease, 40_000), writer, random.IntN(2)*15_000, soon())
	case 5, 6, 7:
		return w.scriptOf("read", "release", keys, lease, owner, published, 30_000, random.IntN(2), min(1, random.Int64N(4))*soon())
	case 8, 9:
		return w.scriptOf("write", "release", keys, lease, writer, published, 30_000, random.IntN(2), min(1, random.Int64N(4))*soon())
	case 10:
		return w.scriptOf("read", "undo", some, lease, owner, published, before, soon(), 0)
	case 11:
		return w.scriptOf("read", "undo", keys, lease, owner, published, before, soon(), 0)
	case 12:
		return w.scriptOf("write", "undo", some, lease, writer, published, before, soon(), 0)
	case 13, 14:
		return w.scriptOf("write", "downgrade", keys, max(lease, 40_000), owner, published, random.IntN(3)*50_000, soon())
	case 15:
		return w.scriptOf("read", "renew", slices.Concat([]string{walkLock, "free", "text", walkLock}, holds(owner), holds("client:1")), 70_000, owner, owner, owner, "client:1") &&
			w.scriptOf("write", "renew", []string{walkLock, "text"}, 70_000, writer, writer)
	case 16, 17:
		return w.scriptOf("read", "info", keys[:3])
	}
	switch random.IntN(12) {
	case 0:
		return w.scriptOf("read", "force", keys[:3], published, soon(), "read")
	case 1:
		return w.scriptOf("write", "force", keys[:3], published, soon(), "write")
	case 2:
		return w.do("SET", walkLock, "x") && w.do("SET", "text", "x")
	case 3:
		return w.do("DEL", walkLock) && w.do("HSET", walkLock, "client:1", 1) // a lock of another kind
	case 4:
		return w.do("DEL", walkWriters)
	case 5, 6, 7:
		return w.do("DEL", lockscripts.TimeoutKey(walkLock, owner, int64(1+random.IntN(2)))) // its lease ends
	case 8, 9:
		return w.do("DEL", walkLock)
	}
	return w.do("DEL", walkReadWrite, walkLatch+"0", walkLatch+"1", walkLatch+"2", walkLatch+"3")
}
