package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// briefEvents limits the events of a brief run before the end of its faults.
const briefEvents = 4000

// longestLease is the longest requested lease.
const longestLease = 6 * time.Second

// latencies are the latencies of a sound network, a latency for each run: in a slow network more happens at the same time.
var latencies = []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 30 * time.Millisecond}

const (
	endLimit  = 3 * time.Minute  // for the workers to end: each may hold several times in a row, for up to 8 s each
	closeTime = time.Second      // time for repeats in Close
	latchTime = 15 * time.Minute // time after which only data is left on the server
)

// times are limits after the end of all faults.
type times struct {
	calm   time.Duration // without faults, while the workers go on
	brief  time.Duration // the same, in a brief run
	settle time.Duration // part of it for clearing up after the faults
	undo   time.Duration // limit for all undos
	renew  time.Duration // so long at most a lease is not renewed
}

// soleTimes are the times of a single server.
var soleTimes = times{calm: 40 * time.Second, brief: 18 * time.Second, settle: 15 * time.Second, undo: 2 * time.Second, renew: 2 * time.Second}

// pace is how much the workers want.
type pace struct {
	pauses  []time.Duration // the longest between two turns
	long    int             // ratio of holds that may outlast their lease
	workers int             // of a process, at most
}

// paces are those of a run: where nobody is in a hurry, late requests find locks free, and leases are renewed for long.
var paces = []pace{
	{[]time.Duration{5 * time.Millisecond, 100 * time.Millisecond, time.Second}, 15, 7},
	{[]time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second}, 6, 4},
	{[]time.Duration{2 * time.Second, 8 * time.Second}, 2, 4},
}

// world is everything in a run.
type world struct {
	seed    uint64    // constant, like the following
	dice    *dice     // of the plan; only for Run's goroutine
	start   time.Time // of the run
	history *history
	srv     *fakeredis.Server // the only server, or the first
	servers []*fakeredis.Server
	group   *group  // the group of the servers, or nil
	shards  *shards // the cluster of the servers, or nil
	times   times
	objects []*object
	pace    pace
	// tokenLife is how long the counter of a fenced lock stays behind its last token; 0 is for ever.
	tokenLife time.Duration
	five      bool          // five servers exist, for Redlock
	several   bool          // several servers exist, and each object is on one
	mixed     bool          // some processes are Redisson's
	clocks    bool          // some processes have wrong clocks
	latency   time.Duration // of the sound network, and as much jitter
	slack     time.Duration // allowed delay of a call's return
	healed    chan struct{} // closed when the faults are over
	over      chan struct{} // closed when the workers are to end
	omit      []int         // omitted faults
	enough    int           // events that end the faults, and half of the events that end the workers; 0: no limit
	happened  int           // faults so far; only Run's goroutine
	born      int           // processes; only for Run's goroutine and, never at the same time, replace
	wg        sync.WaitGroup

	mu        sync.Mutex                        // guards the following, and the state of objects and holds
	drifts    map[*fakeredis.Server]bool        // wrong clocks; only for Run's goroutine
	forgot    map[*fakeredis.Server][]time.Time // when each of five has lost all
	living    []*process
	all       []*process
	calmSince time.Time // zero during the faults
	report    Report
	refuses   bool // a server has denied the right to run scripts, or to a write in scripts

	found      sync.Mutex // guards violations; taken with mu held
	violations []string
}

// Report is the work and the findings of a run.
type Report struct {
	Seed       uint64
	Operations int            // calls of workers
	Holds      int            // acquired locks and permits
	Looks      int            // at holds, for their existence on the server
	Losses     int            // news of losses
	Faults     map[string]int // by sort
	Excused    map[string]int // violations explained by an exclusion
	Events     map[string]int // evidence of tried situations
	Happened   int            // faults, including omitted faults
	Virtual    time.Duration
	history    *history
	Violations []string // each with its timeline
}

// History is all events, a line for each.
func (r Report) History() []string { return r.history.lines() }

// Options select a run.
type Options struct {
	Seed uint64
	// Brief makes faults last for 2 to 6 s, and the workers end soon afterwards: a tenth of the work. Both end sooner after many
	// events. A group or a cluster settles without workers, so the run says nothing about waiters behind a failover.
	Brief bool
	Omit  []int // the numbers of omitted faults
}

// Run simulates a seed. Run is for a bubble of testing/synctest, which fails if a goroutine is left.
func Run(o Options) Report {
	w := newWorld(o.Seed)
	w.omit = o.Omit
	p := newProfile(w.dice, w.faults())
	if o.Brief {
		w.times.calm, w.enough = w.times.brief, briefEvents
		p.lasts = w.dice.between(2*time.Second, 6*time.Second)
	}
	names := []string{}
	for _, f := range p.faults {
		names = append(names, f.name)
	}
	w.history.add("", "", "seed %d: %d servers, %v; faults: %s", o.Seed, len(w.servers), w.objects, strings.Join(names, ", "))
	for _, srv := range w.servers {
		interpreter := newInterpreter(func(title string, c *fakeredis.Call, reply any) { w.ran(srv, title, c, reply) })
		defer interpreter.close()
		srv.Interpret(interpreter.compile)
	}
	w.setup()
	if w.five {
		time.Sleep(votesAfter)
	}
	w.group.begin()
	w.shards.begin()
	for range 3 + w.dice.n(4) {
		w.living = append(w.living, w.newProcess())
	}
	w.all = append(w.all, w.living...)
	ticks := make(chan struct{})
	w.wg.Go(func() { w.watch(ticks) })
	w.storm(p)
	w.lastGust(p)
	w.heal()
	if w.shards != nil {
		w.wg.Go(w.shards.repair)
	}
	w.calm()
	close(w.over)
	w.history.add("", "", "the workers are to end")
	w.joinWorkers()
	w.closeAll()
	close(ticks)
	w.wg.Wait()
	time.Sleep(time.Until(w.calmSince.Add(w.times.settle)))
	w.group.end()
	w.shards.end()
	time.Sleep(latchTime)
	w.judgeRemains()
	for _, srv := range w.everything() {
		srv.Close()
	}
	for _, p := range w.all {
		for _, r := range p.routes {
			r.wg.Wait()
		}
	}
	w.report.Happened = w.happened
	w.report.Virtual = time.Since(w.start)
	w.report.history = w.history
	w.report.Violations = w.violations
	return w.report
}

func newWorld(seed uint64) *world {
	d := newDice(seed, "plan")
	latency := pick(d, latencies)
	w := &world{
		latency: latency, slack: 100*time.Millisecond + 20*latency, times: soleTimes,
		seed: seed, dice: d, start: time.Now(), history: &history{start: time.Now()}, srv: fakeredis.New(),
		pace: pick(d, paces), healed: make(chan struct{}), over: make(chan struct{}),
		report: Report{Seed: seed, Faults: map[string]int{}, Excused: map[string]int{}, Events: map[string]int{}},
		forgot: map[*fakeredis.Server][]time.Time{}, drifts: map[*fakeredis.Server]bool{},
	}
	w.clocks = d.oneIn(3)
	if d.oneIn(3) {
		w.tokenLife = d.between(longestLease, 2*longestLease)
	}
	switch Deployment(seed) {
	case Replicas:
		w.group, w.times, w.objects = newGroup(w), groupTimes, newObjects(d)
		w.srv, w.servers = w.group.servers[0], w.group.servers
		w.report.Events["run: replicas"]++
		return w
	case Cluster:
		w.objects, w.times = tagged(d, newObjects(d)), shardTimes
		w.shards = newShards(w)
		w.srv, w.servers = w.shards.servers[0], w.shards.servers
		w.report.Events["run: cluster"]++
		return w
	}
	w.servers = []*fakeredis.Server{w.srv}
	if w.five = d.oneIn(5); w.five {
		for len(w.servers) < voters {
			w.servers = append(w.servers, fakeredis.New())
		}
		w.objects = newVotes(d)
		w.report.Events["run: five servers"]++
		return w
	}
	if w.several = d.oneIn(6); w.several {
		for len(w.servers) < severalCount {
			w.servers = append(w.servers, fakeredis.New())
		}
		w.objects = newSeveral(d)
		w.report.Events["run: several servers"]++
		return w
	}
	w.report.Events["run: one server"]++
	if w.objects, w.mixed = newObjects(d), d.oneIn(3); w.mixed {
		w.clocks = false // Redisson's waiters in a fair queue tell the server their time
		w.report.Events["run: Redisson beside us"]++
		w.tokenLife = 0 // Redisson's tokens would begin again
	}
	return w
}

// server is a server, the master if servers replace each other.
func (w *world) server(d *dice) *fakeredis.Server { return pick(d, w.judged()) }

// at is the server with the truth about a key: the only server, or a master.
func (w *world) at(key string) *fakeredis.Server {
	switch {
	case w.group != nil:
		return w.group.master()
	case w.shards != nil:
		return w.shards.at(key)
	case w.several:
		return w.home(key)
	}
	return w.srv
}

// judged are the servers with the truth.
func (w *world) judged() []*fakeredis.Server {
	switch {
	case w.group != nil:
		return []*fakeredis.Server{w.group.master()}
	case w.shards != nil:
		return w.shards.all()
	}
	return w.servers
}

// everything returns all servers, and the sentinels.
func (w *world) everything() []*fakeredis.Server {
	if w.group != nil {
		return slices.Concat(w.servers, w.group.sentinels)
	}
	return w.servers
}

// notice takes note of a master that is new.
func (w *world) notice() { w.group.notice() }

// serves reports whether a server has the truth about a key. It may be called inside the server.
func (w *world) serves(s *fakeredis.Server, key string) bool {
	switch {
	case w.shards != nil:
		return w.shards.serves(s, key)
	case w.several && key != "":
		return w.home(key) == s
	}
	return w.group.serves(s)
}

// nameOf is a server's name in the history.
func (w *world) nameOf(s *fakeredis.Server) string {
	if w.shards != nil || w.several {
		return fmt.Sprint("s", slices.Index(w.servers, s))
	}
	return w.group.name(s)
}

// routes are the routes of all living processes.
func (w *world) routes() (all []*route) {
	for _, p := range w.processes() {
		all = append(all, p.routes...)
	}
	return all
}

// route is a random route.
func (w *world) route(d *dice) *route { return pick(d, w.someone(d).routes) }

// emptied notes that a server forgets everything now. A server of five then has no vote for a while.
func (w *world) emptied(srv *fakeredis.Server, why *exclusion) {
	if !w.five {
		w.lost(why, w.objectsOn(srv)...)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgot[srv] = append(w.forgot[srv], time.Now())
}

func (w *world) since(t time.Time) string { return fmt.Sprintf("%.6f", t.Sub(w.start).Seconds()) }

// setup sets up missing permits.
func (w *world) setup() {
	for _, o := range w.objects {
		if o.family == permits || o.family == semaphore {
			w.at(o.name).Do("SETNX", o.name, fmt.Sprint(o.total))
		}
	}
}

// lost notes that the server forgets the objects now.
func (w *world) lost(why *exclusion, objects ...*object) {
	for _, o := range objects {
		o.lost(why)
	}
}

// ran is called by a server for each script, in the order of their runs.
func (w *world) ran(s *fakeredis.Server, title string, c *fakeredis.Call, reply any) {
	key := ""
	if len(c.Keys) > 0 {
		key = c.Keys[0]
	}
	if why := forcedBy(title); why != nil && reply != any(int64(0)) && reply != nil { // also a master just replaced tells the holders
		for _, o := range w.objects {
			if o.name == key {
				o.lost(why)
			}
		}
	}
	if w.serves(s, key) {
		for _, o := range w.objects {
			if o.name == key {
				o.queued(title, c, reply)
				if o.family == exclusive || o.family == readWrite { // permits go to whoever can use them
					o.lined(title, c, reply)
				}
			}
		}
	}
	w.history.add(w.nameOf(s), key, "%s %s -> %s", title, brief(c.Args), brief(reply))
	w.judgeLate(title, c, reply)
}

// forcedBy is the effect of a forcing script on the holder, nil for any other script.
func forcedBy(title string) *exclusion {
	switch {
	case title == "redisson lock, force":
		return deleted
	case strings.HasSuffix(title, ", force"):
		return forced
	}
	return nil
}

// processes are the living processes.
func (w *world) processes() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*process(nil), w.living...)
}

// someone is a random living process.
func (w *world) someone(d *dice) *process { return pick(d, w.processes()) }

// replace ends a process, and starts a successor after a while, at once if no process is left.
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

// buried notes the possible losses by a crashed process.
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
	if calm := w.calmStart(); !ok || !calm.IsZero() && began.Sub(calm) > w.times.settle {
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
	for _, r := range w.routes() {
		r.set(func() {
			clear(r.apart)
			r.blocked, r.refused, r.sliced, r.swallow = [2]bool{}, false, false, false
			r.latency, r.jitter = w.latency, w.latency
			r.hurryLocked()
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calmSince = time.Now()
}

// pause sleeps, until so many events have happened.
func (w *world) pause(d time.Duration, events int) {
	for end := time.Now().Add(d); time.Now().Before(end) && !w.sated(events); {
		time.Sleep(min(tick, time.Until(end)))
	}
}

// sated reports whether so many events have happened; 0 is no number.
func (w *world) sated(events int) bool { return events > 0 && w.history.length() > events }

// calm lets the workers go on. Nothing goes wrong any more, but for connections that carry no requests.
func (w *world) calm() {
	for end := time.Now().Add(w.times.calm); time.Now().Before(end) && !w.sated(2*w.enough); {
		w.pause(w.dice.upTo(4*time.Second), 2*w.enough)
		w.killSubscribers()
		if w.shards != nil && w.dice.oneIn(3) && time.Since(w.calmStart()) > w.times.settle {
			w.moveFault(w.dice)
		}
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
	w.notice()
	calm := !w.calmSince.IsZero() && c.since.Sub(w.calmSince) > w.times.settle && !w.shards.moving(c.since, append(c.beside, c.object)...)
	switch {
	case strings.Contains(err.Error(), "too late for this request"): // the answer of all_apart.lua is for the client
		w.violate(c.object, "%s: %s = %v", k.name, c.what, err)
	case isOne(err, passing...):
		if calm && errors.Is(err, lock.ErrUncertain) {
			w.violate(c.object, "%s: %s = %v, and nothing is wrong", k.name, c.what, err)
		}
	case (isOne(err, conn.ErrNotSent, conn.ErrUncertain, lock.ErrNoQuorum) || limitedBy(err)) && !calm:
	case errors.Is(err, lock.ErrNotReplicated) && (!calm || c.hurries() || w.shards.changedSince(c.since) || k.process.learns()):
	case w.shards != nil && !calm && ofCluster(err):
	case errors.Is(err, lock.ErrNotSet) && c.object.lossSince(w.start) != nil:
	default:
		w.violate(c.object, "%s: %s = %v", k.name, c.what, err)
	}
}

// violate notes a violation, with its timeline. It may be called with or without mu.
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

// brief is a text with long parts shortened.
type briefly struct{ value any }

func brief(v any) briefly { return briefly{v} }

func (b briefly) String() string {
	text := string(appendReply(nil, b.value))
	if len(text) > briefLength {
		return text[:briefLength] + "..."
	}
	return text
}

const briefLength = 160

// appendReply appends a reply or a list of arguments as text.
func appendReply(dst []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case string:
		return strconv.AppendQuote(dst, v)
	case []string:
		for i, s := range v {
			if i > 0 {
				dst = append(dst, ' ')
			}
			dst = strconv.AppendQuote(dst, s)
		}
		return dst
	case []any:
		dst = append(dst, '{')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ' ')
			}
			dst = appendReply(dst, e)
		}
		return append(dst, '}')
	}
	return fmt.Append(dst, v)
}
