package conformance_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// fiveLease is the lease of locks on five servers, and so for how long one that was restarted has no vote.
const fiveLease = 3 * time.Second

// five is five servers, each behind a proxy.
type five struct {
	t       *testing.T
	servers []*redistest.Server
	proxies []*faultproxy.Proxy
}

func startFive(t *testing.T, s *redistest.Server) *five {
	t.Helper()
	f := &five{t: t}
	for i := range 5 {
		if i > 0 {
			s = redistest.Start(t, redistest.Options{Binary: s.Binary()})
		}
		proxy, err := faultproxy.New(s.Network(), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		f.servers, f.proxies = append(f.servers, s), append(f.proxies, proxy)
	}
	return f
}

// redlock returns the lock "job" of a process with connections of its own.
func (f *five) redlock(protocol int) *lock.Redlock {
	f.t.Helper()
	var nodes []lock.Member
	for i, s := range f.servers {
		cfg := s.Config()
		cfg.Protocol, cfg.Timeout, cfg.DialTimeout = protocol, 500*time.Millisecond, 500*time.Millisecond
		cfg.Network, cfg.Addr = "tcp", f.proxies[i].Addr()
		pool, err := conn.Open(f.t.Context(), cfg)
		if err != nil {
			f.t.Fatal(err)
		}
		c, err := lock.New(pool, lock.Config{Lease: fiveLease})
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { closeLocks(f.t, c, pool) })
		nodes = append(nodes, c.Reentrant("job"))
	}
	r, err := lock.NewRedlock(lock.RedlockConfig{}, nodes...)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// faultsOfOne are what happens to a server, and how that ends.
var faultsOfOne = []struct {
	name  string
	begin func(*redistest.Server, *faultproxy.Proxy)
	end   func(*testing.T, *redistest.Server, *faultproxy.Proxy)
}{
	{
		"killed",
		func(s *redistest.Server, _ *faultproxy.Proxy) { s.Kill() },
		func(_ *testing.T, s *redistest.Server, _ *faultproxy.Proxy) { s.Restart() },
	},
	{
		"stopped",
		func(s *redistest.Server, _ *faultproxy.Proxy) { s.Pause() },
		func(_ *testing.T, s *redistest.Server, _ *faultproxy.Proxy) { s.Continue() },
	},
	{
		"cut off",
		func(_ *redistest.Server, p *faultproxy.Proxy) { p.HalfOpen(faultproxy.ToClient, true) },
		func(t *testing.T, _ *redistest.Server, p *faultproxy.Proxy) {
			// No network delivers what comes after something that it lost.
			eventually(t, "that the proxy refuses", func() bool { return p.Refuse(true) == nil })
			p.Cut()
			p.HalfOpen(faultproxy.ToClient, false)
			eventually(t, "that the proxy accepts", func() bool { return p.Refuse(false) == nil })
		},
	},
	{
		"restarted empty",
		func(s *redistest.Server, _ *faultproxy.Proxy) { s.Restart() },
		func(*testing.T, *redistest.Server, *faultproxy.Proxy) {},
	},
}

// Whatever happens to any two of five servers, within the lease of a lock that is held, the lock stays with its holder and is
// renewed; nobody else gets it before it is given back, and then the others get it, one at a time.
func TestRedlockAnyTwo(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		f := startFive(t, s)
		mine, others := f.redlock(3), []*lock.Redlock{f.redlock(2), f.redlock(3)}
		rounds := 3
		if torture(t) > 0 {
			rounds = 10 * len(faultsOfOne)
		}
		first := rand.IntN(10)
		for round := range rounds {
			a, b := pairOf(first + 3*round)
			kind := round % len(faultsOfOne)
			if rounds < len(faultsOfOne) {
				kind = []int{1 + rand.IntN(2), 3 * rand.IntN(2), 3}[round]
			}
			t.Logf("%d and %d are %s", a, b, faultsOfOne[kind].name)
			f.round(mine, others, a, b, kind)
		}
	})
}

// pairOf is one of the ten pairs of five.
func pairOf(n int) (a, b int) {
	a = n % 5
	return a, (a + 1 + n/5%2) % 5
}

// round has a lock held while something happens to the servers a and b.
func (f *five) round(mine *lock.Redlock, others []*lock.Redlock, a, b, kind int) {
	t := f.t
	held := f.lockWithAll(mine)
	fault := faultsOfOne[kind]
	fault.begin(f.servers[a], f.proxies[a])
	fault.begin(f.servers[b], f.proxies[b])

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var inside atomic.Int32
	var free atomic.Bool
	var wg sync.WaitGroup
	for _, other := range others {
		for range 3 {
			wg.Go(func() {
				lease, err := other.Lock(ctx)
				for errors.Is(err, lock.ErrNoQuorum) && ctx.Err() == nil { // slow answers leave a restarted server without a vote for longer
					lease, err = other.Lock(ctx)
				}
				if err != nil {
					t.Errorf("%s: Lock() = %v", fault.name, err)
					return
				}
				if !free.Load() {
					t.Errorf("%s: another has the lock while it is held: %v, %v", fault.name, held.Err(), lease.Err())
				}
				if n := inside.Add(1); n != 1 && lease.Err() == nil {
					t.Errorf("%s: %d have the lock", fault.name, n)
				}
				inside.Add(-1)
				if err := lease.Unlock(t.Context()); err != nil {
					t.Errorf("%s: Unlock() = %v", fault.name, err)
				}
			})
		}
	}
	start := held.ValidUntil()
	eventually(t, fault.name+": that the lease is renewed", func() bool { return held.ValidUntil().After(start) || held.Err() != nil })
	if err := held.Check(t.Context()); err != nil {
		t.Errorf("%s: Check() = %v", fault.name, err)
	}
	free.Store(true)
	if err := held.Unlock(t.Context()); err != nil {
		t.Errorf("%s: Unlock() = %v", fault.name, err)
	}
	awaitAll(t, &wg, fault.name+": that the others get the lock")

	// This lock is on the other three only, and the two come back.
	least := lockIn(t, mine)
	fault.end(t, f.servers[a], f.proxies[a])
	fault.end(t, f.servers[b], f.proxies[b])
	for range 20 {
		if lease, err := others[0].TryLock(t.Context()); err == nil && least.Err() == nil {
			t.Errorf("%s: another has the lock that is on three: %v, %v", fault.name, least.Err(), lease.Err())
			unlock(t, lease)
		}
	}
	unlock(t, least)
}

// lockWithAll takes the lock with the votes of all five: who was restarted has one again.
func (f *five) lockWithAll(r *lock.Redlock) (held *lock.Lease) {
	f.t.Helper()
	eventually(f.t, "that all five vote", func() bool {
		lease, err := r.TryLock(f.t.Context())
		if err != nil {
			return false
		}
		if alive := len(lease.Members()); alive == 5 {
			held = lease
			return true
		}
		unlock(f.t, lease)
		return false
	})
	return held
}
