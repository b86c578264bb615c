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
	stops   int // of processes, for longer than a lease
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
	for range proxies {
		p, err := faultproxy.New(s.Network(), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
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

type fault struct {
	name string
	do   func(x *torture)
}

var allFaults = []fault{
	{"process killed", (*torture).kill},
	{"process stopped", (*torture).stop},
	{"server stopped", (*torture).stopServer},
	{"connections cut", func(x *torture) { x.proxy().Cut() }},
	{"connections reset", func(x *torture) { x.proxy().Reset() }},
	{"connections refused", (*torture).refuse},
	{"requests swallowed", func(x *torture) { x.halfOpen(faultproxy.ToServer) }},
	{"replies swallowed", func(x *torture) { x.halfOpen(faultproxy.ToClient) }},
	{"reply of a script lost", func(x *torture) { x.proxy().DropReply("EVALSHA", 1+x.rng.IntN(5)) }},
	{"latency", (*torture).slow},
	{"scripts forgotten", func(x *torture) { x.try("SCRIPT", "FLUSH") }},
	{"clients killed", func(x *torture) { x.try("CLIENT", "KILL", "TYPE", "normal") }},
	{"subscribers killed", func(x *torture) { x.try("CLIENT", "KILL", "TYPE", "pubsub") }},
}

func (x *torture) proxy() *faultproxy.Proxy { return x.proxies[x.rng.IntN(len(x.proxies))] }

// try runs a command that may fail, since the server may be stopped.
func (x *torture) try(args ...any) { x.s.Try(args...) }

// spell is how long a fault lasts: often not as long as a lease, sometimes longer.
func (x *torture) spell() time.Duration { return x.orders.Lease/4 + upTo(x.rng, 2*x.orders.Lease) }

func (x *torture) kill() {
	s := x.slots[x.rng.IntN(len(x.slots))]
	s.process.Kill()
	x.fill(s)
}

// stop stops a process, for longer than a lease as often as not. No more than half of them are stopped at a time.
func (x *torture) stop() {
	stopped := 0
	for _, s := range x.slots {
		if s.stopped {
			stopped++
		}
	}
	s := x.slots[x.rng.IntN(len(x.slots))]
	if s.stopped || stopped >= len(x.slots)/2 {
		return
	}
	if err := s.process.Pause(); err != nil {
		x.t.Errorf("stop: %v", err)
		return
	}
	length := x.spell()
	if length > x.orders.Lease {
		x.stops++
	}
	s.stopped = true
	process := s.process
	x.repairIn(length, func() {
		if s.process != process {
			return // killed while it was stopped
		}
		s.stopped = false
		if err := process.Continue(); err != nil {
			x.t.Errorf("continue: %v", err)
		}
	})
}
