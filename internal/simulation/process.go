package simulation

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/simulation/redisson"
	"github.com/lockwire/lockwire/lock"
)

// process is a program with a client and workers.
type process struct {
	world    *world
	name     string
	dice     *dice
	routes   []*route  // to each server
	pool     io.Closer // the network of the client
	client   *lock.Client
	voters   []*voter                 // a client for each of several servers
	redlocks map[string]*lock.Redlock // by name
	// redisson is what the process has in place of a client of ours, or nil.
	redisson *redisson.Client
	lease    time.Duration // of the client
	wg       sync.WaitGroup
	ended    chan struct{} // closed at a crash, or at the begin of Close

	mu      sync.Mutex // guards the following
	crashed bool
	closes  bool
	still   chan struct{} // while paused; closed at the end of the pause
	workers []*worker
	doubts  []doubt
	threads int64 // of Redisson's, so far
	learnt  bool  // the number of replicas, by a try in vain
}

// worker is a goroutine of a process that takes locks.
type worker struct {
	process *process
	name    string
	dice    *dice
	owners  []lock.Owner // of the clients of ours
	thread  int64        // of Redisson's, the last
	asked   time.Time    // the begin of the last call

	mu   sync.Mutex // guards call
	call call
}

// call is the call a worker waits for.
type call struct {
	what   string // "" if for nothing
	object *object
	beside []*object // further objects of the call
	since  time.Time
	limit  time.Time // the limit of the call
	waits  bool      // for a lock
	// patience is for how long the lock may be free meanwhile, if longer than the object says.
	patience time.Duration
}

// hurries reports whether the call is too short for distant replicas.
func (c call) hurries() bool { return !c.limit.IsZero() && c.limit.Sub(c.since) < hurried }

// hurried is too short for replicas to acknowledge in time.
const hurried = 3 * time.Second

// newRoutes are the routes of a process to the servers: a route for each server, or a common route for servers that replace
// each other.
func (w *world) newRoutes(process string) (all []*route) {
	switch {
	case w.group != nil:
		return []*route{newRoute(process, newDice(w.seed, "route "+process), w.latency, w.group.dial)}
	case w.shards != nil:
		return []*route{newRoute(process, newDice(w.seed, "route "+process), w.latency, w.shards.dial)}
	}
	for i, srv := range w.servers {
		name := process
		if i > 0 {
			name = fmt.Sprint(process, "-s", i)
		}
		all = append(all, newRoute(name, newDice(w.seed, "route "+name), w.latency, func(ctx context.Context, _ string) (net.Conn, error) {
			return srv.Dial(ctx, "tcp", "server:6379")
		}))
	}
	return all
}

// newProcess starts a process. The process reaches the server only through its own route.
func (w *world) newProcess() *process {
	w.born++
	p := &process{world: w, name: fmt.Sprint("p", w.born), ended: make(chan struct{})}
	p.dice = newDice(w.seed, p.name)
	p.routes = w.newRoutes(p.name)
	p.setClock()
	if w.five {
		p.startVoters()
	} else if w.several {
		p.startSeveral()
	} else if w.mixed && p.dice.oneIn(3) {
		p.startRedisson()
	} else {
		p.startClient()
	}
	for i := range 1 + p.dice.n(w.pace.workers) {
		name := fmt.Sprint(p.name, ".", i)
		k := &worker{process: p, name: name, dice: newDice(w.seed, name)}
		k.newOwners()
		p.workers = append(p.workers, k)
		p.wg.Go(k.run)
	}
	return p
}

// setClock gives a process a wrong clock, in some runs.
func (p *process) setClock() {
	if !p.world.clocks || p.dice.oneIn(3) {
		return
	}
	ahead := p.dice.between(-clockError, clockError).Truncate(time.Millisecond)
	p.world.history.add(p.name, "", "its clock is %v ahead", ahead)
	for _, r := range p.routes {
		r.ahead = ahead
	}
}

// startClient gives a process a client of ours.
func (p *process) startClient() {
	server := conn.Config{
		Addr: "server:6379", Dial: p.routes[0].dial, Conns: 1 + p.dice.n(2), Protocol: pick(p.dice, []int{0, 0, 2}),
		Timeout: pick(p.dice, []time.Duration{0, time.Second}),
	}
	if g := p.world.group; g != nil {
		server.Addr, server.Sentinel = "", g.config(p.dice)
	}
	pool := p.connect(server)
	p.lease = p.dice.between(2*time.Second, longestLease)
	cfg := p.config()
	client, err := lock.New(pool, cfg)
	if err != nil {
		panic(err)
	}
	p.pool, p.client = pool, client
	p.world.history.add(p.name, "", "starts: lease %v, hand-overs %d, client %s", p.lease, cfg.HandOvers, client.ID())
}

// config is the configuration of a client of ours.
func (p *process) config() lock.Config {
	return lock.Config{Lease: p.lease, TokenLife: p.world.tokenLife, HandOvers: pick(p.dice, []int{0, 0, -1, 3}), PreferWriters: p.dice.oneIn(3),
		HandOverFor: pick(p.dice, []time.Duration{0, 300 * time.Millisecond})}
}

// connect gives a process its route to the server.
func (p *process) connect(server conn.Config) interface {
	lock.Server
	io.Closer
} {
	if g := p.world.shards; g != nil {
		server.Addr = ""
		return g.open(p.dice, server)
	}
	pool, err := conn.New(server)
	if err != nil {
		panic(err)
	}
	return pool
}

// is reports whether an owner on a server belongs to the process.
func (p *process) is(owner string) bool {
	if len(p.voters) > 0 {
		return slices.ContainsFunc(p.voters, func(v *voter) bool { return strings.HasPrefix(owner, v.client.ID()) })
	}
	return strings.HasPrefix(owner, p.client.ID())
}

// gone reports whether the process has crashed: later events in the process do not count.
func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

// closing reports whether the process has begun to close its client.
func (p *process) closing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closes
}

// end is the first of a crash or a close; it returns false to all but the first.
func (p *process) end(crash bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed || p.closes {
		return false
	}
	p.crashed, p.closes = crash, !crash
	close(p.ended)
	return true
}

// crash ends the process at once. Requests sent may arrive later, if late is not below 0. The goroutines of the dead process
// are ended behind the scene.
func (p *process) crash(late time.Duration) {
	if !p.end(true) {
		return
	}
	p.world.history.add(p.name, "", "CRASHES; what is on its way arrives after %v", late)
	p.goOn()
	p.world.buried(p)
	for _, r := range p.routes {
		r.crash(late)
	}
	switch {
	case p.redisson != nil:
		p.redisson.Close()
	case len(p.voters) > 0:
		p.dropVoters()
	default:
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.client.CloseContext(over)
	}
	if p.pool != nil {
		_ = p.pool.Close()
	}
	p.wg.Wait()
}

// close ends the process in order.
func (p *process) close() {
	if !p.end(false) {
		return
	}
	w := p.world
	w.history.add(p.name, "", "closes")
	p.goOn()
	if p.redisson != nil {
		p.redisson.Close()
		p.wg.Wait()
		_ = p.pool.Close()
		return
	}
	if w.several {
		p.closeSeveral()
		return
	}
	if len(p.voters) > 0 {
		p.closeVoters()
		return
	}
	began := time.Now()
	err := p.client.Close()
	took := time.Since(began)
	w.history.add(p.name, "", "Close = %v", err)
	if took > closeTime+w.slack {
		w.violate(nil, "%s: Close took %v", p.name, took)
	}
	w.closed(p, began, took, err)
	p.wg.Wait()
	_ = p.pool.Close()
}

// standStill stops the callers of the process and its network, not its clock.
func (p *process) standStill(d time.Duration) {
	p.mu.Lock()
	if p.still != nil || p.crashed || p.closes {
		p.mu.Unlock()
		return
	}
	still := make(chan struct{})
	p.still = still
	p.mu.Unlock()
	p.world.history.add(p.name, "", "STANDS STILL for %v", d)
	p.block(true)
	select {
	case <-time.After(d):
	case <-still:
	case <-p.world.healed:
	}
	p.goOn()
	p.block(false)
	p.world.history.add(p.name, "", "goes on")
}

// block stops the network of the process, or starts the network again.
func (p *process) block(on bool) {
	for _, r := range p.routes {
		r.set(func() { r.blocked = [2]bool{on, on} })
	}
}

func (p *process) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still != nil {
		close(p.still)
		p.still = nil
	}
}

// pass waits while the process stands still, and returns false when its worker is to end.
func (k *worker) pass() bool {
	p := k.process
	for {
		p.mu.Lock()
		still := p.still
		p.mu.Unlock()
		select {
		case <-p.ended:
			return false
		default:
		}
		if still == nil {
			return true
		}
		<-still
	}
}

// pause sleeps, less if the process ends or, where whileWorking, if the run is over.
func (k *worker) pause(d time.Duration, lost <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lost:
	case <-k.process.ended:
	}
}

// run takes and gives back until the process ends, or the run is over.
func (k *worker) run() {
	w := k.process.world
	for k.pass() {
		select {
		case <-w.over:
			return
		default:
		}
		k.pause(k.dice.upTo(pick(k.dice, w.pace.pauses)), w.over)
		if k.pass() {
			k.turn(pick(k.dice, w.objects))
		}
	}
}

// begin notes a call with its limit.
func (k *worker) begin(o *object, limit time.Duration, waits bool, format string, args ...any) {
	c := call{what: fmt.Sprintf(format, args...), object: o, since: time.Now(), waits: waits}
	if k.process.redisson != nil {
		c.patience = redissonPatience
	}
	if limit > 0 {
		c.limit = c.since.Add(limit + k.process.world.slack)
	}
	k.asked = c.since
	k.mu.Lock()
	k.call = c
	k.mu.Unlock()
	k.process.world.history.add(k.name, o.name, "%s ...", c.what)
}

// besideOf notes a further object of the call.
func (k *worker) besideOf(o *object) {
	k.mu.Lock()
	k.call.beside = append(k.call.beside, o)
	k.mu.Unlock()
}

// learns reports whether the process may have had too few replicas acknowledge, once: it has not known of more.
func (p *process) learns() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.learnt
	p.learnt = true
	return first
}

// end notes the return of the call, and reports whether the process still lives to learn of the return.
func (k *worker) end(err error) bool {
	k.mu.Lock()
	c := k.call
	k.call = call{}
	k.mu.Unlock()
	if k.process.gone() {
		return false
	}
	w := k.process.world
	w.history.add(k.name, c.object.name, "%s = %v after %v", c.what, err, time.Since(c.since))
	w.returned(k, c, err)
	return true
}
