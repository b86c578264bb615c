package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/locktorture"
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

func wantUnlocked(t *testing.T, lease *lock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock() = %v", err)
	}
}

// withoutQuarantine is for servers that have just been started for the test.
var withoutQuarantine = lock.RedlockConfig{Quarantine: -1}

// With two of five servers killed, stopped, or cut off half-way, the lock is had, kept and released, in both formats.
func TestServerRedlockServersDown(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		fleet := realFleet(t, s, 5)
		var proxies []*faultproxy.Proxy
		for _, s := range fleet {
			proxies = append(proxies, locktorture.StartProxy(t, s))
		}
		for name, fault := range map[string]func(i int) (end func()){
			"stopped": func(i int) func() { fleet[i].Pause(); return fleet[i].Continue },
			"cut": func(i int) func() {
				proxies[i].HalfOpen(faultproxy.ToClient, true)
				return func() { locktorture.Mend(t, proxies[i]) }
			},
			"killed": func(i int) func() { fleet[i].Kill(); return fleet[i].Restart },
		} {
			for _, plain := range []bool{false, true} {
				// By default each server has 60 ms for its answer, and all of the other three must answer.
				red := withoutQuarantine
				red.NodeTimeout = time.Second
				cfg := lock.Config{Lease: 6 * time.Second}
				mine := realProcess(t, fleet, proxies, cfg).redlock(t, red, plain)
				other := realProcess(t, fleet, proxies, cfg).redlock(t, red, plain)
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
				if !locktorture.Eventually(patience, func() bool { return lease.ValidUntil().After(first) }) {
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
		wantUnlocked(t, lockedAtLast(t, other))
		held := lockedAtLast(t, mine)
		fleet[0].Restart()
		fleet[1].Restart()
		if l, err := other.TryLock(t.Context()); err == nil && held.Err() == nil {
			t.Errorf("two have the lock, the second until %v", l.ValidUntil())
		}
		if !locktorture.Eventually(patience, func() bool { return held.Err() != nil }) {
			t.Error("the holder is not told")
		}
		wantErr(t, "Unlock()", held.Unlock(t.Context()), lock.ErrNotHeld)

		durable := realFleet(t, redistest.Start(t, redistest.Options{
			Binary: s.Binary(), Args: []string{"--appendonly", "yes", "--appendfsync", "always"},
		}), 3, "--appendonly", "yes", "--appendfsync", "always")
		wantUnlocked(t, lockRed(t, realProcess(t, durable, nil, lock.Config{}).redlock(t, cfg, false)))
	})
}

// lockedAtLast acquires a Redlock whose servers may have no vote yet, or be too slow for it.
func lockedAtLast(t *testing.T, r *lock.Redlock) *lock.Lease {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		l, err := r.Lock(t.Context())
		if err == nil {
			return l
		}
		if time.Now().After(until) {
			t.Fatalf("Lock() = %v", err)
		}
	}
}

// Two nodes on one server show by what it says of itself.
func TestServerRedlockDuplicates(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		fleet := realFleet(t, s, 2)
		p := realProcess(t, []*redistest.Server{fleet[0], fleet[1]}, nil, lock.Config{})
		proxy := locktorture.StartProxy(t, fleet[0])
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
		ctx, cancel := context.WithTimeout(t.Context(), patience)
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
						locktorture.Pause(ctx, rand.N(5*time.Millisecond))
						inside.Add(-1)
						if err := lease.Unlock(t.Context()); err != nil && lease.Err() == nil {
							t.Errorf("Unlock() = %v", err)
						}
					}
				})
			}
		}
		wg.Go(func() {
			defer cancel()
			for stops := 0; ctx.Err() == nil && (stops < 12 || turns.Load() < 100); stops++ {
				first, second := rand.IntN(5), rand.IntN(5)
				fleet[first].Pause()
				if second != first {
					fleet[second].Pause()
				}
				locktorture.Pause(ctx, rand.N(400*time.Millisecond))
				fleet[first].Continue()
				if second != first {
					fleet[second].Continue()
				}
				locktorture.Pause(ctx, rand.N(100*time.Millisecond))
			}
		})
		wg.Wait()
		if n := turns.Load(); n < 100 {
			t.Errorf("the lock was had %d times, want 100", n)
		}
	})
}

// The locks of a Multi are on two servers; processes take some of them in any order, while connections are cut.
func TestServerMultiUnderFaults(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		fleet := realFleet(t, s, 2)
		proxies := []*faultproxy.Proxy{locktorture.StartProxy(t, fleet[0]), locktorture.StartProxy(t, fleet[1])}
		all := names("n", 4)
		inside := map[string]*atomic.Int32{}
		for _, name := range all {
			inside[name] = new(atomic.Int32)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
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
		for cuts := 0; ctx.Err() == nil && (cuts < 60 || turns.Load() < 100); cuts++ {
			locktorture.Pause(ctx, rand.N(50*time.Millisecond)+time.Duration(cuts)*time.Millisecond/2) // ever more, for a busy machine
			proxies[rand.IntN(2)].Cut()
		}
		cancel()
		wg.Wait()
		if n := turns.Load(); n < 100 {
			t.Errorf("the locks were had %d times, want 100", n)
		}
	})
}

// One server by its address and by its name, with and without options that make no difference, and by another database.
func TestServerMultiOfOneLock(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		client := func(change func(*conn.Config)) *lock.Client {
			cfg := s.Config()
			change(&cfg)
			pool, err := conn.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			c, err := lock.New(pool, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = c.Close()
				_ = pool.Close()
			})
			return c
		}
		plain := client(func(*conn.Config) {})
		for name, other := range map[string]*lock.Client{
			"by its name":  client(func(cfg *conn.Config) { cfg.Addr = strings.Replace(cfg.Addr, "127.0.0.1", "localhost", 1) }),
			"by a network": client(func(cfg *conn.Config) { cfg.Network = "tcp4" }),
		} {
			_, err := newMulti(t, plain.Reentrant("x"), other.Reentrant("x")).Lock(t.Context())
			wantErr(t, name, err, lock.ErrInvalid)
		}
		database := client(func(cfg *conn.Config) { cfg.DB = 1; cfg.Network = "tcp4" })
		mustUnlock(t, lockMulti(t, newMulti(t, plain.Reentrant("x"), database.Reentrant("x"))))
	})
}

// A lock is handed over within a process without a message, whichever kind it is, if that has been asked for.
func TestServerHandOver(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{HandOvers: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for name, h := range map[string]*lock.Handle{"reentrant": &c.Reentrant("a").Handle, "fenced": &c.Fenced("b").Handle} {
			silent := false
			for round := 0; round < 50 && !silent; round++ {
				lease, err := h.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				next := make(chan *lock.Lease)
				go func() {
					lease, err := h.Lock(t.Context())
					if err != nil {
						t.Error(err)
					}
					next <- lease
				}()
				if !locktorture.Eventually(patience, func() bool { return c.Stats().Waiting == 1 }) {
					t.Fatal("nobody waits")
				}
				s.Do("CONFIG", "RESETSTAT")
				mustUnlock(t, lease)
				after := <-next
				stats, _ := s.Do("INFO", "commandstats").Text()
				silent = !strings.Contains(stats, "cmdstat_publish:")
				if after.Token() < lease.Token() || after.Err() != nil {
					t.Errorf("%s: token %d after %d, Err() = %v", name, after.Token(), lease.Token(), after.Err())
				}
				mustUnlock(t, after)
			}
			if !silent {
				t.Errorf("%s: no release has handed the lock over", name)
			}
		}
		s.Do("FLUSHALL")
	})
}

// stress is many goroutines that do everything there is to do with a few locks, all at once.
type stress struct {
	t       *testing.T
	clients []*lock.Client
	closing atomic.Bool // the last client is being closed, or is

	// inside counts who has each of the calm locks, which nobody takes by force and whose leases do not end.
	inside [3]atomic.Int32
	turns  atomic.Int64 // in which a calm lock was had

	released, uncertain atomic.Int64 // rough locks, and those of which it is not certain
}

// rough is how the names of the locks begin whose leases are short and may be taken away.
const rough = "rough-"

// TestStress ends with nothing left behind, whatever is done at the same time, a Close among it.
func TestStress(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		before := locktorture.CountResources()
		pool, err := conn.Open(t.Context(), s.Config())
		if err != nil {
			t.Fatal(err)
		}
		x := &stress{t: t}
		for range 3 {
			c, err := lock.New(pool, lock.Config{Lease: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			x.clients = append(x.clients, c)
		}
		x.run(2 * time.Second)
		if n, of := x.uncertain.Load(), x.released.Load(); 4*n > of {
			t.Errorf("%d of %d releases were not confirmed", n, of)
		}
		for _, c := range x.clients {
			x.close(c)
			if !c.Idle() {
				t.Errorf("after Close the client has %+v and is not idle", c.Stats())
			}
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		// A lock whose release Close has given up goes with its lease.
		locktorture.LatchesLeft(t, s, patience, locktorture.AnyNumber)
		if after, ok := locktorture.ResourcesBack(before); !ok {
			t.Errorf("after Close %+v, before %+v", after, before)
		}
	})
}

// run takes that long, and longer until the calm locks were had ten times.
func (x *stress) run(length time.Duration) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(x.t.Context())
	defer cancel()
	for g := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for n := g; ctx.Err() == nil; n++ {
				c := x.clients[n%len(x.clients)]
				if name := rng.IntN(5); name < len(x.inside) {
					x.calm(ctx, rng, c, name)
				} else {
					x.rough(ctx, rng, c, fmt.Sprint(rough, name))
				}
			}
		})
	}
	locktorture.Pause(ctx, length/2)
	x.closing.Store(true)
	x.close(x.clients[len(x.clients)-1])
	locktorture.Pause(ctx, length/2)
	waitFor(x.t, func() bool { return x.turns.Load() >= 10 })
}

// close gives a slow machine more than the second of Close for what is not confirmed yet.
func (x *stress) close(c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.CloseContext(ctx); err != nil {
		x.t.Error(err)
	}
}

// ask asks for a lock in one of the ways there are. It returns nil if it was not to be had.
func (x *stress) ask(ctx context.Context, rng *rand.Rand, c *lock.Client, name string, opts ...lock.Option) *lock.Lease {
	wait, cancel := context.WithTimeout(ctx, upTo(rng, 50*time.Millisecond))
	defer cancel()
	l := c.Reentrant(name)
	var lease *lock.Lease
	var err error
	try := rng.IntN(3) == 0
	if try {
		lease, err = l.TryLock(ctx, opts...)
	} else {
		lease, err = l.Lock(wait, opts...)
	}
	switch {
	case err == nil:
		return lease
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil && errors.Is(err, context.Canceled):
	case try && strings.HasPrefix(name, rough) && errors.Is(err, lock.ErrLost): // granted, with a lease that was over too soon
	case errors.Is(err, lock.ErrClosed) && x.closing.Load():
	default:
		x.t.Errorf("Lock %s: %v", name, err)
	}
	return nil
}

// calm has a lock that cannot be lost, but for its client being closed.
func (x *stress) calm(ctx context.Context, rng *rand.Rand, c *lock.Client, number int) {
	name := fmt.Sprint("calm-", number)
	var opts []lock.Option
	reentrant := rng.IntN(3) == 0
	if reentrant {
		opts = []lock.Option{lock.As(c.NewOwner())}
	}
	lease := x.ask(ctx, rng, c, name, opts...)
	if lease == nil {
		return
	}
	x.turns.Add(1)
	if n := x.inside[number].Add(1); n != 1 {
		x.t.Errorf("%d have %s at once", n, name)
	}
	work, cancel := lease.Context(context.Background())
	if reentrant {
		if further, err := c.Reentrant(name).TryLock(context.Background(), opts...); err == nil {
			x.give(further)
		} else if !x.closing.Load() {
			x.t.Errorf("further hold of %s: %v", name, err)
		}
	}
	if rng.IntN(4) == 0 {
		x.held(lease.Check(context.Background()))
	}
	locktorture.Pause(work, upTo(rng, 2*time.Millisecond))
	x.held(lease.Err())
	x.inside[number].Add(-1)
	x.give(lease)
	if work.Err() == nil {
		x.t.Error("the context of a lease goes on after Unlock")
	}
	cancel()
}

// held fails the test if a lease that nothing can end is over.
func (x *stress) held(err error) {
	if err != nil && !x.closing.Load() {
		x.t.Errorf("a calm lease is over: %v", err)
	}
}

// give releases a lease that cannot have been lost, twice, under a context that is over.
func (x *stress) give(lease *lock.Lease) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 {
		// The release of an Owner's hold may be given up where the client is closed.
		if err := lease.Unlock(ctx); err != nil && !(x.closing.Load() && errors.Is(err, lock.ErrUncertain)) {
			x.t.Errorf("Unlock: %v", err)
		}
	}
}

// rough has a lock whose lease is short and which others take away.
func (x *stress) rough(ctx context.Context, rng *rand.Rand, c *lock.Client, name string) {
	if rng.IntN(8) == 0 {
		if _, err := c.Reentrant(name).ForceUnlock(ctx); err != nil && ctx.Err() == nil {
			x.t.Errorf("ForceUnlock: %v", err)
		}
		return
	}
	lease := x.ask(ctx, rng, c, name, lock.For(10*time.Millisecond+upTo(rng, 30*time.Millisecond)))
	if lease == nil {
		return
	}
	work, cancel := lease.Context(ctx)
	defer cancel()
	locktorture.Pause(work, upTo(rng, 20*time.Millisecond))
	if rng.IntN(4) == 0 {
		if err := lease.Check(ctx); err != nil && !errors.Is(err, lock.ErrLost) && ctx.Err() == nil {
			x.t.Errorf("Check: %v", err)
		}
	}
	var wg sync.WaitGroup
	var outcomes [2]error
	for i := range outcomes {
		wg.Go(func() { outcomes[i] = lease.Unlock(context.Background()) })
	}
	wg.Wait()
	x.released.Add(1)
	for _, err := range outcomes {
		switch {
		case err == nil, errors.Is(err, lock.ErrNotHeld):
		case errors.Is(err, lock.ErrUncertain): // with so short a lease it waits for no more than a second
			x.uncertain.Add(1)
			return
		default:
			x.t.Errorf("Unlock: %v", err)
		}
	}
	if (outcomes[0] == nil) != (outcomes[1] == nil) {
		x.t.Errorf("two outcomes of one release: %v, %v", outcomes[0], outcomes[1])
	}
}

// upTo is a random duration below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
