package locktorture_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
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
		p := locktorture.StartProxy(t, s)
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
	for next := time.Now(); (ctx.Err() == nil || len(first) > 0) && bound.Err() == nil && !over(); locktorture.Pause(bound, 5*time.Millisecond) {
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

// fault is something that a torture does. What lasts goes on repairs.
type fault struct {
	name string
	do   func(x *torture)
}

var stopsOfProcesses = fault{"process stopped", (*torture).stop}

var allFaults = []fault{
	stopsOfProcesses,
	{"process killed", (*torture).kill},
	{"server stopped", (*torture).stopServer},
	{"connections cut", func(x *torture) { x.anyProxy().Cut() }},
	{"connections reset", func(x *torture) { x.anyProxy().Reset() }},
	{"connections refused", (*torture).refuse},
	{"requests swallowed", func(x *torture) { x.halfOpen(faultproxy.ToServer) }},
	{"replies swallowed", func(x *torture) { x.halfOpen(faultproxy.ToClient) }},
	{"script not run", func(x *torture) { x.loseScript(faultproxy.CutBefore) }},
	{"script not answered", func(x *torture) { x.loseScript(faultproxy.CutAfter) }},
	{"latency", (*torture).slow},
	{"scripts forgotten", func(x *torture) { x.try("SCRIPT", "FLUSH") }},
	{"clients killed", (*torture).killClients},
	{"subscribers killed", func(x *torture) { x.try("CLIENT", "KILL", "TYPE", "pubsub") }},
}

func (x *torture) anyProxy() *faultproxy.Proxy { return x.proxies[x.rng.IntN(len(x.proxies))] }

// try runs a command on the server, unless that is stopped and would not answer.
func (x *torture) try(args ...any) {
	if !x.paused {
		x.s.Do(args...)
	}
}

// spell is how long a fault lasts: often not as long as a lease, sometimes longer.
func (x *torture) spell() time.Duration { return x.orders.Lease/4 + upTo(x.rng, 2*x.orders.Lease) }

// kill kills a process and starts another one in its place. Where nothing gives back what it was about to give back itself, that
// has to be seldom.
func (x *torture) kill() {
	if x.trade.give != nil && len(x.slots) < x.started && x.rng.IntN(4) > 0 {
		return
	}
	s := x.slots[x.rng.IntN(len(x.slots))]
	s.process.Kill()
	x.dead = append(x.dead, s.process.ID)
	x.fill(s)
}

// killClients ends the connections that commands go over, but for the one that watches.
func (x *torture) killClients() {
	if x.queues == nil || x.paused {
		x.try("CLIENT", "KILL", "TYPE", "normal")
		return
	}
	for _, line := range strings.Split(locktorture.ClientList(x.s), "\n") {
		id, _, found := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if found && strings.Contains(line, " flags=N ") {
			x.try("CLIENT", "KILL", "ID", id)
		}
	}
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

func (x *torture) stopServer() {
	if x.paused {
		return
	}
	x.paused = true
	x.s.Pause()
	x.repairIn(x.spell()/2, func() {
		x.s.Continue()
		x.paused = false
	})
}

func (x *torture) refuse() {
	p := x.anyProxy()
	p.Cut()
	locktorture.Refuse(x.t, p, true)
	x.repairIn(x.spell(), func() { locktorture.Refuse(x.t, p, false) })
}

func (x *torture) halfOpen(dir faultproxy.Direction) {
	p := x.anyProxy()
	p.HalfOpen(dir, true)
	x.repairIn(x.spell(), func() { locktorture.Mend(x.t, p) })
}

// loseScript has one of the next scripts meet its fate.
func (x *torture) loseScript(fate faultproxy.Fate) {
	after := x.rng.IntN(20)
	locktorture.OnCommand(x.anyProxy(), "EVALSHA", func() faultproxy.Verdict {
		if after--; after == 0 {
			return faultproxy.Verdict{Fate: fate}
		}
		return faultproxy.Verdict{}
	})
}

func (x *torture) slow() {
	i := x.rng.IntN(len(x.proxies))
	d := upTo(x.rng, x.orders.Lease/4)
	x.proxies[i].Latency(d, d)
	x.repairIn(x.spell(), func() { x.proxies[i].Latency(0, x.jitter(i)) })
}

// jitter is how much a message may be late at the i-th proxy when nothing is wrong. At every second one it is more than
// the margin of a lease; the others are fast, so that they find a lock free as soon as it is.
func (x *torture) jitter(i int) time.Duration {
	return time.Duration(i%2) * x.orders.Lease / 8
}

const queueKey = "redisson_lock_queue:"

// queueWatch tells a history what the server does to the lines of fair locks, from the commands that it runs. One script is one
// step.
type queueWatch struct {
	history *locktorture.History
	monitor *redistest.Monitor
	script  []queueStep // so far
}

// queueStep is one command within a script: its words, the first in lower case.
type queueStep struct {
	at    time.Duration
	words []string
}

// look takes in what has happened since it was last called.
func (q *queueWatch) look() {
	for _, c := range q.monitor.Commands() {
		rest, inside := strings.CutPrefix(c.Line, "[0 lua] ")
		if !inside {
			q.flush()
			continue
		}
		words := strings.Fields(strings.ReplaceAll(rest, `"`, ""))
		switch words[0] = strings.ToLower(words[0]); words[0] {
		case "rpush", "lpush", "lpop", "lrem", "hincrby", "hset", "del", "pexpire":
			q.script = append(q.script, queueStep{locktorture.At(c.At), words})
		}
	}
	q.flush()
}

// flush logs what a script has done.
func (q *queueWatch) flush() {
	for i, step := range q.script {
		name, owner := step.words[1], ""
		queue := strings.HasPrefix(name, queueKey)
		if queue {
			name = strings.Trim(strings.TrimPrefix(name, queueKey), "{}")
		} else if strings.Contains(name, ":") {
			continue // neither the queue of a lock nor the lock
		}
		if len(step.words) > 2 {
			owner = step.words[len(step.words)-1]
		}
		later := func(command string, words ...string) bool {
			return slices.ContainsFunc(q.script[i+1:], func(s queueStep) bool {
				return s.words[0] == command && slices.Equal(s.words[2:], words)
			})
		}
		var kind locktorture.Kind
		switch command := step.words[0]; {
		case queue && command == "rpush":
			kind = locktorture.Queued
		case queue && command == "lpush":
			kind = locktorture.Fronted
		case queue && command == "lrem" && !later("lpush", owner):
			kind = locktorture.Left
		case queue && command == "lpop" && !q.granted(i):
			kind, owner = locktorture.Dropped, ""
		case !queue && (command == "hincrby" || command == "hset") && owner == "1": // of a fair lock, or of a Reentrant one on its key
			kind, owner = locktorture.Granted, step.words[2]
		case !queue:
			kind, owner = locktorture.Touched, ""
		default:
			continue
		}
		q.history.Add(locktorture.Event{At: step.at, Kind: kind, Name: name, Owner: owner})
	}
	q.script = q.script[:0]
}

// granted reports whether the i-th command of a script is the last that takes somebody out of the line before that one gets the lock.
func (q *queueWatch) granted(i int) bool {
	for _, s := range q.script[i+1:] {
		switch s.words[0] {
		case "lpop":
			return false
		case "hincrby":
			return s.words[len(s.words)-1] == "1"
		}
	}
	return false
}
