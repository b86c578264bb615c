package lock_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// permitsOfEach is how many permits each semaphore has, and mostPermits how many a worker takes at most.
const permitsOfEach, mostPermits = 6, 3

const (
	tortureEnv     = "LOCKWIRE_TORTURE"      // makes it long
	tortureTimeEnv = "LOCKWIRE_TORTURE_TIME" // how long, for each kind
	tortureSeedEnv = "LOCKWIRE_TORTURE_SEED" // repeats the faults of a run that has failed, which says its seed
)

// torture is worker processes that contend for the same locks on one server while everything that can fail does.
type torture struct {
	t       *testing.T
	s       *redistest.Server
	rng     *rand.Rand
	trade   *trade
	orders  orders // for each worker, but for its number and address
	history *locktorture.History
	locks   *lock.Client // the test's own, which no proxy is in the way of
	close   func()
	queues  *queueWatch // of a kind that has them
	looked  time.Time   // at queues and permits
	proxies []*faultproxy.Proxy
	slots   []*slot
	started int   // number of processes so far
	dead    []int // of these, whose permits have not been given back
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
		t: t, s: s, trade: tradeOf(o.Kind), orders: o, history: new(locktorture.History), faults: map[string]int{},
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
	if x.trade.rules.Queue {
		x.queues = &queueWatch{history: x.history, monitor: s.Monitor()}
	}
	x.open()
	return x
}

// open opens the test's own client and sets up what has a number.
func (x *torture) open() {
	pool, err := conn.Open(x.t.Context(), x.s.Config())
	if err != nil {
		x.t.Fatal(err)
	}
	if x.locks, err = lock.New(pool, lock.Config{}); err != nil {
		x.t.Fatal(err)
	}
	x.close = sync.OnceFunc(func() {
		if err := errors.Join(x.locks.Close(), pool.Close()); err != nil {
			x.t.Error(err)
		}
	})
	x.t.Cleanup(x.close)
	if x.trade.set == nil {
		return
	}
	for i, name := range x.orders.Names {
		n := permitsOfEach
		switch {
		case x.trade.rules.Count && i == 0:
			n = math.MaxInt32
		case x.trade.rules.Count:
			n = 100
		}
		if set, err := x.trade.set(x.t.Context(), x.locks, name, n); err != nil || !set {
			x.t.Fatalf("setting %q up: %v, %v", name, set, err)
		}
		x.history.Add(locktorture.Event{At: locktorture.Now(), Kind: locktorture.Set, Name: name, Permits: n})
	}
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

// look takes in what the server shows, unless that is stopped, and does what is left to do of a killed process.
func (x *torture) look() {
	if x.paused {
		return
	}
	x.looked = time.Now()
	if x.queues != nil {
		x.queues.look()
	}
	if x.trade.rules.Leased {
		x.see()
	}
	for _, process := range x.dead {
		x.giveBackOf(process)
	}
	x.dead = nil
}

// see logs how many permits there are, or what a count is at.
func (x *torture) see() {
	for _, name := range x.orders.Names {
		n, err := x.trade.seen(x.t.Context(), x.locks, name)
		if err != nil {
			x.t.Logf("not seen: %v", err) // a fault
			continue
		}
		x.history.Add(locktorture.Event{At: locktorture.Now(), Kind: locktorture.Seen, Name: name, Permits: n})
	}
}

// giveBackOf gives back what a dead process had and no lease will end.
func (x *torture) giveBackOf(process int) {
	if x.trade.give == nil {
		return
	}
	for _, h := range x.history.Holds() {
		if h.Process != process || h.Given {
			continue
		}
		if err := x.trade.give(x.t.Context(), x.locks, h.Name, h.Permits); err != nil {
			x.t.Errorf("permits of a dead process: %v", err)
		}
		x.history.Add(locktorture.Event{
			At: locktorture.Now(), Process: process, Hold: h.ID, Kind: locktorture.Released, Name: h.Name, Permits: h.Permits,
			Text: locktorture.Freed,
		})
	}
}

// run does each of the faults once and then any of them at random, until the time is over, and ends those that last.
func (x *torture) run(length time.Duration, faults []fault, over func() bool) {
	ctx, cancel := context.WithTimeout(x.t.Context(), length)
	defer cancel()
	bound, stop := context.WithTimeout(x.t.Context(), length+patience)
	defer stop()
	first := x.rng.Perm(len(faults))
	for next := time.Now(); (ctx.Err() == nil || len(first) > 0) && bound.Err() == nil && !over(); pause(bound, 5*time.Millisecond) {
		x.repair(time.Now())
		if time.Since(x.looked) > 100*time.Millisecond {
			x.look()
		}
		if len(faults) == 0 || time.Now().Before(next) {
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
	x.look()
}

// end ends all workers, each goroutine of which must get a lock once more before, and looks at what they leave.
func (x *torture) end() {
	var workers []*locktorture.Process
	for _, s := range x.slots {
		workers = append(workers, s.process)
	}
	finishIn(x.t, patience+2*x.orders.Lease+x.trade.limit(), workers...)
	x.look()
	if x.trade.seen != nil {
		x.see()
	}
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
