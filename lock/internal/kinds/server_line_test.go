package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

const walkLine = "lockwire_line:{walk}"

// TestLineLikeTheServer compares the scripts with a line and their Go functions, step by step on a random walk: three clients, of
// which one does not listen, another kind of client that does now and then, and places that come and go.
func TestLineLikeTheServer(t *testing.T) {
	t.Parallel()
	walk(t, "reentrant", 1000, new(lineWalk).step)
}

type lineWalk struct {
	twin      *twin
	strangers []*pubsub.Subscription
	listeners []*pubsub.Subscriber
}

func (l *lineWalk) step(w *twin, random *rand.Rand) bool {
	if l.twin != w {
		*l = lineWalk{twin: w}
		for _, p := range []*conn.Pool{w.real, w.fake} {
			s := pubsub.New(p, pubsub.Config{})
			w.t.Cleanup(func() { _ = s.Close() })
			l.listeners = append(l.listeners, s)
			if _, err := s.Subscribe(w.t.Context(), walkChannel+":c0", walkChannel+":c1"); err != nil {
				w.t.Error(err)
				return false
			}
		}
	}
	keys := []string{walkLock, walkChannel, fmt.Sprint(walkLatch, random.IntN(3)), walkLine}
	owner, client := fmt.Sprintf("client:%d", random.IntN(2)), fmt.Sprintf("c%d", random.IntN(3))
	place := fmt.Sprint(client, ":", random.IntN(2))
	stand := []string{"", "join", "join", "leave", "move"}[random.IntN(5)]
	way := []string{"", "leave", "move"}[random.IntN(3)]
	counts := random.IntN(3)
	same := true
	switch random.IntN(11) {
	case 0, 1, 2, 3:
		same = w.script("acquire", keys, 40_000, owner, soon(), place, stand)
	case 4, 5:
		same = w.script("single", keys, 0, owner, "PUBLISH", 30_000, random.IntN(2), counts, client, place, way)
	case 6:
		same = w.script("release", keys, 40_000*random.IntN(2), owner, "PUBLISH", 30_000, 0, soon(), counts, client, place, way)
	case 7:
		same = w.script("undo", keys, 0, owner, "PUBLISH", random.IntN(2), soon(), counts, client)
	case 8:
		same = w.script("force", []string{walkLock, walkChannel, walkLine}, "PUBLISH", soon(), counts, client)
	case 9:
		same = w.scriptOf(kinds.Any, "quit", []string{walkLock, walkChannel, walkLine}, "PUBLISH", counts, client, place)
	default:
		if random.IntN(2) == 0 {
			same = w.do("DEL", walkLatch+"0", walkLatch+"1", walkLatch+"2")
		} else if !l.changeStrangers(w) {
			return false
		}
	}
	return same && l.lastingTurn(w) && l.farVisit(w)
}

// changeStrangers begins or ends the subscription of a client without a line.
func (l *lineWalk) changeStrangers(w *twin) bool {
	if l.strangers != nil {
		for i, s := range l.strangers {
			_ = s.Close()
			pool := []*conn.Pool{w.real, w.fake}[i]
			for {
				v, err := pool.Do(w.t.Context(), "PUBSUB", "NUMSUB", walkChannel)
				if n, _ := v.At(1).Int(); err != nil || n == 0 {
					break
				}
			}
		}
		l.strangers = nil
		return true
	}
	for _, s := range l.listeners {
		sub, err := s.Subscribe(w.t.Context(), walkChannel)
		if err != nil {
			w.t.Error(err)
			return false
		}
		l.strangers = append(l.strangers, sub)
	}
	return true
}

// lastingTurn makes turns last for nine seconds more: otherwise the speed of the machine would decide.
func (l *lineWalk) lastingTurn(w *twin) bool {
	for _, p := range []*conn.Pool{w.real, w.fake} {
		v, err := p.Do(w.t.Context(), "ZRANGE", walkLine, 0, 0)
		if err != nil {
			w.t.Error(err)
			return false
		}
		member, _ := v.At(0).Text()
		if !strings.HasPrefix(member, "!") {
			continue
		}
		if _, err := p.Do(w.t.Context(), "ZADD", walkLine, -time.Now().UnixMilli()-9000, member); err != nil {
			w.t.Error(err)
			return false
		}
	}
	return true
}

// farVisit moves a visit due in a second an hour ahead: otherwise the speed of the machine would decide the order.
func (l *lineWalk) farVisit(w *twin) bool {
	for _, p := range []*conn.Pool{w.real, w.fake} {
		v, err := p.Do(w.t.Context(), "ZSCORE", walkLine, "*")
		if err != nil {
			w.t.Error(err)
			return false
		}
		if score, missing := v.Float(); missing == nil && int64(score) > time.Now().UnixMicro() {
			return w.do("ZADD", walkLine, time.Now().Add(time.Hour).UnixMicro(), "*")
		}
	}
	return true
}

// lineMembers are the members of a line in their order.
func lineMembers(v resp.Value) string {
	var members []string
	for e := range v.All() {
		text, _ := e.Text()
		members = append(members, text)
	}
	return fmt.Sprint(members)
}
