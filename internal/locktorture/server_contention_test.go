package locktorture_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
)

// form is how large a torture is.
type form struct {
	processes, goroutines, names int
	length                       time.Duration
	long                         bool
}

func formOf(t *testing.T) form {
	if os.Getenv(tortureEnv) == "" {
		return form{processes: 4, goroutines: 4, names: 4, length: time.Second}
	}
	return form{processes: 8, goroutines: 16, names: 10, length: tortureTime(t, 30*time.Second), long: true}
}

func (f form) orders(kind string) orders {
	o := orders{Kind: kind, Lease: 400 * time.Millisecond, Goroutines: f.goroutines}
	for i := range f.names {
		o.Names = append(o.Names, fmt.Sprint("lock-", i))
	}
	return o
}

// Processes contend for each kind of lock while everything that can fail does. Whatever that is, nobody has a lock together with
// somebody who must not have it too: exclusive locks have one owner, and read-write locks readers or one writer; tokens
// grow; no more permits are taken than there are, and none get lost or come to be; a latch counts as often as it was told
// to; and the queue of a fair lock is served in its order. Every holder is told of a loss, and in the end every process gets
// its locks.
func TestContention(t *testing.T) {
	f := formOf(t)
	for _, trade := range trades {
		if strings.Contains(trade.name, ",") && !f.long {
			continue // the same scripts
		}
		t.Run(trade.name, func(t *testing.T) {
			if !f.long {
				t.Parallel()
			}
			redistest.Run(t, func(t *testing.T, s *redistest.Server) {
				x := newTorture(t, s, tortureSeed(t), 4, f.orders(trade.name))
				x.start(f.processes)
				x.run(patience, nil, func() bool { return x.history.Count(released) > 0 }) // a process may take long to start
				x.run(f.length, allFaults, func() bool { return false })
				x.end()
				x.noViolations()
				x.wasRough(f)
				x.leavesNothing()
			})
		})
	}
}

// Without faults a fair lock goes to those who wait in the order in which they came, all of them.
func TestFairContentionWithoutFaults(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		o := form{goroutines: 4, names: 2}.orders("fair")
		o.Lease = 10 * time.Second
		x := newTorture(t, s, tortureSeed(t), 1, o)
		x.start(3)
		x.run(time.Second, nil, func() bool { return x.history.Count(granted) > 300 })
		x.end()
		x.noViolations()
		if n := x.history.Count(func(e locktorture.Event) bool { return e.Kind == locktorture.Queued }); n == 0 {
			t.Error("nobody has stood in line")
		}
		if n := x.history.Count(func(e locktorture.Event) bool { return e.Kind == locktorture.Fronted }); n > 0 {
			t.Errorf("%d put in front", n)
		}
		x.leavesNothing()
	})
}

func released(e locktorture.Event) bool { return e.Kind == locktorture.Released }

func granted(e locktorture.Event) bool { return e.Kind == locktorture.Granted }

// noViolations fails the test for each one of the kind's rules, and shows the first.
func (x *torture) noViolations() {
	x.t.Helper()
	found := x.history.Violations(x.trade.rules)
	for _, v := range found[:min(len(found), 10)] {
		x.t.Error(v)
	}
	if len(found) > 10 {
		x.t.Errorf("and %d more", len(found)-10)
	}
}

// wasRough fails the test unless locks were had, and lost, and every fault was there.
func (x *torture) wasRough(f form) {
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
	for _, fault := range allFaults {
		if x.faults[fault.name] == 0 {
			x.t.Errorf("there was no %s", fault.name)
		}
	}
	if kinds[locktorture.Released] == 0 || kinds[locktorture.Acquired]+kinds[locktorture.Refused] == 0 {
		x.t.Error("nothing was had")
	}
	if !f.long || x.trade.locker == nil {
		return
	}
	for _, name := range x.orders.Names {
		if acquired[name] < 10 {
			x.t.Errorf("%s was had %d times", name, acquired[name])
		}
	}
	if kinds[locktorture.Lost] == 0 || kinds[locktorture.Extended] == 0 {
		x.t.Errorf("%d holds were lost, %d extended: none was tried hard", kinds[locktorture.Lost], kinds[locktorture.Extended])
	}
}

// leavesNothing fails the test if the workers have left more than what goes by itself: the locks of those who were killed with
// their leases, and the queues that they stood in a while later. What has been set up is there for good.
func (x *torture) leavesNothing() {
	x.t.Helper()
	good := func() bool {
		for _, k := range x.s.Keys() {
			tagged := slices.ContainsFunc(x.orders.Names, func(name string) bool {
				return k.Name == name || k.Name == "redisson_lock_token:{"+name+"}" && x.trade.rules.Tokens
			})
			switch {
			case k.TTL > 0 && (x.trade.rules.Queue || strings.HasPrefix(k.Name, "redisson_unlock_latch:")):
			case k.TTL < 0 && tagged && (x.trade.set != nil || x.trade.rules.Tokens):
			case x.trade.rules.Leased && strings.HasSuffix(k.Name, ":timeout"):
			default:
				return false
			}
		}
		return true
	}
	if !locktorture.Eventually(patience, good) {
		x.t.Errorf("keys are left: %q", x.s.Dump())
	}
	if x.trade.rules.Leased {
		for _, name := range x.orders.Names {
			free := func() bool {
				n, err := x.locks.PermitSemaphore(name).Available(x.t.Context())
				return err == nil && n == permitsOfEach
			}
			if !locktorture.Eventually(patience, free) {
				x.t.Errorf("permits of %q are taken yet", name)
			}
		}
	}
	x.close()
	locktorture.NobodyLeft(x.t, x.s)
}

// breaches are how workers, or somebody else, break the rules of each kind, and what is found then.
var breaches = []struct {
	kind   string
	faults []fault
	found  string
}{
	// They rely on a lock until they release it, as those do who do not look at their leases: a process that is stopped
	// goes on with a lock that another one has.
	{"reentrant", []fault{stopsOfProcesses}, " of overlap"},
	{"spin", []fault{stopsOfProcesses}, " of overlap"},
	{"fair", []fault{stopsOfProcesses}, " of overlap"},
	{"fenced", []fault{stopsOfProcesses}, " of overlap"},
	{"readwrite", []fault{stopsOfProcesses}, " of overlap"},
	{"permits", []fault{stopsOfProcesses}, " taken at once"},
	// They take a lock again that is another kind.
	{"nonreentrant", nil, " of an owner that has it twice"},
	// They go past the queue.
	{"fair", nil, " has overtaken "},
	{"nonreentrantfair", nil, " has overtaken "},
	// Tokens count from 1, and the server loses the last one.
	{"fenced, plain tokens", []fault{{"tokens lost", func(x *torture) { x.loseTokens() }}}, "tokens "},
	// They give back what they did not take.
	{"semaphore", nil, " taken at once"},
	// They delete what others wait for.
	{"latch", nil, " need not wait "},
}

// The torture is rough enough to find out workers that break the rules.
func TestTortureFindsTheCareless(t *testing.T) {
	for _, b := range breaches {
		t.Run(b.kind+b.found, func(t *testing.T) {
			t.Parallel()
			redistest.Run(t, func(t *testing.T, s *redistest.Server) {
				o := form{goroutines: 4, names: 3}.orders(b.kind)
				o.Lease, o.Careless = 300*time.Millisecond, true
				x := newTorture(t, s, tortureSeed(t), 1, o)
				x.start(4)
				var looked time.Time
				look := func() bool {
					if time.Since(looked) < 100*time.Millisecond {
						return false
					}
					looked = time.Now()
					found := x.history.Violations(x.trade.rules)
					return slices.ContainsFunc(found, func(v string) bool { return strings.Contains(v, b.found) })
				}
				end := time.Now().Add(patience)
				x.run(patience, b.faults, look)
				for !locktorture.Eventually(time.Second, look) { // it was what a worker had not told yet
					if time.Now().After(end) {
						t.Fatalf("not found among %d holds with %d stops: %q", len(x.history.Holds()), x.stops, b.found)
					}
					x.run(time.Until(end), b.faults, look)
				}
			})
		})
	}
}

// loseTokens has the server lose the last tokens.
func (x *torture) loseTokens() {
	for _, name := range x.orders.Names {
		x.try("DEL", "redisson_lock_token:{"+name+"}")
	}
}

// patience bounds every wait of a test for what must come.
const patience = redistest.Patience

// startWorker starts a worker process on a server. Unless o says otherwise it does what it is told.
func startWorker(t *testing.T, h *locktorture.History, s *redistest.Server, o orders) *locktorture.Process {
	t.Helper()
	if o.Addr == "" {
		o.Network, o.Addr = s.Network(), s.Addr()
	}
	p, err := locktorture.Start(h, o.Process, o.env())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func tell(t *testing.T, p *locktorture.Process, order string) {
	t.Helper()
	if err := p.Send(order); err != nil {
		t.Fatalf("%q: %v", order, err)
	}
}

// awaitKind waits for an event of a process.
func awaitKind(t *testing.T, h *locktorture.History, process int, kind locktorture.Kind) locktorture.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := h.Await(ctx, func(e locktorture.Event) bool { return e.Process == process && e.Kind == kind })
	if err != nil {
		t.Fatalf("process %d, %s: %v", process, kind, err)
	}
	return e
}

// finish has processes end in order and fails the test if one does not.
func finish(t *testing.T, workers ...*locktorture.Process) {
	t.Helper()
	finishIn(t, patience, workers...)
}

func finishIn(t *testing.T, limit time.Duration, workers ...*locktorture.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, p := range workers {
		p.Finish()
	}
	for _, p := range workers {
		if err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
	}
}

// noViolations fails the test for each one in the history.
func noViolations(t *testing.T, h *locktorture.History) {
	t.Helper()
	for _, v := range h.Violations(locktorture.Rules{}) {
		t.Error(v)
	}
}

// The lock of a process that is killed goes to the next one when its lease has ended, and not before.
func TestTakeoverFromKilledProcess(t *testing.T) {
	t.Parallel() // it waits for the most part
	const lease = 2 * time.Second
	for _, kind := range []string{"reentrant", "spin", "readwrite"} {
		t.Run(kind, func(t *testing.T) {
			redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
				h := new(locktorture.History)
				holder := startWorker(t, h, s, orders{Process: 1, Protocol: proto, Lease: lease, Kind: kind})
				waiter := startWorker(t, h, s, orders{Process: 2, Protocol: proto, Lease: lease, Kind: kind})
				tell(t, holder, "lock job")
				awaitKind(t, h, 1, locktorture.Acquired)
				tell(t, waiter, "lock job")
				awaitKind(t, h, 2, locktorture.Asked)
				awaitKind(t, h, 1, locktorture.Extended)
				holder.Kill()
				awaitKind(t, h, 2, locktorture.Acquired)
				finish(t, waiter)
				noViolations(t, h)
				locktorture.NothingLeft(t, s)
			})
		})
	}
}

// A waiter in another process is woken by the release: the lease of an hour cannot have told it to look.
func TestWakeUpAcrossProcesses(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		h := new(locktorture.History)
		holder := startWorker(t, h, s, orders{Process: 1, Protocol: proto, Lease: time.Hour})
		waiter := startWorker(t, h, s, orders{Process: 2, Protocol: proto, Lease: time.Hour})
		tell(t, holder, "lock job")
		awaitKind(t, h, 1, locktorture.Acquired)
		monitor := s.Monitor()
		tell(t, waiter, "lock job")
		looked := waiterSleeps(monitor)
		if !locktorture.Eventually(patience, looked) {
			t.Fatal("the waiter never looked again after it had subscribed")
		}
		tell(t, holder, "unlock job")
		released := awaitKind(t, h, 1, locktorture.Releasing)
		taken := awaitKind(t, h, 2, locktorture.Acquired)
		// By itself a waiter looks every ten seconds.
		if took := taken.At - released.At; took > 5*time.Second {
			t.Errorf("the waiter had the lock %v after its release", took)
		}
		tell(t, waiter, "unlock job")
		awaitKind(t, h, 2, locktorture.Released)
		finish(t, holder, waiter)
		noViolations(t, h)
		locktorture.NothingLeft(t, s)
	})
}

// waiterSleeps returns a function that says whether a waiter has subscribed and looked once more since: from then on
// nothing but a wake-up makes it look.
func waiterSleeps(monitor *redistest.Monitor) func() bool {
	subscribed, looked := false, false
	return func() bool {
		for _, line := range monitor.Lines() {
			line = strings.ToLower(line)
			looked = looked || subscribed && strings.Contains(line, `lua] "pttl"`)
			subscribed = subscribed || strings.Contains(line, `"subscribe"`)
		}
		return looked
	}
}
