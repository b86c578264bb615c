package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// calmWorld runs test with a world of a single server and object, where nothing is wrong any more.
func calmWorld(t *testing.T, o *object, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			history: &history{start: time.Now()}, start: time.Now(), times: soleTimes, srv: fakeredis.New(), objects: []*object{o},
			calmSince: time.Now(), report: Report{Excused: map[string]int{}},
		}
		defer w.srv.Close()
		w.servers = []*fakeredis.Server{w.srv}
		time.Sleep(w.times.settle + time.Second)
		test(t, w)
	})
}

// orphaned has a server grant a lock of 5 s to an owner of a living process that no call is about.
func orphaned(t *testing.T, w *world, ahead time.Duration) (grants func()) {
	t.Helper()
	pool, err := conn.New(conn.Config{Dial: w.srv.Dial})
	if err != nil {
		t.Fatal(err)
	}
	client, err := lock.New(pool, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	t.Cleanup(func() { _ = client.Close() })
	w.living = []*process{{world: w, client: client, routes: []*route{{ahead: ahead}}}}
	return func() {
		w.srv.Do("HSET", "o0", client.ID()+":1", "1")
		w.srv.Do("PEXPIRE", "o0", "5000")
	}
}

// orphansFound is how many violations looks of 20 s find, in which the owner has the lock for ever or for its lease.
func orphansFound(w *world, ever bool) int {
	for range int(20 * time.Second / tick) {
		time.Sleep(tick)
		if ever {
			w.srv.Do("PEXPIRE", "o0", "5000")
		}
		w.judgeOrphans()
	}
	return len(w.violations)
}

func newSpin() *object {
	return &object{name: "o0", family: exclusive, kinds: []string{spin}, orphans: map[string]orphan{}}
}

// An owner whom nobody knows is a violation, except for as long as a clock set back makes a lease of before.
func TestOrphanOfAClockSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		back   time.Duration // by which the clock is set back
		before bool          // the owner has the lock before
		ever   bool
		want   int
	}{
		"known to nobody":  {ever: true, want: 1},
		"before":           {7 * time.Second, true, false, 0},
		"before, for ever": {7 * time.Second, true, true, 1},
		"behind":           {7 * time.Second, false, true, 1},
		"ahead, for ever":  {-time.Second, true, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := newSpin()
			calmWorld(t, o, func(t *testing.T, w *world) {
				grants := orphaned(t, w, 0)
				if c.before {
					grants()
				}
				w.age(o, w.srv, c.back)
				w.srv.Jump(-c.back)
				if !c.before {
					grants()
				}
				if found := orphansFound(w, c.ever); found != c.want {
					t.Errorf("%d violations, want %d: %q", found, c.want, w.violations)
				}
			})
		})
	}
}

// An owner whom nobody knows may have the lock for a lease, if a server with a clock behind its process's took a late request for
// one in time.
func TestOrphanOfALateRequest(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration // the clock of the process
		ever  bool
		want  int
	}{"in time": {0, false, 1}, "behind": {-time.Second, false, 1}, "ahead": {3 * time.Second, false, 0}, "ahead, for ever": {3 * time.Second, true, 1}} {
		t.Run(name, func(t *testing.T) {
			calmWorld(t, newSpin(), func(t *testing.T, w *world) {
				w.calmSince = time.Now()
				orphaned(t, w, c.ahead)()
				if found := orphansFound(w, c.ever); found != c.want {
					t.Errorf("%d violations, want %d: %q", found, c.want, w.violations)
				}
			})
		})
	}
}

// owned is a lease of which nothing but the owner is asked.
type owned struct {
	lease
	owner string
}

func (l owned) Owner() string { return l.owner }

// An owner may have the lock for its lease after the server has refused the release for want of a right.
func TestOrphanOfARefusedRelease(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		ever bool
		want int
	}{
		"refused":           {resp.ErrNoPerm + " this user has no permissions", false, 0},
		"refused, for ever": {resp.ErrNoPerm + " this user has no permissions", true, 1},
		"released":          {nil, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			calmWorld(t, newSpin(), func(t *testing.T, w *world) {
				orphaned(t, w, 0)()
				p := w.living[0]
				h := &hold{object: w.objects[0], worker: &worker{process: p}, lease: owned{owner: p.client.ID() + ":1"}, term: 5 * time.Second}
				w.released(h, time.Now(), c.err)
				if found := orphansFound(w, c.ever); found != c.want {
					t.Errorf("%d violations, want %d: %q", found, c.want, w.violations)
				}
			})
		})
	}
}

// The order of a fair queue is judged, except where Redisson's waiters tell a time that is not the server's.
func TestQueueOfRedissonsClocks(t *testing.T) {
	for name, c := range map[string]struct {
		mixed bool
		ahead time.Duration
		want  int
	}{"ours alone": {false, time.Second, 1}, "in time": {true, 0, 1}, "clock jumped": {true, time.Second, 0}} {
		t.Run(name, func(t *testing.T) {
			calmWorld(t, &object{name: "o0", family: exclusive, kinds: []string{fair}}, func(t *testing.T, w *world) {
				w.mixed = c.mixed
				w.srv.Jump(c.ahead)
				first, second := stand{owner: "p:1", number: 1, since: time.Now()}, stand{owner: "p:2", number: 2, since: time.Now()}
				w.objects[0].queue.overtook = [][2]stand{{first, second}}
				w.judgeQueues()
				if found := len(w.violations); found != c.want {
					t.Errorf("%d violations, want %d: %q", found, c.want, w.violations)
				}
			})
		})
	}
}
