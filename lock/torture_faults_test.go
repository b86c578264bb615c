package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/redistest"
)

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
	for _, line := range strings.Split(clientList(x.s), "\n") {
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
	refuse(x.t, p, true)
	x.repairIn(x.spell(), func() { refuse(x.t, p, false) })
}

func (x *torture) halfOpen(dir faultproxy.Direction) {
	p := x.anyProxy()
	p.HalfOpen(dir, true)
	x.repairIn(x.spell(), func() { mend(x.t, p) })
}

// loseScript has one of the next scripts meet its fate.
func (x *torture) loseScript(fate faultproxy.Fate) {
	after := x.rng.IntN(20)
	onCommand(x.anyProxy(), "EVALSHA", func() faultproxy.Verdict {
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

func startProxy(t *testing.T, s *redistest.Server) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(s.Network(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func refuse(t *testing.T, p *faultproxy.Proxy, on bool) {
	if !eventually(patience, func() bool { return p.Refuse(on) == nil }) {
		t.Error("the port of a proxy is taken")
	}
}

// mend ends a proxy's HalfOpen, and with it the connections of that time: no network delivers what comes after
// something that it lost.
func mend(t *testing.T, p *faultproxy.Proxy) {
	refuse(t, p, true)
	p.Cut()
	p.HalfOpen(faultproxy.ToServer, false)
	p.HalfOpen(faultproxy.ToClient, false)
	refuse(t, p, false)
}

// onCommand has fn decide about each command of that name.
func onCommand(p *faultproxy.Proxy, name string, fn func() faultproxy.Verdict) {
	p.Intercept(func(cmd []string) faultproxy.Verdict {
		if cmd[0] != name {
			return faultproxy.Verdict{}
		}
		return fn()
	})
}
