package lock_test

import (
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
	if !eventually(patience, good) {
		x.t.Errorf("keys are left: %q", x.s.Dump())
	}
	if x.trade.rules.Leased {
		for _, name := range x.orders.Names {
			free := func() bool {
				n, err := x.locks.PermitSemaphore(name).Available(x.t.Context())
				return err == nil && n == permitsOfEach
			}
			if !eventually(patience, free) {
				x.t.Errorf("permits of %q are taken yet", name)
			}
		}
	}
	x.close()
	nobodyLeft(x.t, x.s)
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
				for !eventually(time.Second, look) { // it was what a worker had not told yet
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
