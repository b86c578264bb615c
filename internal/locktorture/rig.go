package locktorture

import (
	"context"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/redistest"
)

// What tests of locks with real servers share: how they wait, what must be left of a test in the end, and the proxies before a server.

// LatchLife is how long a latch of this module stays at most.
const LatchLife = 20 * time.Second

// NothingLeft fails the test if the server still has keys, channels or connections. What must go, goes by itself, and
// before a latch could go because its time is up.
func NothingLeft(t *testing.T, s *redistest.Server) { LatchesLeft(t, s, LatchLife/2, 0) }

// LatchesLeft is NothingLeft where requests had no answer: their latches stay for a while, in case they arrive late.
// There may be most of them, and other keys go within limit.
func LatchesLeft(t *testing.T, s *redistest.Server, limit time.Duration, most int) {
	t.Helper()
	fine := func() bool {
		latches := 0
		for _, k := range s.Keys() {
			if !strings.HasPrefix(k.Name, "redisson_unlock_latch:") {
				return false
			}
			if latches++; k.TTL < 0 || k.TTL > LatchLife {
				t.Errorf("a latch stays for %v", k.TTL)
			}
		}
		return latches <= most
	}
	if !Eventually(limit, fine) {
		t.Errorf("keys are left: %q", s.Dump())
	}
	NobodyLeft(t, s)
}

// AnyNumber is how many latches may be left where it is a matter of chance.
const AnyNumber = math.MaxInt

// NobodyLeft fails the test if the server still has channels or connections.
func NobodyLeft(t *testing.T, s *redistest.Server) {
	t.Helper()
	if !Eventually(redistest.Patience, func() bool { return Channels(s) == 0 && Clients(s) == 0 }) {
		t.Errorf("%d channels and %d connections are left:\n%s", Channels(s), Clients(s), ClientList(s))
	}
}

// Channels returns the number of channels with a subscriber.
func Channels(s *redistest.Server) int { return s.Do("PUBSUB", "CHANNELS").Len() }

// Clients is the number of connections but for those of the test itself.
func Clients(s *redistest.Server) int {
	n := 0
	for _, line := range strings.Split(strings.TrimSpace(ClientList(s)), "\n") {
		if !strings.Contains(line, "cmd=client") && !strings.Contains(line, "cmd=monitor") {
			n++
		}
	}
	return n
}

// ClientList returns the server's list of its connections.
func ClientList(s *redistest.Server) string {
	text, _ := s.Do("CLIENT", "LIST").Text()
	return text
}

// Pause waits for d or the end of ctx.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Resources is what a process must have given back at the end.
type Resources struct{ Goroutines, Files int }

// CountResources returns what this process has.
func CountResources() Resources {
	// The runtime keeps two files for waiting from the first use of a pipe or socket on: count them always.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return Resources{runtime.NumGoroutine(), 0} // not Linux
	}
	return Resources{runtime.NumGoroutine(), len(files)}
}

// ResourcesBack waits until no more is in use than before, and reports false with what is if that does not come about.
func ResourcesBack(before Resources) (Resources, bool) {
	var after Resources
	ok := Eventually(redistest.Patience, func() bool {
		after = CountResources()
		return after.Goroutines <= before.Goroutines && after.Files <= before.Files
	})
	return after, ok
}

// Eventually asks until the answer is yes, and reports false if it has not been for so long.
func Eventually(limit time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return holds()
		}
	}
	return true
}

// StartProxy starts a proxy before a server, until the end of the test.
func StartProxy(t *testing.T, s *redistest.Server) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(s.Network(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Refuse has a proxy refuse connections, or accept them again.
func Refuse(t *testing.T, p *faultproxy.Proxy, on bool) {
	if !Eventually(redistest.Patience, func() bool { return p.Refuse(on) == nil }) {
		t.Error("the port of a proxy is taken")
	}
}

// Mend ends a proxy's HalfOpen, and with it the connections of that time: no network delivers what comes after
// something that it lost.
func Mend(t *testing.T, p *faultproxy.Proxy) {
	Refuse(t, p, true)
	p.Cut()
	p.HalfOpen(faultproxy.ToServer, false)
	p.HalfOpen(faultproxy.ToClient, false)
	Refuse(t, p, false)
}

// OnCommand has fn decide about each command of that name.
func OnCommand(p *faultproxy.Proxy, name string, fn func() faultproxy.Verdict) {
	p.Intercept(func(cmd []string) faultproxy.Verdict {
		if cmd[0] != name {
			return faultproxy.Verdict{}
		}
		return fn()
	})
}
