package kinds_test

import (
	"fmt"
	"math/rand/v2"
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
)

// fairWalk is a random walk over the operations of a fair lock on two servers.
type fairWalk struct {
	twin
	start  time.Time // what times in replies and values are counted from
	random *rand.Rand
}

const (
	fairChannel  = "redisson_lock__channel:{walk}"
	fairQueue    = "redisson_lock_queue:{walk}"
	fairTimeouts = "redisson_lock_timeout:{walk}"
	fairIdle     = "lockwire_fair_head:{walk}"
)

// TestFairScriptsLikeTheServer is TestScriptsLikeTheServer for the scripts of fair locks. Of the waiters two listen, deadlines
// pass, and queues are lost in part; messages are compared at the end.
func TestFairScriptsLikeTheServer(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		seed := uint64(time.Now().UnixNano())
		srv := fakeredis.New()
		defer srv.Close()
		lockscripts.Load(srv, kinds.All())
		w := &fairWalk{start: time.Now(), random: rand.New(rand.NewPCG(seed, 1))}
		w.t, w.real, w.fake = t, redistest.Open(t, s.Config()), redistest.Open(t, conn.Config{Dial: srv.Dial, Protocol: proto})
		defer w.fake.Close() // before srv
		w.walk()
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
}

// One who waits in the queue and gets the lock as another kind has a further hold, and no place any more.
func TestServerFairPlaceOfAFurtherHold(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := redistest.Open(t, s.Config())
		acquire := func(owner string) string {
			keys := []string{walkLock, fairChannel, fairQueue, fairTimeouts, fairIdle, walkLatch + "0"}
			return answer(kinds.All()["fair"]["acquire"].Run(t.Context(), pool, keys, 40_000, owner, 100_000, true, true, soon(), 1, "PUBLISH"))
		}
		acquire("client:0")
		acquire("client:1")
		s.Do("HSET", walkLock, "client:1", 1)
		if got := acquire("client:1"); !strings.Contains(got, "2") {
			t.Errorf("the further hold is %s, want the second", got)
		}
		if n, _ := s.Do("EXISTS", fairQueue, fairTimeouts).Int(); n != 0 {
			t.Errorf("%d keys of the queue are left", n)
		}
	})
}

// A waiter in the queue has the lock as another kind, and goes on waiting without it: it has one place.
func TestServerFairPlaceAfterAnUndo(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := redistest.Open(t, s.Config())
		s.Do("RPUSH", fairQueue, "client:1", "client:2")
		s.Do("ZADD", fairTimeouts, soon(), "client:1", soon(), "client:2")
		s.Do("HSET", walkLock, "client:1", 1)
		keys := []string{walkLock, fairChannel, fairQueue, fairTimeouts, fairIdle, walkLatch + "0"}
		got := answer(kinds.All()["fair"]["undo"].Run(t.Context(), pool, keys, 0, "client:1", "PUBLISH", 0, soon(), 100_000, 1, 0, 1))
		if !strings.Contains(got, "1") {
			t.Errorf("the undo returns %s, want 1", got)
		}
		queue := answer(pool.Do(t.Context(), "LRANGE", fairQueue, 0, -1))
		if strings.Count(queue, "client:1") != 1 || strings.Index(queue, "client:1") > strings.Index(queue, "client:2") {
			t.Errorf("the queue is %s, want client:1 and client:2", queue)
		}
	})
}

func (w *fairWalk) walk() {
	const all = "redisson_lock__channel*"
	for _, p := range []*conn.Pool{w.real, w.fake} {
		w.listen(p, resp.Cmd("SUBSCRIBE", fairChannel+":client:1"), resp.Cmd("SUBSCRIBE", fairChannel+":client:3"))
	}
	real, fake := w.listen(w.real, resp.Cmd("PSUBSCRIBE", all)), w.listen(w.fake, resp.Cmd("PSUBSCRIBE", all))
	// Times differ by more than is rounded away if it takes too long.
	for n := 0; n < 1500 && time.Since(w.start) < 8*time.Second; n++ {
		if !w.step() || !w.sameAge() {
			return
		}
	}
	w.ask("PUBLISH", fairChannel, "the end")
	if a, b := w.heard(real), w.heard(fake); !slices.Equal(a, b) {
		w.t.Errorf("on the server was published\n%q\non the fake\n%q", a, b)
	}
}

// listen returns a stream on which commands to subscribe have been confirmed.
func (w *fairWalk) listen(p *conn.Pool, commands ...resp.Command) *conn.Stream {
	w.t.Helper()
	stream, err := p.Stream(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { stream.Close() })
	if err := stream.Write(w.t.Context(), commands...); err != nil {
		w.t.Fatal(err)
	}
	for range commands {
		if _, err := stream.Read(); err != nil {
			w.t.Fatal(err)
		}
	}
	return stream
}

// heard returns what has been published until the end.
func (w *fairWalk) heard(stream *conn.Stream) []string {
	w.t.Helper()
	var list []string
	for {
		v, err := stream.Read()
		if err != nil {
			w.t.Fatal(err)
		}
		channel, _ := v.At(2).Text()
		payload, _ := v.At(3).Text()
		if payload == "the end" {
			return list
		}
		list = append(list, channel+" "+payload)
	}
}

func (w *fairWalk) step() bool {
	owner := fmt.Sprintf("client:%d", w.random.IntN(5))
	lease := []int{0, 40_000, 60_000, 90_000}[w.random.IntN(4)]
	wait := []int{100_000, 300_000}[w.random.IntN(2)]
	latch := fmt.Sprint(walkLatch, w.random.IntN(4))
	keys := []string{walkLock, fairChannel, fairQueue, fairTimeouts, fairIdle}
	switch w.random.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		if lease == 0 {
			lease = 9_000 // who waits is told
		}
		return w.run("acquire", append(keys, latch), lease, owner, wait, w.random.IntN(4) > 0, w.random.IntN(4) > 0, soon(), w.random.IntN(2), "PUBLISH")
	case 6, 7, 8:
		return w.run("release", append(keys, latch), lease, owner, "PUBLISH", 30_000, w.random.IntN(2), min(1, w.random.Int64N(4))*soon(), w.random.IntN(2))
	case 9, 10, 11:
		return w.run("undo", append(keys, latch), lease, owner, "PUBLISH", w.random.IntN(2), soon(), wait, w.random.IntN(2), 1)
	case 12, 13:
		return w.run("pass", keys, owner, "PUBLISH", w.random.IntN(4) > 0)
	case 14:
		return w.run("info", keys)
	case 15:
		return w.run("force", keys, "PUBLISH", soon())
	}
	return w.passTime(owner)
}

// sameAge gives the mark of who heads the queue the same age on both servers, a while from the ages that decide: the speed of the machine
// would decide otherwise.
func (w *fairWalk) sameAge() bool {
	w.t.Helper()
	left, err := resp.As[int](w.real.Do(w.t.Context(), "PTTL", fairIdle))
	switch {
	case err != nil:
		w.t.Error(err)
		return false
	case left < 0:
		return true
	case left > 29_000:
		left = 30_000
	case left > 15_000:
		left = 28_500
	default:
		left = 14_500
	}
	return w.ask("PEXPIRE", fairIdle, left)
}

// passTime does what time does, and others.
func (w *fairWalk) passTime(owner string) bool {
	in := func(d time.Duration) int64 { return w.start.Add(d).UnixMilli() }
	switch w.random.IntN(12) {
	case 0:
		return w.ask("HSET", walkLock, "stranger:1", 1) // a hold without a lease
	case 1, 2:
		return w.ask("PEXPIRE", fairIdle, 28_500)
	case 3:
		return w.ask("PEXPIRE", fairIdle, 14_500)
	case 4:
		return w.ask("ZADD", fairTimeouts, "XX", in(-time.Minute), owner)
	case 5:
		return w.ask("ZADD", fairTimeouts, "XX", in(25*time.Second), owner)
	case 6:
		return w.ask("ZREM", fairTimeouts, owner)
	case 7:
		return w.ask("LREM", fairQueue, 1, owner)
	case 8:
		if w.random.IntN(4) == 0 {
			return w.ask("SET", fairQueue, "x")
		}
		return w.ask("DEL", []string{fairQueue, fairTimeouts, fairIdle, walkLock}[w.random.IntN(4)])
	}
	return w.ask("DEL", walkLock, walkLatch+"0", walkLatch+"1", walkLatch+"2", walkLatch+"3")
}

func (w *fairWalk) run(operation string, keys []string, args ...any) bool {
	w.t.Helper()
	s := kinds.All()["fair"][operation]
	run := func(p *conn.Pool) string {
		v, err := s.Run(w.t.Context(), p, keys, args...)
		return answer(v, err)
	}
	return w.alike(fmt.Sprint(operation, args), run(w.real), run(w.fake))
}

func (w *fairWalk) ask(args ...any) bool {
	w.t.Helper()
	run := func(p *conn.Pool) string {
		v, err := p.Do(w.t.Context(), args...)
		return answer(v, err)
	}
	return w.alike(fmt.Sprint(args...), run(w.real), run(w.fake))
}

func (w *fairWalk) alike(what, real, fake string) bool {
	w.t.Helper()
	if !sameTexts(real, fake) {
		w.t.Errorf("%s: the server answers %s, the fake %s\nthe server has\n%s", what, real, fake, w.keyspace(w.real))
		return false
	}
	a, b := w.keyspace(w.real), w.keyspace(w.fake)
	if !sameTexts(a, b) {
		w.t.Errorf("%s: the server has\n%s\nthe fake\n%s", what, a, b)
		return false
	}
	return true
}

// keyspace is keyspace for the types that a queue has too.
func (w *fairWalk) keyspace(p *conn.Pool) string {
	w.t.Helper()
	do := func(args ...any) resp.Value {
		v, err := p.Do(w.t.Context(), args...)
		if err != nil {
			w.t.Fatal(err)
		}
		return v
	}
	var lines []string
	for key := range do("KEYS", "*").All() {
		name, _ := key.Text()
		kind, _ := do("TYPE", name).Text()
		left, _ := do("PTTL", name).Int()
		line := fmt.Sprint(kind, " ", name, " ", timeText(left), " ")
		switch kind {
		case "list":
			line += answer(do("LRANGE", name, 0, -1), nil)
		case "zset":
			var members []string
			for member := range do("ZRANGE", name, 0, -1).All() {
				owner, _ := member.Text()
				score, _ := do("ZSCORE", name, owner).Float()
				members = append(members, owner+"="+pointText(strconv.FormatFloat(score, 'f', 0, 64)))
			}
			slices.Sort(members)
			line += fmt.Sprint(members)
		case "hash":
			var fields []string
			pairs, _ := do("HGETALL", name).Pairs()
			for f, v := range pairs {
				fields = append(fields, answer(f, nil)+"="+answer(v, nil))
			}
			slices.Sort(fields)
			line += fmt.Sprint(fields)
		default:
			value, _ := do("GET", name).Text()
			for word := range strings.FieldsSeq(value) {
				line += pointText(word) + " "
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// pointText is text, and a time for sameTexts if text is a point in time.
func pointText(text string) string {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 1_000_000_000_000 {
		return text
	}
	return timeText(ms)
}
