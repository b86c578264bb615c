package kinds_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/pubsub"
)

// Who is next for values of a group looks again at the end of the time for which it keeps others out: 1.5 s after it was first next, 484 ms later. A
// client that knows nothing of the line is told of a release.
func TestServerWordOfAGroup(t *testing.T) {
	const place = "00000000-0000-0000-0000-000000000001:a b:1:100"
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		s.Do("FLUSHALL")
		pool := redistest.Open(t, s.Config())
		group := kinds.FasterMulti.Get()
		ms := func() int64 {
			v, err := pool.Do(t.Context(), "TIME")
			seconds, bad := v.At(0).Int()
			micros, worse := v.At(1).Int()
			if err != nil || bad != nil || worse != nil {
				t.Fatal(err, bad, worse)
			}
			return seconds*1000 + micros/1000
		}
		acquire := func(owner, values string, place ...any) int64 {
			args := append([]any{60_000, owner + " " + values, soon()}, place...)
			v, err := group.Acquire.Run(t.Context(), pool, []string{walkLock, walkLatch + "0", walkLine}, args...)
			if n, _ := v.Int(); err == nil {
				return n
			}
			t.Fatal(err)
			return 0
		}
		if acquire("client:1", "a") != 0 {
			t.Fatal("a free value is refused")
		}
		since := ms() - 1500
		s.Do("ZADD", walkLine, since, place)
		s.Do("PEXPIRE", walkLine, 25_000)
		again := acquire("client:2", "a b", place)
		if late := ms() - since - 1500; late < 400 && (again > 484 || again < 484-late) { // otherwise it may let others in by now
			t.Errorf("it is to look again after %d ms, want 484 less %d at most", again, late)
		} else if ends, err := s.Do("ZSCORE", walkLine, "~"+place).Float(); late < 400 {
			if ends := -int64(ends) - since; err != nil || ends < 2083 || ends > 2085+late { // 1500 + 484 + 100, rounded; the script may be held up
				t.Errorf("its word ends %d ms after it became next, want 2084: %v", ends, err)
			}
		}

		visitor := pubsub.New(pool, pubsub.Config{})
		defer visitor.Close()
		told, err := visitor.Subscribe(t.Context(), walkChannel)
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{walkLock, walkChannel, walkLatch + "1", walkLine}
		if _, err := group.Release.Run(t.Context(), pool, keys, 0, "client:1 a", "PUBLISH", 20_000, 0, 0, 1, "client", "", ""); err != nil {
			t.Fatal(err)
		}
		s.Do("PUBLISH", walkChannel, "the last")
		for e := range told.Events() {
			if e.Kind == pubsub.Message {
				if e.Payload != "0" {
					t.Errorf("the visitor is told %q, want 0", e.Payload)
				}
				return
			}
		}
	})
}

// A release of other values ends an old place without a listener, and leaves a young one.
func TestServerDeadPlaceOfAGroup(t *testing.T) {
	const dead, young = "00000000-0000-0000-0000-000000000001:x:1:100", "00000000-0000-0000-0000-000000000002:y:1:100"
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		s.Do("FLUSHALL")
		pool := redistest.Open(t, s.Config())
		group := kinds.FasterMulti.Get()
		if _, err := group.Acquire.Run(t.Context(), pool, []string{walkLock, walkLatch + "0", walkLine}, 60_000, "client:1 a", soon()); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		s.Do("ZADD", walkLine, now.Add(-time.Minute).UnixMicro(), dead, now.UnixMicro(), young)
		keys := []string{walkLock, walkChannel, walkLatch + "1", walkLine}
		if _, err := group.Release.Run(t.Context(), pool, keys, 0, "client:1 a", "PUBLISH", 20_000, 0, 0, 1, "client", "", ""); err != nil {
			t.Fatal(err)
		}
		if line := answer(pool.Do(t.Context(), "ZRANGE", walkLine, 0, -1)); strings.Contains(line, dead) || !strings.Contains(line, young) {
			t.Errorf("in the line are %s, want %s", line, young)
		}
	})
}
