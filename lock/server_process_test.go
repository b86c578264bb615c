package lock_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
)

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

// await waits for an event of a process.
func await(t *testing.T, h *locktorture.History, process int, kind locktorture.Kind) locktorture.Event {
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
				await(t, h, 1, locktorture.Acquired)
				tell(t, waiter, "lock job")
				await(t, h, 2, locktorture.Asked)
				await(t, h, 1, locktorture.Extended)
				holder.Kill()
				await(t, h, 2, locktorture.Acquired)
				finish(t, waiter)
				noViolations(t, h)
				nothingLeft(t, s)
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
		await(t, h, 1, locktorture.Acquired)
		monitor := s.Monitor()
		tell(t, waiter, "lock job")
		looked := waiterSleeps(monitor)
		if !eventually(patience, looked) {
			t.Fatal("the waiter never looked again after it had subscribed")
		}
		tell(t, holder, "unlock job")
		released := await(t, h, 1, locktorture.Releasing)
		taken := await(t, h, 2, locktorture.Acquired)
		// By itself a waiter looks every ten seconds.
		if took := taken.At - released.At; took > 5*time.Second {
			t.Errorf("the waiter had the lock %v after its release", took)
		}
		tell(t, waiter, "unlock job")
		await(t, h, 2, locktorture.Released)
		finish(t, holder, waiter)
		noViolations(t, h)
		nothingLeft(t, s)
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

// nothingLeft fails the test if the server still has keys, channels or connections. What must go, goes by itself, and
// before a latch could go because its time is up.
func nothingLeft(t *testing.T, s *redistest.Server) { latchesLeft(t, s, latchLife/2, 0) }

// latchesLeft is nothingLeft where requests had no answer: their latches stay for a while, in case they arrive late.
// There may be most of them, and other keys go within limit.
func latchesLeft(t *testing.T, s *redistest.Server, limit time.Duration, most int) {
	t.Helper()
	fine := func() bool {
		latches := 0
		for _, k := range s.Keys() {
			if !strings.HasPrefix(k.Name, "redisson_unlock_latch:") {
				return false
			}
			if latches++; k.TTL < 0 || k.TTL > latchLife {
				t.Errorf("a latch stays for %v", k.TTL)
			}
		}
		return latches <= most
	}
	if !eventually(limit, fine) {
		t.Errorf("keys are left: %q", s.Dump())
	}
	nobodyLeft(t, s)
}

// anyNumber is how many latches may be left where it is a matter of chance.
const anyNumber = math.MaxInt

// nobodyLeft fails the test if the server still has channels or connections.
func nobodyLeft(t *testing.T, s *redistest.Server) {
	t.Helper()
	if !eventually(patience, func() bool { return channels(s) == 0 && clients(s) == 0 }) {
		t.Errorf("%d channels and %d connections are left:\n%s", channels(s), clients(s), clientList(s))
	}
}

func channels(s *redistest.Server) int { return s.Do("PUBSUB", "CHANNELS").Len() }

// clients is the number of connections but for those of the test itself.
func clients(s *redistest.Server) int {
	n := 0
	for _, line := range strings.Split(strings.TrimSpace(clientList(s)), "\n") {
		if !strings.Contains(line, "cmd=client") && !strings.Contains(line, "cmd=monitor") {
			n++
		}
	}
	return n
}

func clientList(s *redistest.Server) string {
	text, _ := s.Do("CLIENT", "LIST").Text()
	return text
}
