package lock_test

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

// realFleet is s and more servers of its kind.
func realFleet(t *testing.T, s *redistest.Server, n int, args ...string) []*redistest.Server {
	t.Helper()
	fleet := []*redistest.Server{s}
	for len(fleet) < n {
		fleet = append(fleet, redistest.Start(t, redistest.Options{Binary: s.Binary(), Args: args}))
	}
	return fleet
}

// realProcess has a client of each server, in the protocol of the test, through a proxy each if there are some.
func realProcess(t *testing.T, fleet []*redistest.Server, proxies []*faultproxy.Proxy, cfg lock.Config) process {
	t.Helper()
	var p process
	for i, s := range fleet {
		server := s.Config()
		server.Protocol = fleet[0].Config().Protocol
		server.Timeout, server.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
		if proxies != nil {
			server.Network, server.Addr = "tcp", proxies[i].Addr()
		}
		pool, err := conn.Open(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		c, err := lock.New(pool, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), pool.Close()); err != nil {
				t.Error(err)
			}
		})
		p = append(p, c)
	}
	return p
}

// withoutQuarantine is for servers that have just been started for the test.
var withoutQuarantine = lock.RedlockConfig{Quarantine: -1}

func wantUnlocked(t *testing.T, lease *lock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock() = %v", err)
	}
}

// With two of five servers killed, stopped, or cut off half-way, the lock is had, kept and released, in both formats.
func TestServerRedlockServersDown(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		fleet := realFleet(t, s, 5)
		var proxies []*faultproxy.Proxy
		for _, s := range fleet {
			proxies = append(proxies, startProxy(t, s))
		}
		for name, fault := range map[string]func(i int) (end func()){
			"stopped": func(i int) func() { fleet[i].Pause(); return fleet[i].Continue },
			"cut": func(i int) func() {
				proxies[i].HalfOpen(faultproxy.ToClient, true)
				return func() { mend(t, proxies[i]) }
			},
			"killed": func(i int) func() { fleet[i].Kill(); return fleet[i].Restart },
		} {
			for _, plain := range []bool{false, true} {
				cfg := lock.Config{Lease: 3 * time.Second}
				mine := realProcess(t, fleet, proxies, cfg).redlock(t, withoutQuarantine, plain)
				other := realProcess(t, fleet, proxies, cfg).redlock(t, withoutQuarantine, plain)
				mustUnlock(t, lockRed(t, mine))
				mends := []func(){fault(1), fault(3)}
				lease := lockRed(t, mine)
				if _, err := other.TryLock(t.Context()); err == nil {
					t.Errorf("%s: both have the lock", name)
				}
				if err := lease.Check(t.Context()); err != nil {
					t.Errorf("%s: Check() = %v", name, err)
				}
				first := lease.ValidUntil()
				if !eventually(patience, func() bool { return lease.ValidUntil().After(first) }) {
					t.Errorf("%s: the lease is not renewed", name)
				}
				wantUnlocked(t, lease)
				wantUnlocked(t, lockRed(t, other))
				for _, mend := range mends {
					mend()
				}
			}
		}
	})
}

// A server that was restarted inside the lease does not vote, unless it writes all that it grants; when a lease has passed it
// does.
func TestServerRedlockRestart(t *testing.T) {
	t.Parallel()
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		fleet := realFleet(t, s, 3)
		lease := lock.Config{Lease: 2 * time.Second}
		cfg := lock.RedlockConfig{}
		mine := realProcess(t, fleet, nil, lease).redlock(t, cfg, false)
		other := realProcess(t, fleet, nil, lease).redlock(t, cfg, false)
		_, err := mine.TryLock(t.Context())
		wantErr(t, "TryLock() on servers that have just been started", err, lock.ErrNoQuorum)
		until := time.Now().Add(patience)
		for err != nil && time.Now().Before(until) {
			var l *lock.Lease
			if l, err = other.Lock(t.Context()); err == nil {
				wantUnlocked(t, l)
			}
		}
		if err != nil {
			t.Fatalf("Lock() = %v", err)
		}
		held := lockRed(t, mine)
		fleet[0].Restart()
		fleet[1].Restart()
		if l, err := other.TryLock(t.Context()); err == nil {
			t.Errorf("two have the lock: %v, %v", held.Err(), l.Err())
		}
		if !eventually(patience, func() bool { return held.Err() != nil }) {
			t.Error("the holder is not told")
		}
		wantErr(t, "Unlock()", held.Unlock(t.Context()), lock.ErrNotHeld)

		durable := realFleet(t, redistest.Start(t, redistest.Options{
			Binary: s.Binary(), Args: []string{"--appendonly", "yes", "--appendfsync", "always"},
		}), 3, "--appendonly", "yes", "--appendfsync", "always")
		wantUnlocked(t, lockRed(t, realProcess(t, durable, nil, lease).redlock(t, cfg, false)))
	})
}

// Two nodes on one server show by what it says of itself.
func TestServerRedlockDuplicates(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		fleet := realFleet(t, s, 2)
		p := realProcess(t, []*redistest.Server{fleet[0], fleet[1]}, nil, lock.Config{})
		proxy := startProxy(t, fleet[0])
		server := fleet[0].Config()
		server.Network, server.Addr = "tcp", proxy.Addr()
		pool := redistest.Open(t, server)
		c, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = append(p, c).redlock(t, withoutQuarantine, false).TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrInvalid)
		if _, err := lock.NewRedlock(withoutQuarantine, p[0].Reentrant("a"), p[1].Reentrant("a"),
			realProcess(t, fleet[:1], nil, lock.Config{})[0].Reentrant("a")); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("NewRedlock of one address twice = %v", err)
		}
	})
}

// Three processes with some goroutines each want the lock while servers are stopped, never more than two of five at a time.
func TestServerRedlockStorm(t *testing.T) {
	t.Parallel()
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		fleet := realFleet(t, s, 5)
		var inside, turns atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			r := realProcess(t, fleet, nil, lock.Config{Lease: 5 * time.Second}).redlock(t, withoutQuarantine, false)
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lease, err := r.Lock(ctx)
						if err != nil {
							continue
						}
						if n := inside.Add(1); n != 1 && lease.Err() == nil {
							t.Errorf("%d have the lock", n)
						}
						turns.Add(1)
						pause(ctx, rand.N(5*time.Millisecond))
						inside.Add(-1)
						wantUnlocked(t, lease)
					}
				})
			}
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				first, second := rand.IntN(5), rand.IntN(5)
				fleet[first].Pause()
				if second != first {
					fleet[second].Pause()
				}
				pause(ctx, rand.N(400*time.Millisecond))
				fleet[first].Continue()
				if second != first {
					fleet[second].Continue()
				}
				pause(ctx, rand.N(100*time.Millisecond))
			}
		})
		wg.Wait()
		if turns.Load() == 0 {
			t.Error("nobody had the lock")
		}
	})
}

// The locks of a Multi are on two servers; processes take some of them in any order, while connections are cut.
func TestServerMultiUnderFaults(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		fleet := realFleet(t, s, 2)
		proxies := []*faultproxy.Proxy{startProxy(t, fleet[0]), startProxy(t, fleet[1])}
		all := names("n", 4)
		inside := map[string]*atomic.Int32{}
		for _, name := range all {
			inside[name] = new(atomic.Int32)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var turns atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			p := realProcess(t, fleet, proxies, lock.Config{Lease: 5 * time.Second})
			wg.Go(func() {
				for ctx.Err() == nil {
					order := rand.Perm(len(all))[:2]
					var members []lock.Member
					for _, i := range order {
						members = append(members, p[i%2].Reentrant(all[i]))
					}
					lease, err := newMulti(t, members...).Lock(ctx)
					if err != nil {
						continue
					}
					turns.Add(1)
					for _, i := range order {
						if inside[all[i]].Add(1) != 1 && lease.Err() == nil {
							t.Errorf("two have %s", all[i])
						}
					}
					for _, i := range order {
						inside[all[i]].Add(-1)
					}
					_ = lease.Unlock(ctx) // may be uncertain for a while
				}
			})
		}
		for ctx.Err() == nil {
			pause(ctx, rand.N(50*time.Millisecond))
			proxies[rand.IntN(2)].Cut()
		}
		wg.Wait()
		if turns.Load() == 0 {
			t.Error("nobody had the locks")
		}
	})
}
