package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
)

// Both are printed by every run; setting the seed repeats its faults, setting the time makes it longer.
const (
	tortureSeedEnv = "LOCKWIRE_TORTURE_SEED"
	tortureTimeEnv = "LOCKWIRE_TORTURE_TIME"
)

// torture is worker processes that contend for the same locks on one server while everything that can fail does.
type torture struct {
	t       *testing.T
	s       *redistest.Server
	rng     *rand.Rand
	orders  orders // for each worker, but for its number and address
	history *locktorture.History
	proxies []*faultproxy.Proxy
	slots   []*slot
	started int // number of processes so far
	repairs []repair
	faults  map[string]int
	stops   int  // of processes, for longer than a lease
	paused  bool // the server is
}

// slot is the place of one worker process; whoever is killed is followed by another.
type slot struct {
	process *locktorture.Process
	proxy   *faultproxy.Proxy
	stopped bool
}

// repair ends a fault.
type repair struct {
	at time.Time
	do func()
}

func newTorture(t *testing.T, s *redistest.Server, seed uint64, proxies int, o orders) *torture {
	x := &torture{
		t: t, s: s, orders: o, history: new(locktorture.History), faults: map[string]int{},
		rng: rand.New(rand.NewPCG(seed, 0)),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d repeats the faults", tortureSeedEnv, seed)
		}
	})
	x.orders.Seed = seed
	for i := range proxies {
		p := startProxy(t, s)
		p.Latency(0, x.jitter(i))
		x.proxies = append(x.proxies, p)
	}
	return x
}

// start starts a worker in each of n slots.
func (x *torture) start(n int) {
	for i := range n {
		s := &slot{proxy: x.proxies[i%len(x.proxies)]}
		x.slots = append(x.slots, s)
		x.fill(s)
	}
}

func (x *torture) fill(s *slot) {
	x.started++
	o := x.orders
	o.Process, o.Protocol = x.started, 2+x.started%2
	o.Network, o.Addr = "tcp", s.proxy.Addr()
	s.process, s.stopped = startWorker(x.t, x.history, x.s, o), false
}

func (x *torture) repairIn(d time.Duration, do func()) {
	x.repairs = append(x.repairs, repair{time.Now().Add(d), do})
}

// repair ends the faults that are due by then.
func (x *torture) repair(by time.Time) {
	var rest []repair
	for _, r := range x.repairs {
		if r.at.After(by) {
			rest = append(rest, r)
		} else {
			r.do()
		}
	}
	x.repairs = rest
}

// run does each of the faults once and then any of them at random, until the time is over, and ends those that last.
func (x *torture) run(length time.Duration, faults []fault, over func() bool) {
	ctx, cancel := context.WithTimeout(x.t.Context(), length)
	defer cancel()
	first := x.rng.Perm(len(faults))
	for next := time.Now(); ctx.Err() == nil && !over(); pause(ctx, 5*time.Millisecond) {
		x.repair(time.Now())
		if time.Now().Before(next) {
			continue
		}
		i := x.rng.IntN(len(faults))
		if len(first) > 0 {
			i, first = first[0], first[1:]
		}
		faults[i].do(x)
		x.faults[faults[i].name]++
		next = time.Now().Add(upTo(x.rng, x.orders.Lease/2))
	}
	x.repair(time.Now().Add(time.Hour))
}

// end ends all workers, each goroutine of which must get a lock once more before.
func (x *torture) end() {
	var workers []*locktorture.Process
	for _, s := range x.slots {
		workers = append(workers, s.process)
	}
	finish(x.t, workers...)
}

// tortureTime is how long to torture: longer where the environment says so.
func tortureTime(t *testing.T, usual time.Duration) time.Duration {
	text, ok := os.LookupEnv(tortureTimeEnv)
	if !ok {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", tortureTimeEnv, err)
	}
	return d
}

// tortureSeed is another one each time, unless the environment says which.
func tortureSeed(t *testing.T) uint64 {
	text, ok := os.LookupEnv(tortureSeedEnv)
	if !ok {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", tortureSeedEnv, err)
	}
	return seed
}

// Whatever fails, no two owners have the same lock at the same time, every holder is told of a loss, and in the end
// every process gets its locks.
func TestMutualExclusionUnderFaults(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newTorture(t, s, tortureSeed(t), 4, orders{Lease: 400 * time.Millisecond, Goroutines: 8})
		for i := range 10 {
			x.orders.Names = append(x.orders.Names, fmt.Sprint("lock-", i))
		}
		x.start(8)
		x.run(tortureTime(t, 8*time.Second), allFaults, func() bool { return false })
		x.end()
		noViolations(t, x.history)
		x.wasRough()
		// Locks of those who were killed go with their leases.
		latchesLeft(t, s, 2*x.orders.Lease+time.Second, anyNumber)
	})
}

// wasRough fails the test unless locks were had and lost all the time, and every fault was there.
func (x *torture) wasRough() {
	acquired := map[string]int{}
	kinds := map[locktorture.Kind]int{}
	outcomes := map[string]int{}
	var slowest time.Duration
	for _, e := range x.history.Events() {
		kinds[e.Kind]++
		switch e.Kind {
		case locktorture.Acquired:
			acquired[e.Name]++
		case locktorture.Released:
			outcome, _, _ := strings.Cut(e.Text, ":")
			outcomes[outcome]++
		case locktorture.Note:
			slowest = max(slowest, e.Until)
		}
	}
	x.t.Logf("%d processes, events %v, releases %v, faults %v, stopped for longer than the lease %d, slowest lock after the faults %v",
		x.started, kinds, outcomes, x.faults, x.stops, slowest)
	for _, name := range x.orders.Names {
		if acquired[name] < 10 {
			x.t.Errorf("%s was had %d times", name, acquired[name])
		}
	}
	for _, f := range allFaults {
		if x.faults[f.name] == 0 {
			x.t.Errorf("there was no %s", f.name)
		}
	}
	if kinds[locktorture.Lost] == 0 || kinds[locktorture.Extended] == 0 {
		x.t.Errorf("%d holds were lost, %d extended: none was tried hard", kinds[locktorture.Lost], kinds[locktorture.Extended])
	}
}

// The torture is rough enough to find out workers that rely on a lock until they release it, as those do who do not
// look at their leases: a process that is stopped goes on with a lock that another one has.
func TestTortureFindsTheCareless(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		x := newTorture(t, s, tortureSeed(t), 1, orders{
			Lease: 300 * time.Millisecond, Goroutines: 4, Names: []string{"a", "b", "c"}, Careless: true,
		})
		x.start(4)
		found := func() bool { return len(locktorture.Overlaps(x.history.Holds())) > 0 }
		x.run(patience, []fault{stopsOfProcesses}, found)
		if !found() {
			t.Errorf("no overlap among %d holds with %d stops", len(x.history.Holds()), x.stops)
		}
		x.end()
	})
}
