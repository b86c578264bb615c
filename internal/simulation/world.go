package simulation

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// longestLease is the longest lease that anybody asks for.
const longestLease = 6 * time.Second

// latencies are those of a sound network, one for each run: in a slow one more happens at the same time.
var latencies = []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 30 * time.Millisecond}

const (
	calmTime   = 40 * time.Second // without faults, while the workers go on
	settleTime = 15 * time.Second // of it in which what the faults have left is cleared up
	endLimit   = 60 * time.Second // for the workers to end
	closeTime  = time.Second      // for which Close repeats what is not confirmed
	latchTime  = 15 * time.Minute // after which nothing but data is left on the server
)

// paces are the longest pauses of workers: where nobody is in a hurry, what arrives late finds locks free.
var paces = [][]time.Duration{
	{5 * time.Millisecond, 100 * time.Millisecond, time.Second},
	{100 * time.Millisecond, time.Second, 4 * time.Second},
	{2 * time.Second, 8 * time.Second},
}

// world is all that takes part in a run.
type world struct {
	seed    uint64    // constant, as what follows
	dice    *dice     // of the plan; only Run's goroutine uses it
	start   time.Time // of the run
	history *history
	srv     *fakeredis.Server
	objects []*object
	pauses  []time.Duration // of the workers
	latency time.Duration   // of the sound network, and as much jitter
	slack   time.Duration   // by how much a call may return later than it should
	healed  chan struct{}   // closed when the faults are over
	over    chan struct{}   // closed when the workers are to end
	born    int             // processes; only Run's goroutine and, never beside it, replace use it
	wg      sync.WaitGroup

	mu        sync.Mutex // guards the following, and what objects and holds say
	living    []*process
	all       []*process
	calmSince time.Time // zero while there are faults
	report    Report

	found      sync.Mutex // guards violations; taken with mu held
	violations []string
}

// Report is what a run has done and found.
type Report struct {
	Seed       uint64
	Operations int            // calls of workers
	Holds      int            // locks and permits that were had
	Looks      int            // at holds, whether the server has them
	Losses     int            // holders that were told
	Faults     map[string]int // by sort
	Excused    map[string]int // violations that an exclusion explains
	Virtual    time.Duration
	History    []string
	Violations []string // each with its timeline
}

// Run simulates one seed. It is for a bubble of testing/synctest, which fails if a goroutine is left.
func Run(seed uint64) Report {
	w := newWorld(seed)
	p := newProfile(w.dice)
	names := []string{}
	for _, f := range p.faults {
		names = append(names, f.name)
	}
	w.history.add("", "", "seed %d: %v; faults: %s", seed, w.objects, strings.Join(names, ", "))
	interpreter := newInterpreter(w.ran)
	defer interpreter.close()
	w.srv.Interpret(interpreter.compile)
	w.setup()
	for range 3 + w.dice.n(4) {
		w.living = append(w.living, w.newProcess())
	}
	w.all = append(w.all, w.living...)
	ticks := make(chan struct{})
	w.wg.Go(func() { w.watch(ticks) })
	w.storm(p)
	w.lastGust(p)
	w.heal()
	w.calm()
	close(w.over)
	w.history.add("", "", "the workers are to end")
	w.joinWorkers()
	w.closeAll()
	close(ticks)
	w.wg.Wait()
	time.Sleep(latchTime)
	w.judgeRemains()
	w.srv.Close()
	for _, p := range w.all {
		p.route.wg.Wait()
	}
	w.report.Virtual = time.Since(w.start)
	w.report.History = w.history.lines()
	w.report.Violations = w.violations
	return w.report
}

func newWorld(seed uint64) *world {
	d := newDice(seed, "plan")
	latency := pick(d, latencies)
	return &world{
		latency: latency, slack: 100*time.Millisecond + 20*latency,
		seed: seed, dice: d, start: time.Now(), history: &history{start: time.Now()}, srv: fakeredis.New(), objects: newObjects(d),
		pauses: pick(d, paces), healed: make(chan struct{}), over: make(chan struct{}),
		report: Report{Seed: seed, Faults: map[string]int{}, Excused: map[string]int{}},
	}
}

func (w *world) since(t time.Time) string { return fmt.Sprintf("%.6f", t.Sub(w.start).Seconds()) }

// setup sets up the permits, where they are not.
func (w *world) setup() {
	for _, o := range w.objects {
		if o.family == permits || o.family == semaphore {
			w.srv.Do("SETNX", o.name, fmt.Sprint(o.total))
		}
	}
}

// lost takes note that the server forgets the objects now.
func (w *world) lost(why *exclusion, objects ...*object) {
	for _, o := range objects {
		o.lost(why)
	}
}

// ran is told of each script by the server, in the order in which they run.
func (w *world) ran(title string, c *fakeredis.Call, reply any) {
	key := ""
	if len(c.Keys) > 0 {
		key = c.Keys[0]
	}
	if strings.HasSuffix(title, ", force") && reply != any(int64(0)) && reply != nil {
		for _, o := range w.objects {
			if o.name == key {
				o.lost(forced)
			}
		}
	}
	w.history.add("server", key, "%s %s -> %s", title, brief(c.Args), brief(reply))
}

// processes are those that live.
func (w *world) processes() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*process(nil), w.living...)
}

// someone is one of the processes that live.
func (w *world) someone(d *dice) *process { return pick(d, w.processes()) }

// replace ends a process, and starts another one in its place after a while, at once for all others: there is always one.
func (w *world) replace(p *process, after time.Duration, end func()) {
	if p.gone() || p.closing() {
		return
	}
	w.mu.Lock()
	for i := range w.living {
		if w.living[i] == p {
			w.living = append(w.living[:i:i], w.living[i+1:]...)
			break
		}
	}
	few := len(w.living) < 2
	w.mu.Unlock()
	w.wg.Go(end)
	if few {
		after = 0
	}
	time.Sleep(after)
	next := w.newProcess()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.living = append(w.living, next)
	w.all = append(w.all, next)
}

// buried takes note of what a process that has crashed may have taken with it.
func (w *world) buried(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		w.pruneLocked(o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.doubts {
		d.object.missing += d.n
	}
}

// closed judges the error of a Close.
func (w *world) closed(p *process, began time.Time, took time.Duration, err error) {
	if err == nil {
		return
	}
	gaveUp, ok := errors.AsType[*lock.CloseError](err)
	if calm := w.calmStart(); !ok || !calm.IsZero() && began.Sub(calm) > settleTime {
		w.violate(nil, "%s: Close = %v", p.name, err)
		return
	}
	if took < closeTime {
		w.violate(nil, "%s: Close = %v, after no more than %v", p.name, err, took)
	}
	for _, o := range w.objects {
		if o.family == semaphore {
			w.missing(o, gaveUp.Permits)
		}
	}
}

// heal ends all faults.
func (w *world) heal() {
	w.history.add("fault", "", "all faults are over")
	close(w.healed)
	for _, p := range w.processes() {
		p.route.set(func() {
			p.route.blocked, p.route.refused, p.route.sliced, p.route.swallow = [2]bool{}, false, false, false
			p.route.latency, p.route.jitter = w.latency, w.latency
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calmSince = time.Now()
}

// calm lets the workers go on. Nothing goes wrong any more, but for connections that carry no requests.
func (w *world) calm() {
	for end := time.Now().Add(calmTime); time.Now().Before(end); {
		time.Sleep(w.dice.upTo(4 * time.Second))
		w.killSubscribers()
	}
}

func (w *world) calmStart() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calmSince
}

// returned judges the error of a call.
func (w *world) returned(k *worker, c call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Operations++
	if err == nil {
		return
	}
	calm := !w.calmSince.IsZero() && c.since.Sub(w.calmSince) > settleTime
	switch {
	case isOne(err, passing...):
		if calm && errors.Is(err, lock.ErrUncertain) {
			w.violate(c.object, "%s: %s = %v, and nothing is wrong", k.name, c.what, err)
		}
	case isOne(err, conn.ErrNotSent, conn.ErrUncertain) && !calm:
	case errors.Is(err, lock.ErrNotSet) && c.object.lossSince(w.start) != nil:
	default:
		w.violate(c.object, "%s: %s = %v", k.name, c.what, err)
	}
}

// violate takes note of a violation, with what led to it. It may be called with or without mu.
func (w *world) violate(o *object, format string, args ...any) {
	name := ""
	if o != nil {
		name = o.name
	}
	text := fmt.Sprintf(format, args...)
	w.history.add("CHECK", name, "VIOLATION: %s", text)
	w.found.Lock()
	defer w.found.Unlock()
	if len(w.violations) < 3 {
		w.violations = append(w.violations, fmt.Sprintf("%s: %s\n%s", name, text, w.history.timeline(name)))
	}
}

// brief is a text in which nothing is long.
type briefly struct{ value any }

func brief(v any) briefly { return briefly{v} }

func (b briefly) String() string {
	text := fmt.Sprintf("%q", b.value)
	if len(text) > briefLength {
		return text[:briefLength] + "..."
	}
	return text
}

const briefLength = 160
