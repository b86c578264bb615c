package simulation

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// process is a program with a client of its own, and workers who use it.
type process struct {
	world  *world
	name   string
	dice   *dice
	route  *route
	pool   *conn.Pool
	client *lock.Client
	lease  time.Duration // of its client
	wg     sync.WaitGroup
	ended  chan struct{} // closed when it crashes, or begins to close

	mu      sync.Mutex // guards the following
	crashed bool
	closes  bool
	still   chan struct{} // while it stands still; closed when it goes on
	workers []*worker
	doubts  []doubt
}

// worker is a goroutine of a process that takes locks.
type worker struct {
	process *process
	name    string
	dice    *dice
	owner   lock.Owner

	mu   sync.Mutex // guards call
	call call
}

// call is what a worker is waiting for.
type call struct {
	what   string // "" if for nothing
	object *object
	since  time.Time
	limit  time.Time // by then it has to return
	waits  bool      // for a lock
}

// newProcess starts a process. It reaches the server only through a route of its own.
func (w *world) newProcess() *process {
	w.born++
	p := &process{world: w, name: fmt.Sprint("p", w.born), ended: make(chan struct{})}
	p.dice = newDice(w.seed, p.name)
	p.route = newRoute(p.name, newDice(w.seed, "route "+p.name), w.latency, func(ctx context.Context) (net.Conn, error) {
		return w.srv.Dial(ctx, "tcp", "server:6379")
	})
	pool, err := conn.New(conn.Config{
		Addr: "server:6379", Dial: p.route.dial, Conns: 1 + p.dice.n(2), Protocol: pick(p.dice, []int{0, 0, 2}),
		Timeout: pick(p.dice, []time.Duration{0, time.Second}),
	})
	if err != nil {
		panic(err)
	}
	p.lease = p.dice.between(2*time.Second, longestLease)
	cfg := lock.Config{Lease: p.lease, HandOvers: pick(p.dice, []int{0, 0, -1, 3}), PreferWriters: p.dice.oneIn(3)}
	client, err := lock.New(pool, cfg)
	if err != nil {
		panic(err)
	}
	p.pool, p.client = pool, client
	w.history.add(p.name, "", "starts: lease %v, hand-overs %d, client %s", p.lease, cfg.HandOvers, client.ID())
	for i := range 1 + p.dice.n(4) {
		name := fmt.Sprint(p.name, ".", i)
		k := &worker{process: p, name: name, dice: newDice(w.seed, name), owner: client.NewOwner()}
		p.workers = append(p.workers, k)
		p.wg.Go(k.run)
	}
	return p
}

// gone reports whether the process has crashed: nothing that happens in it counts any more.
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

// crash ends the process at once. What it has sent may arrive later yet, if late is not below 0. The goroutines of its corpse are
// brought to their end behind the scene.
func (p *process) crash(late time.Duration) {
	if !p.end(true) {
		return
	}
	p.world.history.add(p.name, "", "CRASHES; what is on its way arrives after %v", late)
	p.goOn()
	p.world.buried(p)
	p.route.crash(late)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.client.CloseContext(over)
	_ = p.pool.Close()
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
	began := time.Now()
	err := p.client.Close()
	took := time.Since(began)
	w.history.add(p.name, "", "Close = %v", err)
	if took > 2*closeTime+w.slack {
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
	p.route.set(func() { p.route.blocked = [2]bool{true, true} })
	select {
	case <-time.After(d):
	case <-still:
	case <-p.world.healed:
	}
	p.goOn()
	p.route.set(func() { p.route.blocked = [2]bool{} })
	p.world.history.add(p.name, "", "goes on")
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
		k.pause(k.dice.upTo(pick(k.dice, w.pauses)), w.over)
		if k.pass() {
			k.turn(pick(k.dice, w.objects))
		}
	}
}

// begin takes note of a call that has to return by limit.
func (k *worker) begin(o *object, limit time.Duration, waits bool, format string, args ...any) {
	c := call{what: fmt.Sprintf(format, args...), object: o, since: time.Now(), waits: waits}
	if limit > 0 {
		c.limit = c.since.Add(limit + k.process.world.slack)
	}
	k.mu.Lock()
	k.call = c
	k.mu.Unlock()
	k.process.world.history.add(k.name, o.name, "%s ...", c.what)
}

// end takes note that the call has returned, and reports whether the process still lives to learn of it.
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
