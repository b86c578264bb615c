package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// calmWorld runs test with a world of a single server and object, where nothing is wrong any more.
func calmWorld(t *testing.T, o *object, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			history: &history{start: time.Now()}, start: time.Now(), times: soleTimes, srv: fakeredis.New(), objects: []*object{o},
			calmSince: time.Now(), report: Report{Excused: map[string]int{}},
		}
		defer w.srv.Close()
		w.servers = []*fakeredis.Server{w.srv}
		time.Sleep(w.times.settle + time.Second)
		test(w)
	})
}

// An owner whom nobody knows is a violation, except for as long as a clock set back makes a lease of before.
func TestOrphanOfAClockSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		back   time.Duration // by which the clock is set back
		before bool          // the owner has the lock before
		renews bool          // and for ever
		want   int
	}{
		"known to nobody":  {renews: true, want: 1},
		"before":           {7 * time.Second, true, false, 0},
		"before, for ever": {7 * time.Second, true, true, 1},
		"behind":           {7 * time.Second, false, true, 1},
		"ahead, for ever":  {-time.Second, true, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := &object{name: "o0", family: exclusive, kinds: []string{spin}, orphans: map[string]orphan{}}
			calmWorld(t, o, func(w *world) {
				pool, err := conn.New(conn.Config{Dial: w.srv.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				client, err := lock.New(pool, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				w.living = []*process{{world: w, client: client}}
				jumps := func() {
					w.age(o, w.srv, c.back)
					w.srv.Jump(-c.back)
				}
				if !c.before {
					jumps()
				}
				w.srv.Do("HSET", o.name, client.ID()+":1", "1")
				w.srv.Do("PEXPIRE", o.name, "5000")
				if c.before {
					jumps()
				}
				for range int(20 * time.Second / tick) {
					time.Sleep(tick)
					if c.renews {
						w.srv.Do("PEXPIRE", o.name, "5000")
					}
					w.judgeOrphans()
				}
				if found := len(w.violations); found != c.want {
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
			calmWorld(t, &object{name: "o0", family: exclusive, kinds: []string{fair}}, func(w *world) {
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
